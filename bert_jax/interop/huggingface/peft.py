"""Adapters in the format of `peft` 0.21: `adapter_config.json` and `adapter_model.safetensors`.

A directory of `peft` is read as the model that `merge_and_unload` returns. Each adapted weight in the result is the
base model's weight plus the LoRA update (scale * B @ A). Modules in `modules_to_save` come from the adapter's files,
not from the base model.
"""

import dataclasses
import json
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from bert_jax import strict_json
from bert_jax.config import AdapterConfig, EncoderConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.interop.families import FAMILIES, VOCABULARY, Family, ModelClass, NamedModule
from bert_jax.interop.huggingface.model_config import Labels, ModelConfig, read_model_config
from bert_jax.interop.huggingface.weight_files import Tensors, read_safetensors_as_float32, read_weight_files
from bert_jax.interop.tensors import (
    PROJECTION,
    first_path_part,
    flatten_params,
    iterate_stored_tensors,
    model_class_for_heads,
    parameter_shapes,
    tensor_names,
    tensor_names_in_family,
)
from bert_jax.interop.token_modules import projection_file
from bert_jax.models import Adapter, Head, Params, Target
from bert_jax.readers.hub import hub_name_of_snapshot, local_or_downloaded_model, parse_hub_name

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FOLDER = "adapter"  # folder in a fine-tuned model's directory: the adapter that was merged into the model
PREFIX = "base_model.model."  # prefix of every tensor name
ALL_LINEAR = "all-linear"
QUERIES_AND_VALUES = ("attention/query", "attention/value")  # paths in a layer; a fused QKV tensor counts as one target
LOW_RANK = re.compile(r"(.+)\.lora_([AB])\.weight")
SAVED_COPY = re.compile(r"\.modules_to_save\.(default\.)?")
LAYER_INDEX = re.compile(r"(?<=\.)\d+(?=\.)")
MODULE_NAME = re.compile(r"[\w.]+")  # keys of alpha_pattern are regular expressions; only plain names are read
# Head -> task_type. `peft` knows no type for the other heads.
TASK_TYPES = {
    "sequence_classification": "SEQ_CLS",
    "token_classification": "TOKEN_CLS",
    "question_answering": "QUESTION_ANS",
    "sentence_embedding": "FEATURE_EXTRACTION",
}
# Fields of adapter_config.json that are not read. The tensors themselves show ranks, targets and saved modules.
_SILENT = (
    "auto_mapping base_model_name_or_path ensure_weight_tying eva_config exclude_modules fan_in_fan_out inference_mode "
    "layers_pattern layers_to_transform lora_dropout megatron_core modules_to_save peft_version qalora_group_size r "
    "rank_pattern revision target_modules"
)
WITHOUT_EFFECT = frozenset(_SILENT.split())
# Fields that are read -> the allowed values (None: any value). With any other value, the merged weights would not be
# base + scale * B @ A.
READ: dict[str, tuple[Any, ...] | None] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),  # other values change the base model
    "task_type": None,
    "lora_alpha": None,
    "alpha_pattern": None,
    "use_rslora": (True, False, None),
}


class PeftTensors(NamedTuple):
    """The tensors of an adapter; the keys are names of transformers."""

    low_rank: dict[str, dict[str, np.ndarray]]  # module -> "A": [rank, inputs], "B": [outputs, rank]
    saved: Tensors  # tensors of the modules in modules_to_save


