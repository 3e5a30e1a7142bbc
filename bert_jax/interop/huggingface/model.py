"""Load and export a model directory: `config.json`, weights, tokenizer files.

Reading a `pytorch_model.bin` needs torch; no other code of this module needs torch or transformers.
"""

import dataclasses
import functools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError, did_you_mean, os_error_in_message, with_message
from bert_jax.files import output_directory
from bert_jax.interop.families import FAMILIES, Family, ModelClass, NamedModule
from bert_jax.interop.huggingface.model_config import (
    Labels,
    ModelConfig,
    label_fields,
    model_config_fields,
    model_config_text,
    read_model_config,
)
from bert_jax.interop.huggingface.peft import CONFIG as PEFT_CONFIG
from bert_jax.interop.huggingface.peft import read_peft
from bert_jax.interop.huggingface.weight_files import read_weight_files
from bert_jax.interop.sentence_modules import cross_encoder_config_fields
from bert_jax.interop.tensors import (
    OUTSIDE_CLASSES,
    PROJECTION,
    Flat,
    Shapes,
    first_path_part,
    from_tensors,
    heads_as_stored,
    iterate_stored_tensors,
    missing_heads_advice,
    model_class_for_heads,
    parameter_shapes,
    tensor_names,
    tensor_names_in_family,
    to_tensors,
    unflatten_params,
)
from bert_jax.interop.token_modules import projection_file
from bert_jax.models import Head, Params, draw_missing
from bert_jax.tokenizer import Tokenizer, copy_tokenizer, load_tokenizer

TASK_FILE = "task.json"  # file in a fine-tuned model's directory: the task that `predict` answers
CARD = "README.md"  # the model card, which people may edit
LABELED = ("sequence_classification", "token_classification")  # heads with one output per label
OVER_VOCABULARY = ("masked_token", "next_token")  # heads that share the table of the embeddings
SHOWN = 5  # number of names in a message


PROJECTION_KERNEL = f"{PROJECTION}/kernel"
MULTI_LABEL = "multi_label_classification"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model read from files."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params = dataclasses.field(repr=False)  # tree of make_model(config, ..., heads): float32 numpy arrays
    labels: tuple[str, ...] = ()  # class names of a classification head; () if the classes have no names
    problem: str = ""  # "multi_label_classification" if that is the problem_type, else ""
    activation: str = ""  # activation of a CrossEncoder's score, in CROSS_ENCODER_ACTIVATIONS; '' for other models
    notes: tuple[str, ...] = ()  # lines for the user: parts that the directory lacks, and parts that are not read
    new: tuple[str, ...] = ()  # paths of randomly drawn parameters, which the checkpoint lacks
    unused: tuple[str, ...] = ()  # tensors of the checkpoint that no wanted head has


