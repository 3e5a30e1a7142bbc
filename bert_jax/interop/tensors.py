"""Conversion of our parameters to the tensors of `transformers`, and back.

families/ has the names of the tensors; our model gives the shapes.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.interop.families import FAMILIES, LEAVES, VOCABULARY, Family, ModelClass, NamedModule
from bert_jax.models import PRETRAINING_HEADS, Head, Params, make_model

Flat = dict[str, Any]  # path in our tree -> array
Shapes = Mapping[str, tuple[int, ...]]  # path in our tree -> shape

WITHOUT_PARAMETERS = ("hidden_states", "last_hidden_state", "sentence_embedding")
STORED_AS = {"sparse_embedding": "masked_token"}  # head -> the head under whose name its parameters are stored
PROJECTION = "token_embedding"  # the head of late interaction, whose tensor is in a separate file
OUTSIDE_CLASSES = (*WITHOUT_PARAMETERS, PROJECTION)  # heads of no class of transformers
FOR_TRAINING_ALONE = {"replaced_token"}  # no task reads this head; an export leaves it out if no class has it
# Prefixes of all tensor names in a file that torch's DataParallel or sentence-transformers wrote.
WRAPPERS = ("module.", "0.auto_model.")
UNUSED_VALUES = {"scale": 1.0}  # values of a parameter in layers that do not use it; a parameter not listed is 0


class StoredTensor(NamedTuple):
    """A tensor of a file, or one of n equal parts of a tensor, and its path in our parameter tree."""

    name: str | None  # None: the layer has no such tensor
    path: str  # path in our tree
    layer: int | None  # index on the stacked layer axis; None: the parameter is outside the layers
    has_vocabulary: bool  # whether the first axis is the vocabulary, which our tree pads
    part: tuple[int, int] = (0, 1)  # (i, n): the i-th of n equal parts along the first axis


def model_class_for_heads(config: EncoderConfig, heads: tuple[Head, ...]) -> ModelClass:
    """Return the class of `transformers` with exactly these heads; else raise UserError, which lists all classes."""
    wanted, family = {head.name for head in heads_as_stored(heads)} - {*OUTSIDE_CLASSES}, FAMILIES[config.family]
    for model_class in family.classes:
        if set(model_class.heads) == wanted:
            return model_class
    classes = ", ".join(f"{model.name} ({' + '.join(model.heads) or 'none'})" for model in family.classes)
    raise UserError(f"transformers has no {config.family} with the heads {' + '.join(sorted(wanted))}, but {classes}")


def heads_as_stored(heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """Return the heads, renamed to the names under which a directory stores their parameters."""
    return tuple(head._replace(name=STORED_AS.get(head.name, head.name)) for head in heads)


def largest_class_of_heads(family: Family, heads: set[str]) -> ModelClass | None:
    """Return the model class that has the most of these heads, and no other head; if several tie, return the first.

    Return None if a head is in no class that has only these heads. Heads that are only for training are an exception.
    """
    fitting = [model for model in family.classes if set(model.heads) <= heads]
    largest = max(fitting, key=lambda model: len(model.heads), default=None)
    return largest if heads - {name for model in fitting for name in model.heads} <= FOR_TRAINING_ALONE else None


def missing_heads_advice(missing: Collection[str], present: Collection[str]) -> str:
    """Return the advice that ends an error message about missing heads of a model with the heads `present`."""
    if "masked_token" in missing and "next_token" in present:
        return "it predicts the next token, and cannot fill masks; use a model that was trained on masked tokens"
    if "masked_token" in missing and "replaced_token" not in present:
        return "it cannot fill masks; use a model with a masked-token head"
    if "masked_token" in missing:
        return "it cannot fill masks; the generator of an ELECTRA run can (bert-jax export --part generator)"
    return "fine-tune it first"


def to_tensors(
    params: Params, config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS
) -> dict[str, np.ndarray]:
    """Return name -> tensor of `transformers`: contiguous float32 arrays, without the padding of the vocabulary.

    The tree `params` has the structure of `make_model(config, ..., heads)`. The names of a bare model lack the family's
    prefix. Raises `UserError` if the tree does not fit the config, or if transformers has no model with these heads.
    """
    model_class, family = model_class_for_heads(config, heads), FAMILIES[config.family]
    flat, shapes = flatten_params(params), parameter_shapes(config, heads)
    if {path: np.shape(x) for path, x in flat.items()} != {**shapes}:
        raise UserError("the parameters do not fit this model configuration: names or shapes differ")
    stored_tensors = list(iterate_stored_tensors((*family.encoder, *model_class.modules), shapes))
    if unnamed := flat.keys() - {stored.path for stored in stored_tensors}:
        raise UserError(f"transformers has no tensor of a {config.family} for {', '.join(sorted(unnamed))}")
    parts: dict[str, dict[int, np.ndarray]] = {}
    for stored in stored_tensors:
        if stored.name is None:
            continue
        x = np.asarray(flat[stored.path], np.float32)
        x = x if stored.layer is None else x[stored.layer]
        x = x[: config.vocab_size] if stored.has_vocabulary else x
        name = stored.name.removeprefix(f"{family.prefix}.") if model_class.is_bare else stored.name
        parts.setdefault(name, {})[stored.part[0]] = x.T if stored.path.endswith("/kernel") else x
    return {
        name: np.ascontiguousarray(
            by_index[0] if len(by_index) == 1 else np.concatenate([by_index[i] for i in sorted(by_index)])
        )
        for name, by_index in parts.items()
    }


def from_tensors(
    tensors: Mapping[str, np.ndarray],
    stored_tensors: Iterable[StoredTensor],
    shapes: Shapes,
    config: EncoderConfig,
    where: str,
) -> Flat:
    """Return path -> float32 array for `stored_tensors`; raise UserError for a missing tensor or a wrong shape."""
    flat: Flat = {}
    for path, group in itertools.groupby(stored_tensors, lambda stored: stored.path):
        # All tensors of a parameter are checked before memory is allocated for it.
        layers = [_checked_tensor(tensors, stored, shapes[path], config, where) for stored in group]
        x = np.zeros(shapes[path], np.float32)
        if x.ndim > layers[0].ndim:
            np.stack(layers, out=x)
        else:
            x[: len(layers[0])] = layers[0]  # the file's vocabulary is shorter than our padded vocabulary
        flat[path] = x
    return flat


def _checked_tensor(
    tensors: Mapping[str, np.ndarray],
    stored: StoredTensor,
    parameter_shape: tuple[int, ...],
    config: EncoderConfig,
    where: str,
) -> np.ndarray:
    """Return one tensor in our layout; raise UserError if its shape does not fit its slice of the parameter."""
    shape = parameter_shape if stored.layer is None else parameter_shape[1:]
    if stored.name is None:
        return np.full(shape, UNUSED_VALUES.get(stored.path.rpartition("/")[2], 0.0), np.float32)
    if stored.name not in tensors:
        raise UserError(f"{where}: tensor '{stored.name}' is missing{did_you_mean(stored.name, tensors)}")
    x, is_transposed = tensors[stored.name], stored.path.endswith("/kernel")
    shape = (config.vocab_size, *shape[1:]) if stored.has_vocabulary else shape
    shape = shape[::-1] if is_transposed else shape
    part, num_parts = stored.part
    stored_shape = (num_parts * shape[0], *shape[1:]) if num_parts > 1 else shape
    if x.shape != stored_shape:
        raise UserError(f"{where}: tensor '{stored.name}' is {[*x.shape]}, not {[*stored_shape]}")
    if num_parts > 1:
        x = x[part * shape[0] : (part + 1) * shape[0]]
    return x.T if is_transposed else x


def iterate_stored_tensors(modules: Iterable[NamedModule], shapes: Shapes) -> Iterator[StoredTensor]:
    """Yield the stored tensors of every parameter of the modules, without parameters that the model lacks."""
    for module in modules:
        has_vocabulary = module.kind == VOCABULARY
        for ours, theirs in LEAVES[module.kind].items():
            path = "/".join(filter(None, (module.path, ours)))
            name = ".".join(filter(None, (module.name, theirs)))
            if path in shapes and "{layer}" in name:
                for layer in range(shapes[path][0]):
                    layer_name = name.format(layer=layer) if layer >= module.first_layer else None
                    yield StoredTensor(layer_name, path, layer, has_vocabulary, module.part)
            elif path in shapes:
                yield StoredTensor(name, path, None, has_vocabulary, module.part)


def tensor_names(module: NamedModule) -> list[str]:
    """Return the tensor names of a module outside the layers; a file may lack all tensors but the first."""
    return [".".join(filter(None, (module.name, theirs))) for theirs in LEAVES[module.kind].values()]


def copy_shared_parts(params: Params, family: Family, missing: Iterable[str]) -> Params:
    """Return the missing parts of a model, copied from other parts whose tensors have equal names.

    For example, the pooler of a ModernBERT has the tensors of the masked-token head except the bias.
    """
    flat, copies = flatten_params(params), dict[str, Any]()
    modules = [module for model_class in family.classes for module in model_class.modules]
    for part in missing:
        names = {module.path: module.name for module in modules if first_path_part(module.path) == part}
        if not names or set(names.values()) - family.shared:
            continue
        for path, name in names.items():
            for twin in (module for module in modules if module.name == name):
                for leaf in LEAVES[twin.kind]:
                    if f"{twin.path}/{leaf}" in flat:
                        copies[f"{path}/{leaf}"] = flat[f"{twin.path}/{leaf}"]
    return unflatten_params(copies)


class TensorNames(NamedTuple):
    """The names of the tensors of a file."""

    originals: dict[str, str]  # name in families/ -> name in the file, without the copies of tied tensors
    # Name of a copy -> name of the tensor that it should equal, if the two differ: the file's weights are not tied.
    untied: dict[str, str]


def tensor_names_in_family(tensors: Mapping[str, np.ndarray], family: Family, where: str) -> TensorNames:
    """Return the names that the tensors of a file have in families/.

    Older names of LayerNorm's parameters (`gamma`, `beta`) are translated, the missing prefix of a bare model is added,
    and a prefix in `WRAPPERS` is removed. Raises `UserError` if saved position numbers are not 0, 1, 2, ...
    """
    originals: dict[str, str] = {}
    untied: dict[str, str] = {}
    wrapper = next((wrapper for wrapper in WRAPPERS if all(name.startswith(wrapper) for name in tensors)), "")
    tensors = {name.removeprefix(wrapper): x for name, x in tensors.items()}
    prefix = f"{family.prefix}."
    lacks_prefix = not any(name.startswith(prefix) for name in tensors)
    modules = (*family.encoder, *(module for model_class in family.classes for module in model_class.modules))
    inner = {
        first_path_part(module.name.removeprefix(prefix), ".") for module in modules if module.name.startswith(prefix)
    }
    for name, x in tensors.items():
        full_name = prefix + name if lacks_prefix and first_path_part(name, ".") in inner else name
        if full_name == f"{prefix}embeddings.position_ids":
            if not np.array_equal(x.ravel(), np.arange(x.size)):
                raise UserError(f"{where}: tensor '{name}' does not number the positions from 0 on")
            continue
        full_name = full_name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if full_name in originals:
            raise UserError(f"{where}: tensors '{originals[full_name]}' and '{name}' are the same under two names")
        originals[full_name] = name
    for copy, tied in family.tied.items():
        if copy in originals and tied not in originals:
            originals[tied] = originals[copy]
        elif copy in originals and not np.array_equal(tensors[originals[copy]], tensors[originals[tied]]):
            untied[copy] = tied
        originals.pop(copy, None)
    return TensorNames({name: wrapper + original for name, original in originals.items()}, untied)


def first_path_part(path: str, separator: str = "/") -> str:
    """Return the first part of a path or of a tensor's name."""
    return path.partition(separator)[0]


def parameter_shapes(config: EncoderConfig, heads: tuple[Head, ...]) -> dict[str, tuple[int, ...]]:
    """Return path -> shape of every parameter."""
    return {path: x.shape for path, x in flatten_params(make_model(config, ComputeConfig(), heads).shapes).items()}


def flatten_params(params: Params) -> Flat:
    """Return a parameter tree as one dict: 'encoder/embeddings/norm/scale' -> array."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def unflatten_params(flat: Mapping[str, Any]) -> Params:
    """Return the parameter tree of a dict; the inverse of `flatten_params`."""
    params: Params = {}
    for path, x in flat.items():
        *parents, leaf = path.split("/")
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = x
    return params