def find_adapter_targets(config: EncoderConfig, names: Sequence[str] | None) -> tuple[Target, ...]:
    """Return the linear maps of an encoder that `names` selects, in the order of the family's table.

    The names are the entries of `AdapterConfig.targets`; None selects the queries and values. Raises UserError for a
    name that matches no linear map.
    """
    paths = {path.removesuffix("/kernel") for path in parameter_shapes(config, ()) if path.endswith("/kernel")}
    by_name: dict[str, list[NamedModule]] = {}
    for module in FAMILIES[config.family].encoder:
        if module.kind == "linear" and module.path in paths and module.path.startswith("encoder/"):
            by_name.setdefault(module.name, []).append(module)
    short_names = {short: name for name in by_name for short in _dotted_suffixes(name)}
    for name in names or ():
        if name != ALL_LINEAR and name not in short_names:
            known = sorted({name.rpartition("{layer}.")[2] for name in by_name})
            raise UserError(
                f"config.adapter.targets: no linear map of this {config.family} encoder is called '{name}'"
                f"{did_you_mean(name, short_names)}; it has {', '.join(known)}"
            )

    def is_target(name: str, modules: list[NamedModule]) -> bool:
        if names is None:
            return any(module.path.endswith(QUERIES_AND_VALUES) for module in modules)
        return ALL_LINEAR in names or bool({*names} & {*_dotted_suffixes(name)})

    return tuple(
        Target(name, _lora_path(modules), tuple(module.path for module in sorted(modules, key=_index_of_fused_part)))
        for name, modules in by_name.items()
        if is_target(name, modules)
    )


def make_adapter(config: EncoderConfig, settings: AdapterConfig) -> Adapter | None:
    """Return the adapter that the settings describe for an encoder; None if the rank in the settings is None."""
    if settings.rank is None:
        return None
    names = None if settings.targets is None else [name.strip() for name in settings.targets.split(",")]
    return Adapter(find_adapter_targets(config, names), settings.rank, settings.alpha, settings.dropout)


def _dotted_suffixes(name: str) -> list[str]:
    """Return all suffixes of a module's name inside its layer: `self.query` gives `self.query` and `query`."""
    parts = name.rpartition("{layer}.")[2].split(".")
    return [".".join(parts[first:]) for first in range(len(parts))]


def _index_of_fused_part(module: NamedModule) -> int:
    return module.part[0]


def _lora_path(modules: list[NamedModule]) -> str:
    """Return the path of a target's LoRA matrices: the path of its only kernel, or a new path beside its kernels."""
    if len(modules) == 1:
        return modules[0].path
    return f"{modules[0].path.rpartition('/')[0]}/{modules[0].name.rpartition('.')[2]}"


def peft_files(
    adapter: Adapter, params: Params, config: EncoderConfig, heads: tuple[Head, ...], base: pathlib.Path
) -> dict[str, str | bytes]:
    """Return file name -> content of a directory of `peft`, with the projection of tokens in late interaction.

    Args:
        adapter: the targets and settings.
        params: tree of numpy arrays with the adapter's matrices and the heads.
        config: the architecture.
        heads: the heads of the model.
        base: directory of the base model. A model in the cache of the Hub is named by its name on the Hub.
    """
    name_on_hub = hub_name_of_snapshot(base)
    family, model_class = FAMILIES[config.family], model_class_for_heads(config, heads)
    flat, shapes = flatten_params(params), parameter_shapes(config, heads)
    tensors: Tensors = {}
    for target in adapter.targets:
        a, b = (flat[f"adapter/{target.path}/{name}"] for name in ("a", "b"))
        layers = range(len(a)) if "{layer}" in target.name else (None,)
        names = family.peft_names.get(target.name, (target.name,))
        for layer in layers:
            inner = slice(None) if layer is None else layer
            rows = np.split(b[inner].reshape(adapter.rank, -1).T, len(names))
            for name, part in zip((name.format(layer=layer) for name in names), rows, strict=True):
                tensors[f"{name}.lora_A.weight"] = a[inner].T
                tensors[f"{name}.lora_B.weight"] = part
    for stored in iterate_stored_tensors(model_class.modules, shapes):
        if stored.name is not None and not stored.path.startswith("encoder/"):
            x = flat[stored.path]
            tensors[stored.name] = x.T if stored.path.endswith("/kernel") else x
    prefix = f"{family.prefix}." if model_class.is_bare else ""
    tensors = {PREFIX + name.removeprefix(prefix): np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}
    saved = dict.fromkeys(_top_module_below_prefix(module.name, family) for module in model_class.modules)
    task_type = TASK_TYPES.get(heads[0].name)
    fields = {
        "auto_mapping": None if task_type else {"base_model_class": model_class.name, "parent_library": "transformers"},
        "base_model_name_or_path": name_on_hub.repository if name_on_hub else str(base.absolute()),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "lora_alpha": int(adapter.alpha) if adapter.alpha.is_integer() else adapter.alpha,
        "lora_dropout": adapter.dropout,
        "modules_to_save": [*saved] or None,
        "peft_type": "LORA",
        "r": adapter.rank,
        "revision": name_on_hub.revision if name_on_hub else None,
        "target_modules": _shortest_target_suffixes(adapter.targets, config.num_layers, family),
        "task_type": task_type,
    }
    return {
        CONFIG: json.dumps(fields, indent=2) + "\n",
        WEIGHTS: safetensors.numpy.save(tensors, metadata={"format": "pt"}),
        **(projection_file(params[PROJECTION]["kernel"]) if PROJECTION in params else {}),
    }