def load_model(
    directory: str | os.PathLike[str],
    wanted: tuple[Head, ...] | None = None,
    rng: jax.Array | None = None,
    projection: np.ndarray | None = None,
) -> Loaded:
    """Load the architecture and the parameters of a directory of transformers, for any family and head in families/.

    Args:
        directory: a directory with `config.json` and the weights (`model.safetensors`, its shards, or
            `pytorch_model.bin`); or a directory of a `peft` adapter, which is merged into its base model. float16 and
            bfloat16 are widened to float32, which is exact; float64 is rounded to float32.
        wanted: the heads to load. None: the heads of the class in `architectures`, except heads that the file lacks; if
            the file names no class, the heads of the largest class that the tensors fill.
        rng: random key for `init`, which draws the parts of `wanted` that the checkpoint lacks. A wanted head with
            another number of classes than the checkpoint's head counts as lacking.
        projection: kernel of the head `token_embedding` from another file, float32 `[hidden, outputs]`.

    Raises:
        UserError: a field or tensor (the message names it) is missing, contradictory or damaged, or has another shape
            than in the architecture; the encoder has an unknown tensor; a part is lacking and `rng` is None.
    """
    path, requested = pathlib.Path(directory), wanted
    wanted = None if wanted is None else heads_as_stored(wanted)
    if (path / PEFT_CONFIG).is_file():
        described, where, stored, _ = read_peft(path)
    else:
        described = read_model_config(path / "config.json")
        where, stored = read_weight_files(path)
    config, family = described.encoder, FAMILIES[described.encoder.family]
    originals, untied = tensor_names_in_family(stored, family, where)
    tensors = {name: stored[original] for name, original in originals.items()}
    absent: tuple[str, ...] = ()
    if wanted is not None and {head.name for head in wanted} <= {*OUTSIDE_CLASSES}:
        source = family.classes[-1]  # the last class is the bare encoder, whichever head the files have
    else:
        source, absent = _class_of_checkpoint(family, described.architecture, tensors, config.causal, str(path))
    labels = _checked_labels(described.labels, source, wanted)
    heads = _heads_of_class(source, labels.classes) if wanted is None else wanted
    if wanted is None and projection is not None:
        heads += (Head(PROJECTION, projection.shape[1]),)
    try:
        shapes = parameter_shapes(config, heads)
    except UserError as error:
        raise with_message(error, f"{path / 'config.json'}: {error}") from None

    loaded_heads = [head.name for head in heads if head.name in source.heads and head.classes in (0, labels.classes)]
    for copy, tied in untied.items() if {*loaded_heads} & {*OVER_VOCABULARY} else ():
        raise UserError(f"{where}: tensor '{copy}' differs from '{tied}'; heads of a shared table alone can be read")
    modules = source.modules if wanted is None else _modules_to_read(family, source, heads, loaded_heads, tensors)
    # Each use gets a new iterator instead of a list, because a malicious file may claim any number of layers.
    stored_tensors = functools.partial(iterate_stored_tensors, (*family.encoder, *modules), shapes)
    flat = from_tensors(tensors, stored_tensors(), shapes, config, where)
    if projection is not None and PROJECTION_KERNEL in shapes:
        if projection.shape != shapes[PROJECTION_KERNEL]:
            raise UserError(
                f"{path}: the projection of tokens is {[*projection.shape]}, not {[*shapes[PROJECTION_KERNEL]]}; set "
                f"config.task.vector_width={projection.shape[1]}"
            )
        flat[PROJECTION_KERNEL] = projection
    unknown_tensors = _unknown_tensors(family, shapes, originals, source, where)
    if "sequence_classification" in loaded_heads:
        _check_problem_type(labels, path)
    new, params = _missing_head_parameters(flat, shapes, where), unflatten_params(flat)
    if new:
        if rng is None:
            lacking = {*map(first_path_part, new)}
            raise UserError(
                f"{path} holds a {source.name} without {', '.join(sorted(lacking))}; "
                f"{missing_heads_advice(lacking, source.heads)}"
            )
        params = draw_missing(config, heads, params, rng)
    used = {tensor.name for tensor in stored_tensors()}
    for names in map(tensor_names, modules):
        for name in tensors.keys() & {*names} - used:
            if used & {*names}:
                raise UserError(
                    f"{where}: tensor '{originals[name]}' contradicts config.json, which has no such tensor"
                )
    is_labeled = bool({*loaded_heads} & {*LABELED})
    return Loaded(
        config=config,
        heads=heads if requested is None else requested,
        params=params,
        labels=labels.names if is_labeled else (),
        problem=labels.problem if labels.problem == MULTI_LABEL and "sequence_classification" in loaded_heads else "",
        activation=labels.activation if "sequence_classification" in loaded_heads else "",
        notes=(
            *_missing_and_unread_notes(str(path / "config.json"), where, described, absent, unknown_tensors),
            *(labels.notes if is_labeled else ()),
        ),
        new=new,
        unused=(
            *sorted(originals[name] for name in tensors.keys() - used),
            *((PROJECTION_KERNEL,) if projection is not None and PROJECTION_KERNEL not in shapes else ()),
        ),
    )


