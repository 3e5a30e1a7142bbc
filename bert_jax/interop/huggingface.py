"""Model directories of Hugging Face `transformers`, in and out: `config.json`, `model.safetensors`, tokenizer files.

Needs neither torch nor transformers. One table, `TENSORS`, says which parameter is which tensor, both ways.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy
import tokenizers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.models import Params, pretraining_model

TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "tokenizer_config.json")


class Module(NamedTuple):
    """A parameter or a group of them; `{layer}` in `name` stands for the index on the stacked `layers` axis."""

    path: str  # in our tree
    name: str  # in theirs
    kind: str  # a key of LEAVES
    vocabulary: bool = False  # the first axis is the vocabulary, padded in ours


LEAVES = {
    "linear": {"kernel": "weight", "bias": "bias"},
    "norm": {"scale": "weight", "bias": "bias"},
    "array": {"": ""},
}

LAYER = "bert.encoder.layer.{layer}"
MODULES = (
    Module("encoder/embeddings/token", "bert.embeddings.word_embeddings.weight", "array", vocabulary=True),
    Module("encoder/embeddings/position", "bert.embeddings.position_embeddings.weight", "array"),
    Module("encoder/embeddings/token_type", "bert.embeddings.token_type_embeddings.weight", "array"),
    Module("encoder/embeddings/norm", "bert.embeddings.LayerNorm", "norm"),
    Module("encoder/layers/attention/query", f"{LAYER}.attention.self.query", "linear"),
    Module("encoder/layers/attention/key", f"{LAYER}.attention.self.key", "linear"),
    Module("encoder/layers/attention/value", f"{LAYER}.attention.self.value", "linear"),
    Module("encoder/layers/attention/output", f"{LAYER}.attention.output.dense", "linear"),
    Module("encoder/layers/attention_norm", f"{LAYER}.attention.output.LayerNorm", "norm"),
    Module("encoder/layers/mlp_up", f"{LAYER}.intermediate.dense", "linear"),
    Module("encoder/layers/mlp_down", f"{LAYER}.output.dense", "linear"),
    Module("encoder/layers/mlp_norm", f"{LAYER}.output.LayerNorm", "norm"),
    Module("pooler", "bert.pooler.dense", "linear"),
    Module("masked_token/dense", "cls.predictions.transform.dense", "linear"),
    Module("masked_token/norm", "cls.predictions.transform.LayerNorm", "norm"),
    Module("masked_token/bias", "cls.predictions.bias", "array", vocabulary=True),
    Module("next_sentence", "cls.seq_relationship", "linear"),
)

# Copies of the tied tensors that some checkpoints carry; accepted where they are equal.
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "mlp_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_token_types",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
}
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}

# Fields whose other values would mean another architecture.
FIXED: dict[str, Any] = {
    "model_type": "bert",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
    "chunk_size_feed_forward": 0,
    "pruned_heads": {},
}
# Fields that say nothing of the pretraining model's arithmetic.
INDIFFERENT = frozenset(
    {
        "architectures",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "id2label",
        "label2id",
        "classifier_dropout",
        "gradient_checkpointing",
        "_name_or_path",
        "output_attentions",
        "output_hidden_states",
        "return_dict",
        "problem_type",
    }
)


def export(
    params: Params, config: EncoderConfig, tokenizer_directory: str | os.PathLike[str], output: str | os.PathLike[str]
) -> None:
    """Writes a directory that `BertForPreTraining.from_pretrained` and `AutoTokenizer.from_pretrained` open.

    `params` is a tree of `pretraining_model(config, ...)`, float32. `output` appears whole or not at all. Raises
    `UserError` where it is not empty or cannot be written, and where the tokenizer does not belong to the model.
    """
    target, source = pathlib.Path(output).absolute(), pathlib.Path(tokenizer_directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not an empty directory; name another, or remove it")
    padding_id = _check_tokenizer(source, config)
    description = {
        "architectures": ["BertForPreTraining"],
        **{name: value for name, value in FIXED.items() if name in ("model_type", "tie_word_embeddings")},
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.items()},
        "hidden_act": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation),
        "pad_token_id": padding_id,
        "dtype": "float32",
    }
    partial = target.with_name(f"{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / "config.json").write_text(json.dumps(description, indent=2, sort_keys=True) + "\n")
        safetensors.numpy.save_file(
            to_tensors(params, config), partial / "model.safetensors", metadata={"format": "pt"}
        )
        for name in TOKENIZER_FILES:
            if (source / name).exists():
                shutil.copyfile(source / name, partial / name)
        _set_model_max_length(partial / "tokenizer_config.json", config.max_positions)
        partial.rename(target)
    except (OSError, safetensors.SafetensorError) as error:  # the latter wraps what the system said
        shutil.rmtree(partial, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{target}: cannot be written ({reason}); make room, or choose another --output") from error


def _set_model_max_length(path: pathlib.Path, length: int) -> None:
    """So that `AutoTokenizer(truncation=True)` cuts where this model's positions end."""
    if path.exists():
        values = json.loads(path.read_text(encoding="utf-8")) | {"model_max_length": length}
        path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def load(directory: str | os.PathLike[str]) -> tuple[EncoderConfig, Params]:
    """The architecture and the float32 parameters (numpy) of a `BertForPreTraining` directory.

    Raises `UserError` that names the field or tensor which is unknown, missing, or not what the architecture needs.
    """
    place = pathlib.Path(directory)
    config = _read_config(place / "config.json")
    path = place / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{path} does not exist; save the model with `save_pretrained` of transformers, in one file")
    try:
        tensors = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError, TypeError, KeyError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return config, from_tensors(tensors, config, str(path))