def _top_module_below_prefix(module_name: str, family: Family) -> str:
    """Return the first part of a module's name after the family's prefix: `pooler` for `bert.pooler.dense`."""
    return first_path_part(module_name.removeprefix(f"{family.prefix}."), ".")


def _shortest_target_suffixes(targets: Sequence[Target], num_layers: int, family: Family) -> list[str]:
    """Return the shortest suffix of each target's name in `peft` that matches no other linear map of the encoder.

    A target without such a suffix is listed once per layer, with the index of the layer.
    """
    stored = dict.fromkeys(module.name for module in family.encoder if module.kind == "linear")
    linear = [name for stored_name in stored for name in family.peft_names.get(stored_name, (stored_name,))]
    chosen = [name for target in targets for name in family.peft_names.get(target.name, (target.name,))]
    others = [name for name in linear if name not in chosen]
    names = dict[str, None]()
    for target_name in chosen:
        ends = reversed(_dotted_suffixes(target_name))
        short = next(
            (end for end in ends if not any(f".{untargeted}".endswith(f".{end}") for untargeted in others)), None
        )
        if short is not None:
            names[short] = None
        else:
            inside = target_name.rpartition("{layer}.")[2]
            names |= dict.fromkeys(f"{layer}.{inside}" for layer in range(num_layers))
    return [*names]


class PeftDirectory(NamedTuple):
    """The merged model of a directory of `peft`."""

    described: ModelConfig
    where: str  # path of the weights, for error messages
    tensors: Tensors  # the keys are the tensor names in families/
    base: pathlib.Path  # directory of the base model


def read_peft(directory: pathlib.Path) -> PeftDirectory:
    """Return the merged model of a directory of `peft`; `base_model_name_or_path` names its base model.

    Raises:
        UserError: the adapter is not plain LoRA, belongs to another architecture, or lacks a part of its head.
    """
    fields = strict_json.read_object(directory / CONFIG)
    _check_adapter_fields(fields, directory / CONFIG)
    base = base_model_directory(directory, fields)
    described, (_, stored) = read_model_config(base / "config.json"), read_weight_files(base)
    family, where = FAMILIES[described.encoder.family], str(directory / WEIGHTS)
    originals, _ = tensor_names_in_family(stored, family, str(base))
    merged = {name: stored[original] for name, original in originals.items()}
    adapter = _read_adapter_tensors(directory / WEIGHTS)

    for module, matrices in adapter.low_rank.items():
        name, (part, num_parts) = _tensor_in_base(f"{module}.weight", family, merged)
        if matrices.keys() != {"A", "B"}:
            raise UserError(f"{where}: '{module}' has one of its two matrices; the file is damaged")
        (rank, inputs), (outputs, columns) = (matrices[x].shape for x in ("A", "B"))
        if name not in merged or merged[name].shape != (num_parts * outputs, inputs) or rank != columns:
            reason = f"is {[*merged[name].shape]} there" if name in merged else "does not exist there"
            raise UserError(
                f"{where}: the adapter of '{module}', {[outputs, inputs]}, belongs to another architecture than the "
                f"model in {base}: the tensor {reason}; correct base_model_name_or_path in {CONFIG}"
            )
        product = np.matmul(matrices["B"], matrices["A"]) * np.float32(_lora_scaling(fields, module, rank))
        merged[name] = np.concatenate(
            [x + product if i == part else x for i, x in enumerate(np.split(merged[name], num_parts))]
        )
    saved = {_tensor_in_base(name, family, merged).name: x for name, x in adapter.saved.items()}
    merged |= saved
    model_class = _class_of_adapter(fields, family, saved, described, directory / CONFIG)
    _check_saved_modules(saved, merged, model_class, family, where, base)
    classes = _count_head_outputs(model_class, merged)
    of_base = described.labels if isinstance(described.labels, Labels) else Labels()
    names = of_base.names if len(of_base.names) == classes else ()
    encoder = described.encoder
    if (table := next(module.name for module in family.encoder if module.kind == VOCABULARY)) in saved:
        encoder = dataclasses.replace(encoder, vocab_size=len(saved[table]))  # the training added tokens to the table
    described = described._replace(
        encoder=encoder,
        architecture=model_class.name,
        labels=of_base._replace(names=names, classes=classes or of_base.classes),
    )
    return PeftDirectory(described, where, merged, base)