def export_model(
    params: Params,
    config: EncoderConfig,
    heads: tuple[Head, ...],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    labels: tuple[str, ...] = (),
    extra: Mapping[str, str | bytes] | None = None,
    activation: str = "",
    problem: str = "",
    spaces_words: bool = False,
) -> None:
    """Write a directory that `AutoModelFor...` and `AutoTokenizer` of transformers open.

    The directory appears only when it is complete.

    Args:
        params: a tree of `make_model(config, ..., heads)`, float32.
        config: architecture that the `config.json` of its family can express.
        heads: the heads of one class of transformers; `hidden_states` may be added, as it has no parameters.
        tokenizer_directory: source of the tokenizer files.
        output: a directory that does not exist or is empty.
        labels: class names of a classification head, in the order of the logits; () gives numbered names.
        extra: file name -> content of further files in the directory or in folders of the directory.
        activation: activation of a CrossEncoder's score, a row of CROSS_ENCODER_ACTIVATIONS; '' for other models.
        spaces_words: see `copy_tokenizer`.
        problem: problem_type of a head that classifies texts; "" lets the number of classes decide.

    Raises:
        UserError: transformers has no such model, a weight is not finite, the labels or the tokenizer do not fit the
            model, the directory is in use, or the disk is full.
    """
    target, source = pathlib.Path(output), pathlib.Path(tokenizer_directory)
    params, extra = dict(params), dict(extra or {})
    if projection := params.pop(PROJECTION, None):
        heads = tuple(head for head in heads if head.name != PROJECTION)
        extra |= projection_file(projection["kernel"])
    model_class, tokenizer = model_class_for_heads(config, heads), load_matching_tokenizer(source, config)
    check_token_ids(tokenizer, config, source)
    # Without these ids, transformers uses ids of the published vocabulary, which a smaller vocabulary may lack.
    special_ids = {name: tokenizer.special_ids[role] for name, role in FAMILIES[config.family].special_ids.items()}
    fields = {
        **model_config_fields(config, tokenizer.pad_id, str(target)),
        **special_ids,
        **_label_fields(heads, labels, problem),
        **cross_encoder_config_fields(activation),
        "architectures": [model_class.name],
    }
    tensors = to_tensors(params, config, heads)
    for name, x in tensors.items():
        if not np.isfinite(x).all():
            raise UserError(f"the tensor '{name}' has numbers that are not finite: the training diverged")
    with output_directory(target) as partial:
        (partial / "config.json").write_text(model_config_text(fields), encoding="utf-8")
        try:
            safetensors.numpy.save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
        except safetensors.SafetensorError as error:  # the library wraps an error of the operating system
            raise os_error_in_message(error) from error
        shutil.copymode(partial / "config.json", partial / "model.safetensors")  # the library makes its file private
        copy_tokenizer(source, partial, spaces_words)
        _adapt_tokenizer_config(partial / "tokenizer_config.json", tokenizer, config)
        for name, content in extra.items():
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            with (partial / name).open("xb") as file:  # "x": never overwrite a file of the model
                file.write(content.encode() if isinstance(content, str) else content)


def _missing_and_unread_notes(
    config_path: str, where: str, described: ModelConfig, absent: tuple[str, ...], unknown_tensors: list[str]
) -> Iterator[str]:
    """Yield lines on the parts that a directory lacks, and on the parts that are not read."""
    if absent:
        yield (
            f"{where} has no {' and no '.join(absent)}, which the {described.architecture} of config.json needs: "
            "the rest is read"
        )
    if described.unknown:
        yield f"{config_path}: not read: {_first_names_text(described.unknown)}"
    if unknown_tensors:
        yield f"{where}: not read, of no known head: {_first_names_text([repr(name) for name in unknown_tensors])}"