def to_tensors(params: Params, config: EncoderConfig) -> dict[str, np.ndarray]:
    """Hugging Face names -> contiguous float32 arrays in their layout, the vocabulary unpadded."""
    flat, shapes = _flatten(params), _shapes(config)
    if {path: np.shape(x) for path, x in flat.items()} != shapes:
        raise UserError("the parameters are not those of this model configuration: names or shapes differ")
    tensors = {}
    for name, layer, path, module in _rows(config):
        x = np.asarray(flat[path], np.float32)
        x = x if layer is None else x[layer]
        if module.vocabulary:
            x = x[: config.vocab_size]
        if path.endswith("/kernel"):
            x = x.T
        tensors[name] = np.ascontiguousarray(x)
    return tensors


def from_tensors(tensors: dict[str, np.ndarray], config: EncoderConfig, where: str) -> Params:
    """The inverse of `to_tensors`; raises `UserError` on missing or unexpected names, shapes and dtypes."""
    tensors = _without_legacy_names(tensors)
    shapes = _shapes(config)
    flat = {path: np.zeros(shape, np.float32) for path, shape in shapes.items()}
    for name, layer, path, module in _rows(config):
        if name not in tensors:
            raise UserError(f"{where}: tensor '{name}' is missing{did_you_mean(name, tensors)}")
        x, place = tensors[name], flat[path] if layer is None else flat[path][layer]
        if module.vocabulary:
            place = place[: config.vocab_size]
        shape = place.shape[::-1] if path.endswith("/kernel") else place.shape
        if x.dtype != np.float32 or x.shape != shape:
            raise UserError(f"{where}: tensor '{name}' is {x.dtype} {list(x.shape)}, not float32 {list(shape)}")
        place[...] = x.T if path.endswith("/kernel") else x
    known = {name for name, *_ in _rows(config)}
    for name, x in tensors.items():
        if name in TIED and np.array_equal(x, tensors[TIED[name]]):
            continue
        if name in TIED:
            raise UserError(f"{where}: tensor '{name}' differs from '{TIED[name]}', to which this model ties it")
        if name not in known:
            raise UserError(f"{where}: tensor '{name}' is not of BertForPreTraining{did_you_mean(name, known)}")
    return _unflatten(flat)


def _rows(config: EncoderConfig) -> list[tuple[str, int | None, str, Module]]:
    """(tensor name, layer or None, parameter path, module) for every tensor of the model."""
    return [
        (".".join(filter(None, (module.name, theirs))).format(layer=layer), layer, path, module)
        for module in MODULES
        for ours, theirs in LEAVES[module.kind].items()
        for path in ["/".join(filter(None, (module.path, ours)))]
        for layer in (range(config.num_layers) if "{layer}" in module.name else (None,))
    ]


def _without_legacy_names(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Drops the buffer of position numbers and renames `gamma` and `beta`, as in the checkpoints of 2019."""
    return {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): x
        for name, x in tensors.items()
        if name != "bert.embeddings.position_ids"
    }


def _shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    model = pretraining_model(config, ComputeConfig())
    return {path: x.shape for path, x in _flatten(jax.eval_shape(model.init, jax.random.key(0))).items()}


def _flatten(params: Params) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def _unflatten(flat: dict[str, Any]) -> Params:
    params: Params = {}
    for path, x in flat.items():
        *parents, leaf = path.split("/")
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = x
    return params


def _read_config(path: pathlib.Path) -> EncoderConfig:
    try:
        fields = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    known = {*FIELDS, *FIXED, *INDIFFERENT, "hidden_act"}
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise UserError(f"{path} has no 'model_type'; it is not a model's configuration")
    for name, value in FIXED.items():
        if name in fields and fields[name] != value:
            raise UserError(f"{path}: {name} is {fields[name]!r}; only {value!r} can be read")
    for name in fields:
        if name not in known:
            raise UserError(f"{path}: unknown field '{name}'{did_you_mean(name, known)}")
    activation = fields.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(f"{path}: hidden_act is {activation!r}, none of {', '.join(ACTIVATIONS)}")
    # Their defaults for what a file leaves out are ours, but for the vocabulary.
    kinds = {field.name: type(field.default) for field in dataclasses.fields(EncoderConfig)}
    values = {ours: fields[theirs] for theirs, ours in FIELDS.items() if theirs in fields}
    for theirs, ours in FIELDS.items():
        value, kind = values.get(ours), kinds[ours]
        if ours in values and (isinstance(value, bool) or not isinstance(value, (int, kind))):
            raise UserError(f"{path}: {theirs} is {value!r}, not {'a number' if kind is float else 'an integer'}")
    if "vocab_size" not in values:
        raise UserError(f"{path}: 'vocab_size' is missing")
    config = EncoderConfig(**values, activation=ACTIVATIONS[activation])
    if any(getattr(config, ours) < 1 for ours in FIELDS.values() if kinds[ours] is int):
        raise UserError(f"{path}: a size is below 1")
    return config


def _check_tokenizer(directory: pathlib.Path, config: EncoderConfig) -> int:
    """The id of `[PAD]`; raises `UserError` where the directory holds no tokenizer or one of another vocabulary."""
    path = directory / "tokenizer.json"
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{path} cannot be read as a tokenizer: {error}") from error
    size, padding_id = tokenizer.get_vocab_size(with_added_tokens=True), tokenizer.token_to_id("[PAD]")
    if size > config.vocab_size:
        raise UserError(f"{path} has {size} tokens, the model {config.vocab_size}: it is another model's tokenizer")
    if padding_id is None:
        raise UserError(f"{path} has no token [PAD]")
    return padding_id
