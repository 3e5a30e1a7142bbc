"""Our parameters as the tensors of `transformers`, and back: families/ has the names, the model the shapes."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.interop.families import FAMILIES, LEAVES, Family, ModelClass, Module
from bert_jax.models import PRETRAINING_HEADS, Head, Params, make_model

Flat = dict[str, Any]  # path in our tree -> array

WITHOUT_PARAMETERS = ("hidden_states", "last_hidden_state", "sentence_embedding")
FOR_TRAINING_ALONE = {"replaced_token"}  # no task reads it: left out where the family has no class with it


UNUSED = {"scale": 1.0}  # what a layer holds that does not use the parameter; else 0


class Stored(NamedTuple):
    """One tensor of a file, or an equal part of one along its first axis: its name, and its place in our tree."""

    name: str | None  # None: of a layer without it
    path: str
    layer: int | None  # on the stacked axis
    vocabulary: bool  # the first axis is longer in ours
    part: int = 0
    parts: int = 1


def class_of(config: EncoderConfig, heads: tuple[Head, ...]) -> ModelClass:
    """Return the class of `transformers` with exactly these heads; `UserError` lists the classes of the family."""
    wanted, family = {head.name for head in heads} - {*WITHOUT_PARAMETERS}, FAMILIES[config.family]
    for one in family.classes:
        if set(one.heads) == wanted:
            return one
    classes = ", ".join(f"{one.name} ({' + '.join(one.heads) or 'none'})" for one in family.classes)
    raise UserError(f"transformers has no {config.family} with the heads {' + '.join(sorted(wanted))}, but {classes}")


def class_for(family: Family, heads: set[str]) -> ModelClass | None:
    """Return the class with all these heads; without one, where each head is in a class, that with the most of them.

    None: some head is in no class, and not for training alone. Of several classes it is the first.
    """
    fitting = [one for one in family.classes if set(one.heads) <= heads]
    most = max(fitting, key=lambda one: len(one.heads), default=None)
    return most if heads - {name for one in fitting for name in one.heads} <= FOR_TRAINING_ALONE else None


def advice_without(heads: Collection[str]) -> str:
    """Return what to do with a model that lacks `heads`, for an error."""
    if "masked_token" in heads:
        return "it cannot fill masks; the generator of an ELECTRA run can (bert-jax export --part generator)"
    return "fine-tune it first"


def to_tensors(
    params: Params, config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS
) -> dict[str, np.ndarray]:
    """Return the tensors of `transformers` by name: contiguous float32 arrays, the vocabulary unpadded.

    `params` is a tree of `make_model(config, ..., heads)`; a bare model's names lack the family's prefix. Raises
    `UserError` where the tree is of another model, or where transformers has none with these heads.
    """
    one, family = class_of(config, heads), FAMILIES[config.family]
    flat, shapes = flatten(params), shapes_of(config, heads)
    if {path: np.shape(x) for path, x in flat.items()} != {**shapes}:
        raise UserError("the parameters are not those of this model configuration: names or shapes differ")
    parts: dict[str, dict[int, np.ndarray]] = {}
    for stored in stored_tensors((*family.encoder, *one.modules), shapes):
        if stored.name is None:
            continue
        x = np.asarray(flat[stored.path], np.float32)
        x = x if stored.layer is None else x[stored.layer]
        x = x[: config.vocab_size] if stored.vocabulary else x
        name = stored.name.removeprefix(f"{family.prefix}.") if is_bare(one) else stored.name
        parts.setdefault(name, {})[stored.part] = x.T if stored.path.endswith("/kernel") else x
    joined = {
        name: own[0] if len(own) == 1 else np.concatenate([own[i] for i in sorted(own)]) for name, own in parts.items()
    }
    return {name: np.ascontiguousarray(x) for name, x in joined.items()}


def from_tensors(
    tensors: Mapping[str, np.ndarray],
    found: Iterable[Stored],
    shapes: Mapping[str, tuple[int, ...]],
    config: EncoderConfig,
    where: str,
) -> Flat:
    """Return the float32 arrays that `found` fills; `UserError` names a tensor that is missing or of another shape."""
    flat: Flat = {}
    for path, group in itertools.groupby(found, lambda stored: stored.path):
        parts = [_checked(tensors, stored, shapes[path], config, where) for stored in group]  # before memory is taken
        whole = np.zeros(shapes[path], np.float32)
        if whole.ndim > parts[0].ndim:
            np.stack(parts, out=whole)
        else:
            whole[: len(parts[0])] = parts[0]  # shorter where it has the vocabulary's axis
        flat[path] = whole
    return flat


def _checked(
    tensors: Mapping[str, np.ndarray], stored: Stored, whole: tuple[int, ...], config: EncoderConfig, where: str
) -> np.ndarray:
    """One tensor in our layout, if it has the shape of its place in the parameter of shape `whole`."""
    shape = whole if stored.layer is None else whole[1:]
    if stored.name is None:
        return np.full(shape, UNUSED.get(stored.path.rpartition("/")[2], 0.0), np.float32)
    if stored.name not in tensors:
        raise UserError(f"{where}: tensor '{stored.name}' is missing{did_you_mean(stored.name, tensors)}")
    x, turn = tensors[stored.name], -1 if stored.path.endswith("/kernel") else 1
    shape = ((config.vocab_size, *shape[1:]) if stored.vocabulary else shape)[::turn]
    fused = (stored.parts * shape[0], *shape[1:]) if stored.parts > 1 else shape
    if x.shape != fused:
        raise UserError(f"{where}: tensor '{stored.name}' is {[*x.shape]}, not {[*fused]}")
    if stored.parts > 1:
        x = x[stored.part * shape[0] : (stored.part + 1) * shape[0]]
    return x.T if turn < 0 else x


def stored_tensors(modules: Iterable[Module], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Stored]:
    """Yield every tensor of `modules` that the model of `shapes` has."""
    for module in modules:
        for ours, theirs in LEAVES[module.kind].items():
            path = "/".join(filter(None, (module.path, ours)))
            name = ".".join(filter(None, (module.name, theirs)))
            if path in shapes and "{layer}" in name:
                for layer in range(shapes[path][0]):
                    own = name.format(layer=layer) if layer >= module.first_layer else None
                    yield Stored(own, path, layer, module.vocabulary, module.part, module.parts)
            elif path in shapes:
                yield Stored(name, path, None, module.vocabulary, module.part, module.parts)


def tensor_names(module: Module) -> list[str]:
    """Return the names of the tensors of a module outside the layers; those after the first may be absent."""
    return [".".join(filter(None, (module.name, theirs))) for theirs in LEAVES[module.kind].values()]


def shared_parts(params: Params, family: Family, missing: Iterable[str]) -> Params:
    """Return those of the `missing` parts of a model that the family names like parameters of another part.

    Such as the pooler of a ModernBERT, which is the masked-token head without its bias.
    """
    flat, found = flatten(params), dict[str, Any]()
    modules = [module for one in family.classes for module in one.modules]
    for part in missing:
        own = {module.path: module.name for module in modules if module.path.partition("/")[0] == part}
        if not own or set(own.values()) - family.shared:
            continue
        for path, name in own.items():
            for other in (module for module in modules if module.name == name):
                for leaf in LEAVES[other.kind]:
                    if f"{other.path}/{leaf}" in flat:
                        found[f"{path}/{leaf}"] = flat[f"{other.path}/{leaf}"]
    return unflatten(found)


def is_bare(one: ModelClass) -> bool:
    """Return whether a class is an encoder without a head of its own."""
    return one.heads in ((), ("pooled",))


def canonical_names(tensors: Mapping[str, np.ndarray], family: Family, where: str) -> dict[str, str]:
    """Return the names of families/ -> names in the file, without the copies of tied tensors.

    Older names of LayerNorm's parameters (`gamma`, `beta`) are translated, and the missing prefix of a bare model is
    added. Raises `UserError` where a copy of a tied tensor differs from it, and where saved position numbers are not 0,
    1, 2, ...
    """
    found: dict[str, str] = {}
    prefix = f"{family.prefix}."
    bare = not any(name.startswith(prefix) for name in tensors)
    inner = [module.name for one in family.classes for module in (*family.encoder, *one.modules)]
    inner = [name.removeprefix(prefix).partition(".")[0] for name in inner if name.startswith(prefix)]
    for name, x in tensors.items():
        full = prefix + name if bare and name.partition(".")[0] in inner else name
        if full == f"{prefix}embeddings.position_ids":
            if not np.array_equal(x.ravel(), np.arange(x.size)):
                raise UserError(f"{where}: tensor '{name}' does not number the positions from 0 on")
            continue
        full = full.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if full in found:
            raise UserError(f"{where}: tensors '{found[full]}' and '{name}' are the same under two names")
        found[full] = name
    for copy, original in family.tied.items():
        if copy in found and original not in found:
            found[original] = found[copy]
        elif copy in found and not np.array_equal(tensors[found[copy]], tensors[found[original]]):
            raise UserError(f"{where}: tensor '{copy}' differs from '{original}', to which this model ties it")
        found.pop(copy, None)
    return found


def shapes_of(config: EncoderConfig, heads: tuple[Head, ...]) -> dict[str, tuple[int, ...]]:
    """Return path -> shape of every parameter."""
    return {path: x.shape for path, x in flatten(make_model(config, ComputeConfig(), heads).shapes).items()}


def flatten(params: Params) -> Flat:
    """Return a tree as one dict: 'encoder/embeddings/norm/scale' -> array."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def unflatten(flat: Mapping[str, Any]) -> Params:
    """Return the tree of a dict; the inverse of `flatten`."""
    params: Params = {}
    for path, x in flat.items():
        *parents, leaf = path.split("/")
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = x
    return params