def _first_names_text(names: Sequence[str]) -> str:
    """Return the first names of a list as text, with the number of further names."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _checked_labels(labels: Labels | UserError, source: ModelClass, wanted: tuple[Head, ...] | None) -> Labels:
    """Return the labels; if `labels` is an error, raise it only if a classification head in the file is wanted."""
    if not isinstance(labels, UserError):
        return labels
    if {*source.heads} & {*LABELED} & ({*LABELED} if wanted is None else {head.name for head in wanted}):
        raise labels
    return Labels()


class _ClassAndAbsentHeads(NamedTuple):
    """The model class of a checkpoint, and the heads that `architectures` promises but that have no tensor."""

    model_class: ModelClass
    absent_heads: tuple[str, ...]


def _class_of_checkpoint(
    family: Family, architecture: str, tensors: Mapping[str, np.ndarray], causal: bool, where: str
) -> _ClassAndAbsentHeads:
    """Return the model class of a checkpoint, and the heads of the class in `architectures` that have no tensor.

    The model class is the class in `architectures`, reduced by the heads without a tensor. If the file names no class,
    the model class is the largest class that the tensors fill.
    """
    complete = [model for model in family.classes if _tensors_fill_modules(model, tensors)]
    if architecture:
        named = [model for model in family.classes if model.name == architecture]
        if not named:
            known = dict.fromkeys(model.name for model in family.classes)
            raise UserError(
                f"{where}/config.json: architectures is '{architecture}'{did_you_mean(architecture, known)}; "
                f"these can be read: {', '.join(known)}"
            )
        if full := [model for model in named if model in complete]:
            return _ClassAndAbsentHeads(full[0], ())
        modules = {m for model in named for m in model.modules if any(name in tensors for name in tensor_names(m))}
        parts = {first_path_part(module.path) for module in modules}
        # The top level of a head's parameter paths is the head's name; for the head "pooled", the top level is
        # "pooler".
        present = {head for head in named[-1].heads if ("pooler" if head == "pooled" else head) in parts}
        absent = tuple(head for head in named[-1].heads if head not in present)
        reduced = [model for model in complete if {*model.heads} == present or (not present and model.is_bare)]
        # An incomplete head means damage: reading the named class then reports the missing tensor.
        return _ClassAndAbsentHeads(reduced[0], absent) if absent and reduced else _ClassAndAbsentHeads(named[-1], ())
    excluded = "masked_token" if causal else "next_token"  # the two heads have the same tensors
    complete = [model for model in complete if excluded not in model.heads]
    num_modules = max(len(model.modules) for model in complete)
    largest = [model for model in complete if len(model.modules) == num_modules]
    if len(largest) > 1:
        fitting = " and ".join(dict.fromkeys(model.name for model in largest))
        raise UserError(
            f"{where}/config.json names no architectures, and the tensors fit {fitting}; "
            f'add "architectures": ["{largest[0].name}"], or the other'
        )
    return _ClassAndAbsentHeads(largest[0], ())


def _tensors_fill_modules(model: ModelClass, tensors: Mapping[str, np.ndarray]) -> bool:
    """Return whether the tensors fill the modules of a class; a head of multiple choice must have one output."""
    weights = {module.path: tensors.get(tensor_names(module)[0]) for module in model.modules}
    if any(x is None for x in weights.values()):
        return False
    choice = weights.get("multiple_choice")
    return model.heads != ("multiple_choice",) or (choice is not None and choice.shape[:1] == (1,))


def _heads_of_class(source: ModelClass, classes: int) -> tuple[Head, ...]:
    return tuple(Head(name, classes if name in LABELED else 0) for name in source.heads)


def _modules_to_read(
    family: Family,
    source: ModelClass,
    heads: tuple[Head, ...],
    loaded_heads: list[str],
    tensors: Mapping[str, np.ndarray],
) -> list[NamedModule]:
    """Return the modules to read for the wanted heads.

    Modules of the checkpoint's class come first, then modules of other classes whose heads are all wanted. Two classes
    may give different meanings to a module name, such as `classifier`. So a module of another class is read only if the
    checkpoint's class has no module of this name, or if all modules of its part of the model are in `Family.shared`.
    """
    wanted, dropped = {head.name for head in heads}, set(source.heads) - set(loaded_heads)
    candidates = [module for module in source.modules if first_path_part(module.path) not in dropped]
    claimed = {module.name for module in source.modules}
    for model in family.classes:
        if set(model.heads) <= wanted:
            partly_shared = {
                first_path_part(module.path) for module in model.modules if module.name not in family.shared
            }
            candidates += [
                module
                for module in model.modules
                if module.name not in claimed
                or (module.name in family.shared and first_path_part(module.path) not in partly_shared)
            ]
    modules: dict[str, NamedModule] = {}
    for module in candidates:
        if any(name in tensors for name in tensor_names(module)):
            modules.setdefault(module.path, module)
    return list(modules.values())


def _unknown_tensors(
    family: Family, shapes: Shapes, originals: Mapping[str, str], source: ModelClass, where: str
) -> list[str]:
    """Return the tensors that no class of the family has, by their names in the file.

    Raises `UserError` if such a tensor is inside the encoder.
    """
    known = {tensor.name for tensor in iterate_stored_tensors(family.encoder, shapes) if tensor.name is not None}
    known |= {name for model in family.classes for module in model.modules for name in tensor_names(module)}
    unknown = [name for name in originals if name not in known and not any(part in name for part in family.ignored)]
    for name in unknown:
        if name.startswith(f"{family.prefix}."):
            raise UserError(f"{where}: tensor '{originals[name]}' is not of a {source.name}{did_you_mean(name, known)}")
    return [originals[name] for name in unknown]


def _check_problem_type(labels: Labels, path: pathlib.Path) -> None:
    """Raise UserError for a regression head with several outputs."""
    if labels.problem == "regression" and labels.classes > 1:
        raise UserError(
            f"{path}/config.json: problem_type is 'regression' with {labels.classes} labels; one value can be read"
        )


def _missing_head_parameters(flat: Flat, shapes: Shapes, where: str) -> tuple[str, ...]:
    """Return the parameter paths of heads that the checkpoint lacks; raise UserError for an incomplete head."""
    new = tuple(path for path in shapes if path not in flat)
    loaded = {first_path_part(path) for path in flat}
    for path in new:
        if first_path_part(path) in loaded:
            raise UserError(f"{where} has only a part of '{first_path_part(path)}': '{path}' is missing")
    return new


def _label_fields(heads: tuple[Head, ...], labels: tuple[str, ...], problem: str) -> dict[str, Any]:
    """Return the fields of `config.json` about the classes; {} if no head has classes."""
    classes = next((head.classes for head in heads if head.name in LABELED), 0)
    if labels and len(labels) != classes:
        raise UserError(f"{len(labels)} labels ({', '.join(labels[:5])} ...), but the model has {classes} classes")
    if len(set(labels)) < len(labels):
        raise UserError(f"two labels have the same name: {', '.join(labels)}")
    fields = label_fields(labels, classes) if classes else {}
    if any(head.name == "sequence_classification" for head in heads):
        fields["problem_type"] = problem or ("regression" if classes == 1 else "single_label_classification")
    return fields


def _adapt_tokenizer_config(path: pathlib.Path, tokenizer: Tokenizer, config: EncoderConfig) -> None:
    """Set the maximum length, the special tokens and the inputs of this model in a `tokenizer_config.json`.

    `AutoTokenizer` with truncation=True then truncates at the model's number of positions. Special tokens are named,
    because some tokenizer classes have no default names for special tokens.
    """
    values = json.loads(path.read_text(encoding="utf-8")) | {"model_max_length": config.max_positions}
    for role, token in tokenizer.special._asdict().items():
        values.setdefault(f"{role}_token", token)
    if config.num_token_types < 2:
        values["model_input_names"] = ["input_ids", "attention_mask"]
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def load_matching_tokenizer(directory: pathlib.Path, config: EncoderConfig) -> Tokenizer:
    """Return the tokenizer of a directory; raise UserError if there is none or if it belongs to another model.

    The models of transformers whose positions follow the padding give no position to the padding id of `config.json`.
    If the tokenizer gives this id to another token, the position of each later token depends on the text.
    """
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} tokens, the model {config.vocab_size}; "
            "the tokenizer belongs to another model"
        )
    if FAMILIES[config.family].follow_padding and tokenizer.pad_id + 1 != config.position_offset:
        raise UserError(
            f"{directory}: the tokenizer's padding has the id {tokenizer.pad_id}, and the positions of a "
            f"{config.family} start at {tokenizer.pad_id + 1}; in this model they start at {config.position_offset}"
        )
    return tokenizer


def check_token_ids(tokenizer: Tokenizer, config: EncoderConfig, directory: pathlib.Path) -> None:
    """Raise UserError if an architecture names the id of a special token, and the tokenizer gives it another id."""
    ids = tokenizer.special_ids
    for name, role in FAMILIES[config.family].token_ids.items():
        if getattr(config, name) != ids[role]:
            raise UserError(
                f"{directory}: {tokenizer.tokens[ids[role]]} has the id {ids[role]}, and this model {name}="
                f"{getattr(config, name)}; the tokenizer belongs to another model"
            )