class _TensorInBase(NamedTuple):
    """A tensor of the base model, and the index and number of equal parts for a module that is a part of the tensor."""

    name: str  # name of the tensor in families/
    part: tuple[int, int] = (0, 1)


def _tensor_in_base(name: str, family: Family, tensors: Tensors) -> _TensorInBase:
    """Return the entry of `tensors` for a tensor of `peft`; a tensor that the base model lacks keeps its name.

    Names of a bare encoder lack the family's prefix in `peft`, and have the prefix in `tensors`.
    """
    modules = {
        module: (stored, (part, len(names)))
        for stored, names in family.peft_names.items()
        for part, module in enumerate(names)
    }
    for full_name in (name, f"{family.prefix}.{name}"):
        module, _, leaf = full_name.rpartition(".")
        layer = LAYER_INDEX.search(module)
        module = LAYER_INDEX.sub("{layer}", module, count=1)
        stored, part = modules.get(module, (module, (0, 1)))
        in_base = f"{stored}.{leaf}".replace("{layer}", layer[0] if layer else "{layer}")
        if in_base in tensors:
            return _TensorInBase(in_base, part)
    return _TensorInBase(name)


def base_model_directory(directory: pathlib.Path, fields: Mapping[str, Any] | None = None) -> pathlib.Path:
    """Return the base model's directory for a directory of `peft`; `fields` is the content of adapter_config.json."""
    fields = strict_json.read_object(directory / CONFIG) if fields is None else fields
    name, revision = fields.get("base_model_name_or_path"), fields.get("revision")
    if not isinstance(name, str) or not name:
        raise UserError(f"{directory / CONFIG} names no base model; set base_model_name_or_path to its directory")
    is_on_hub = parse_hub_name(name) is not None
    base = local_or_downloaded_model(f"{name}@{revision}" if is_on_hub and isinstance(revision, str) else name)
    if not (base / "config.json").is_file():
        raise UserError(
            f"{directory / CONFIG}: its base model {name} has no config.json here; set base_model_name_or_path to the "
            "directory of the base model"
        )
    return base


def _check_adapter_fields(fields: Mapping[str, Any], where: pathlib.Path) -> None:
    """Raise UserError for an adapter whose merged weights are not base + scale * B @ A."""
    for name, value in fields.items():
        allowed = READ.get(name)
        if allowed is not None and value not in allowed:
            raise UserError(f"{where}: {name} is {value!r}; {' or '.join(map(repr, allowed))} can be read")
        if name not in WITHOUT_EFFECT and name not in READ and value:
            raise UserError(f"{where}: {name} is {value!r}; only LoRA without this field can be read")


def _lora_scaling(fields: Mapping[str, Any], module: str, rank: int) -> float:
    """Return the LoRA scaling factor of a module.

    The value of the first key in `alpha_pattern` that is a suffix of the module's name replaces `lora_alpha`.
    """
    alpha, patterns = fields.get("lora_alpha", 8), fields.get("alpha_pattern") or {}
    if not isinstance(patterns, dict):
        raise UserError(f"{CONFIG}: alpha_pattern is {patterns!r}, not an object with a number for each module")
    for pattern, value in patterns.items():
        if not MODULE_NAME.fullmatch(pattern):
            raise UserError(f"alpha_pattern has {pattern!r}, a regular expression; only plain names can be read")
        if f".{module}".endswith(f".{pattern}"):
            alpha = value
            break
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise UserError(f"{CONFIG}: lora_alpha is {alpha!r}, not a number")
    return alpha / (math.sqrt(rank) if fields.get("use_rslora") else rank)


def _read_adapter_tensors(path: pathlib.Path) -> PeftTensors:
    """Return the tensors of an adapter_model.safetensors.

    Raises UserError for a tensor that is neither a LoRA matrix of a linear map nor part of a saved module.
    """
    low_rank: dict[str, dict[str, np.ndarray]] = {}
    saved: Tensors = {}
    for name, x in read_safetensors_as_float32(path).items():
        inside = name.removeprefix(PREFIX)
        if inside == name:
            raise UserError(f"{path}: tensor '{name}' does not begin with {PREFIX}; save the adapter with `peft`")
        if match := LOW_RANK.fullmatch(inside):
            if x.ndim != 2:
                raise UserError(f"{path}: tensor '{name}' has {x.ndim} axes; only linear maps can be read")
            low_rank.setdefault(match[1], {})[match[2]] = x
        elif "lora_" in inside:
            raise UserError(f"{path}: tensor '{name}' is of an adapter that is not beside a linear map")
        elif ".original_module." not in inside:  # the weights before the training, which `peft` may add for tokens
            saved[SAVED_COPY.sub(".", inside)] = x
    if not low_rank:
        raise UserError(f"{path} has no matrices of LoRA")
    return PeftTensors(low_rank, saved)


def _class_of_adapter(
    fields: Mapping[str, Any], family: Family, saved: Tensors, described: ModelConfig, where: pathlib.Path
) -> ModelClass:
    """Return the adapted model's class in transformers, by task_type, auto_mapping, or the base model's class."""
    heads = {task_type: head for head, task_type in TASK_TYPES.items()}
    auto, wanted = fields.get("auto_mapping"), heads.get(str(fields.get("task_type")))
    name = auto.get("base_model_class") if isinstance(auto, dict) else described.architecture
    if wanted in (None, "sentence_embedding"):
        named = [model for model in family.classes if model.name == name]
        if wanted:
            named = [model for model in family.classes if model.is_bare]
    else:
        named = [model for model in family.classes if model.heads == (wanted,)]
    of_heads = {name for name in saved if not name.startswith(f"{family.prefix}.")}
    complete = [model for model in named if {n for m in model.modules for n in tensor_names(m)} >= of_heads]
    if not complete:
        kind = fields.get("task_type") or name
        raise UserError(
            f"{where}: bert_jax reads no {kind} of a {described.encoder.family} with the saved tensors "
            f"{', '.join(sorted(saved)[:4]) or 'none'}; correct task_type"
        )
    return complete[0]


def _check_saved_modules(
    saved: Tensors, merged: Tensors, model_class: ModelClass, family: Family, where: str, base: pathlib.Path
) -> None:
    """Raise UserError if neither the adapter nor its base model has a module of the head: the module was not saved."""
    for module in model_class.modules:
        names = {tensor_names(module)[0], tensor_names(module)[0].removeprefix(f"{family.prefix}.")}
        if not names & (merged.keys() | saved.keys()) and not model_class.is_bare:
            raise UserError(
                f"{where}: the trained {module.name} was not saved, and {base} has none; save the adapter again with "
                f"modules_to_save=['{_top_module_below_prefix(module.name, family)}', ...]"
            )


def _count_head_outputs(model_class: ModelClass, merged: Tensors) -> int:
    """Return the number of outputs of the head's last linear map; 0 for a model without a head."""
    linear = [module for module in model_class.modules if module.kind == "linear"]
    return len(merged[tensor_names(linear[-1])[0]]) if linear and not model_class.is_bare else 0
