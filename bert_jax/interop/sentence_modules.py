"""Directories of sentence-transformers: the steps before and after the encoder.

`modules.json` lists the modules: a Transformer, a Pooling, and perhaps a Normalize. Version 6 of sentence-transformers
writes other fields than earlier versions; bert_jax reads the fields of all versions. A SentenceTransformer is written
in the form of version 5.3, because version 6, Text Embeddings Inference and vLLM can read this form. Text Embeddings
Inference refuses the form of version 6.

A SparseEncoder has a Transformer with a masked-token head and a SpladePooling. A SparseEncoder is written in the form
of version 6. The file token_modules.py reads and writes the modules of a MultiVectorEncoder.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.token_modules import (
    DENSE,
    LENGTH_FIELDS,
    MASK,
    NORMALIZE,
    read_pylate_rules,
    read_token_rules,
    read_vector_width,
    token_length_fields,
    token_module_files,
)
from bert_jax.strict_json import read_list, read_object
from bert_jax.tasks.late_interaction import TokenRules
from bert_jax.tasks.vector_heads import VECTOR_HEADS

MODULES = "modules.json"
KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
SPARSE_ENCODER = (["Transformer", "SpladePooling"], ["MLMTransformer", "SpladePooling"])  # the second is of version 5.0
CROSS_ENCODER = ["Transformer"]  # the modules of a CrossEncoder, which scores pairs
MULTI_VECTOR_ENCODER = ["Transformer", "Dense", "MultiVectorMask", "Normalize"]
PYLATE = ["Transformer", "Dense"]
# Activations of a CrossEncoder's score: name of the class in torch -> our name.
CROSS_ENCODER_ACTIVATIONS = {"Sigmoid": "sigmoid", "Identity": "identity"}
TORCH_MODULES = {"Sigmoid": "torch.nn.modules.activation", "Identity": "torch.nn.modules.linear"}
# Our name of a pooling (in inference.embed.POOLINGS), which version 6 also uses -> its field in earlier versions.
POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
# Further fields of version 5.3; Text Embeddings Inference 1.2 needs the first.
OTHER_POOLINGS = ("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
VECTORS, TOKEN_VECTORS = "sentence_embedding", "token_embeddings"
MAX_SIM = "maxsim"
OF_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
OF_PAIR = {"method": "forward", "method_output_name": "logits"}
# Field of sentence_bert_config.json -> the only value that can be read; None: the field is checked separately.
TRANSFORMER_FIELDS = {
    "max_seq_length": None,
    "do_lower_case": None,
    "transformer_task": "feature-extraction",
    "modality_config": {"text": OF_TEXT},
    "module_output_name": "token_embeddings",
    "unpad_inputs": None,  # changes only the speed
}
CROSS_ENCODER_FIELDS = TRANSFORMER_FIELDS | {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": OF_PAIR},
    "module_output_name": "scores",
}
SPARSE_FIELDS = TRANSFORMER_FIELDS | {"transformer_task": "fill-mask", "modality_config": {"text": OF_PAIR}}
# Field of a SpladePooling -> the only value that can be read.
SPLADE_FIELDS = {"pooling_strategy": "max", "activation_function": "relu"}
MULTI_VECTOR_FIELDS = TRANSFORMER_FIELDS | LENGTH_FIELDS
# Fields of config_sentence_transformers.json that make sentence-transformers shorten each vector.
SHORTENING_FIELDS = ("truncate_dim", "max_active_dims")
LIBRARY = "sentence_transformers"

# Names of a Transformer module's file; early versions of the library had a name for each model family.
TRANSFORMER = "sentence_bert_config.json"
OLD_FAMILIES = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
TRANSFORMER_FILES = (TRANSFORMER, *(f"sentence_{family}_config.json" for family in OLD_FAMILIES))
# Files that `sentence_module_files` writes.
PROMPTS, POOLING = "config_sentence_transformers.json", "1_Pooling/config.json"
SPLADE_POOLING = "1_SpladePooling/config.json"
MODULE_FILES = (
    *(MODULES, TRANSFORMER, POOLING, SPLADE_POOLING, PROMPTS),
    *(f"{folder}/config.json" for folder in (DENSE, MASK, NORMALIZE)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentenceModules:
    """The steps from texts to vectors; the defaults equal the defaults of sentence-transformers for a bare encoder."""

    vector_head: str = "dense"  # a row of VECTOR_HEADS
    vector_width: int = 0  # width of the vector of a token in late interaction; 0 for other heads
    projection: str = ""  # folder of the weights of the projection of tokens, relative to the directory
    token_rules: TokenRules = TokenRules()  # rules of late interaction, which choose tokens
    folder: str = ""  # the encoder's folder, relative to the directory
    pooling: str = "mean"  # a row of inference.embed.POOLINGS
    normalize: bool = False  # whether vectors are scaled to length 1
    max_seq_len: int | None = None  # maximum tokens of a text; None: the maximum of the model
    lower_case: bool = False  # whether texts are lowercased before the tokenizer
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None  # name of the prompt before every text
    similarity: str | None = "cosine"  # name of the function that compares vectors; read and written, not computed
    activation: str = ""  # activation of a CrossEncoder's score, in CROSS_ENCODER_ACTIVATIONS; '' for other models

    @property
    def has_pooling(self) -> bool:
        """True if the model pools each text to one dense vector."""
        return VECTOR_HEADS[self.vector_head].has_pooling and not self.activation

    @property
    def has_token_vectors(self) -> bool:
        """True if the model has a vector for each token of a text (late interaction)."""
        return VECTOR_HEADS[self.vector_head].has_token_vectors

    @property
    def is_sparse(self) -> bool:
        """True if the model turns each text into one sparse vector."""
        return VECTOR_HEADS[self.vector_head].is_sparse

    def max_tokens(self, max_positions: int) -> int:
        """Return the maximum number of tokens of a text for an encoder with `max_positions` positions."""
        return min(self.max_seq_len or max_positions, max_positions)

    @property
    def prompt(self) -> str:
        """The prompt that is put before every text."""
        return "" if self.default_prompt is None else self.prompts[self.default_prompt]


def read_sentence_modules(directory: pathlib.Path) -> SentenceModules | None:
    """Return the contents of `modules.json` and of the files that it names; None without `modules.json`.

    Raises UserError for a module, a pooling or a field that this project does not support.
    """
    path = directory / MODULES
    if not path.is_file():
        return None
    modules = [_parse_module_entry(entry, path) for entry in read_list(path)]
    kinds = [kind for kind, _ in modules]
    if kinds == CROSS_ENCODER:
        return _read_cross_encoder(directory, modules[0][1])
    if kinds in SPARSE_ENCODER:
        return _read_sparse_encoder(directory, *(folder for _, folder in modules))
    if kinds in (MULTI_VECTOR_ENCODER, PYLATE):
        return _read_multi_vector_encoder(directory, [folder for _, folder in modules])
    if kinds not in KNOWN:
        raise UserError(
            f"{path}: the modules are {', '.join(kinds) or 'missing'}; only Transformer, Pooling and then perhaps "
            "Normalize can be read, or Transformer and SpladePooling, or the modules of a MultiVectorEncoder"
        )
    folder = modules[0][1]
    if "Normalize" in kinds:
        _check_normalize(directory / modules[2][1] / "config.json")
    prompts, default_prompt, similarity = _read_prompts_and_similarity(directory / PROMPTS, "cosine")
    transformer = _read_transformer_fields(directory / folder, TRANSFORMER_FIELDS)
    return SentenceModules(
        folder=folder,
        pooling=_read_pooling(directory / modules[1][1] / "config.json"),
        normalize="Normalize" in kinds,
        max_seq_len=transformer.get("max_seq_length")
        or _read_model_max_length(directory / folder / "tokenizer_config.json"),
        lower_case=transformer.get("do_lower_case", False),
        prompts=prompts,
        default_prompt=default_prompt,
        similarity=similarity,
    )


def parse_cross_encoder_activation(name: Any, where: str) -> str:
    """Return our name of a torch activation class; raise UserError for a class outside CROSS_ENCODER_ACTIVATIONS."""
    activation = CROSS_ENCODER_ACTIVATIONS.get(name.rpartition(".")[2]) if isinstance(name, str) else None
    if activation is None:
        raise UserError(
            f"{where}: the activation of the scores is {name!r}; {' and '.join(CROSS_ENCODER_ACTIVATIONS)} can be read"
        )
    return activation


def cross_encoder_config_fields(activation: str) -> dict[str, Any]:
    """Return the fields of `config.json` for the activation of a CrossEncoder; {} for the activation ''.

    The class of the activation is written with the name of its module, because vLLM reads only names that begin with
    `torch.nn.modules.`.
    """
    classes = {row: f"{TORCH_MODULES[name]}.{name}" for name, row in CROSS_ENCODER_ACTIVATIONS.items()}
    return {"sentence_transformers": {"activation_fn": classes[activation], "version": "4.1.0"}} if activation else {}


def _read_cross_encoder(directory: pathlib.Path, folder: str) -> SentenceModules:
    """Return the settings of a CrossEncoder in the layout of sentence-transformers 6."""
    path = directory / PROMPTS
    fields = read_object(path) if path.is_file() else {}
    if fields.get("model_type") != "CrossEncoder":
        raise UserError(f"{directory / MODULES}: a Transformer without Pooling; only a CrossEncoder has no Pooling")
    transformer = _read_transformer_fields(directory / folder, CROSS_ENCODER_FIELDS)
    prompts, default_prompt, _ = _read_prompts_and_similarity(path)
    return SentenceModules(
        folder=folder,
        max_seq_len=transformer.get("max_seq_length")
        or _read_model_max_length(directory / folder / "tokenizer_config.json"),
        lower_case=transformer.get("do_lower_case", False),
        prompts=prompts,
        default_prompt=default_prompt,
        activation=parse_cross_encoder_activation(fields.get("activation_fn"), str(path)),
    )


def _read_sparse_encoder(directory: pathlib.Path, folder: str, pooling_folder: str) -> SentenceModules:
    """Return the settings of a SparseEncoder; raise UserError for a pooling other than SPLADE's maximum."""
    path = directory / pooling_folder / "config.json"
    fields = SPLADE_FIELDS | read_object(path)
    for name, value in SPLADE_FIELDS.items():
        if fields[name] != value:
            raise UserError(f"{path}: {name} is {fields[name]!r}; only {value!r} can be read")
    prompts, default_prompt, similarity = _read_prompts_and_similarity(directory / PROMPTS)
    transformer = _read_transformer_fields(directory / folder, SPARSE_FIELDS)
    return SentenceModules(
        vector_head="sparse",
        folder=folder,
        max_seq_len=transformer.get("max_seq_length")
        or _read_model_max_length(directory / folder / "tokenizer_config.json"),
        lower_case=transformer.get("do_lower_case", False),
        prompts=prompts,
        default_prompt=default_prompt,
        similarity=similarity,
    )


def _read_multi_vector_encoder(directory: pathlib.Path, folders: list[str]) -> SentenceModules:
    """Return the settings of a MultiVectorEncoder, or of a ColBERT of PyLate, which has only the first two modules."""
    folder, projection, *mask_and_normalize = folders
    path, tokenizer = directory / PROMPTS, directory / folder / "tokenizer_config.json"
    fields = read_object(path) if path.is_file() else {}
    prompts, default_prompt, similarity = _read_prompts_and_similarity(path)
    transformer = _read_transformer_fields(directory / folder, MULTI_VECTOR_FIELDS)
    prefixes = {"query": "", "document": ""}
    if mask_and_normalize:
        mask, normalize = mask_and_normalize
        _check_normalize(directory / normalize / "config.json", TOKEN_VECTORS)
        mask_token = read_object(tokenizer).get("mask_token") if tokenizer.is_file() else None
        rules = read_token_rules(transformer, directory / mask, str(directory / folder / TRANSFORMER), mask_token)
    elif fields.get("model_type") != "ColBERT":
        raise UserError(f"{directory / MODULES}: a Transformer and a Dense alone; only a ColBERT of PyLate has these")
    else:
        rules, similarity = read_pylate_rules(fields, str(path)), None
        prefixes = {role: str(fields.get(f"{role}_prefix") or "") for role in prefixes}
    if similarity not in (None, MAX_SIM):
        raise UserError(f"{path}: similarity_fn_name is {similarity!r}; only {MAX_SIM!r} can be read")
    return SentenceModules(
        vector_head="late_interaction",
        vector_width=read_vector_width(directory / projection),
        projection=projection,
        token_rules=rules,
        folder=folder,
        max_seq_len=transformer.get("max_seq_length") or _read_model_max_length(tokenizer),
        lower_case=transformer.get("do_lower_case", False),
        # PyLate puts a token after [CLS]. If the text of the token is put before the prompt, the token has the same
        # place.
        prompts=prompts
        | {role: prefix + prompts.get(role, "").removeprefix(prefix) for role, prefix in prefixes.items()},
        default_prompt=default_prompt,
        similarity=similarity,
    )


def _multi_vector_module_files(modules: SentenceModules, config: EncoderConfig) -> dict[str, Any]:
    """Return file name -> JSON for the files of a MultiVectorEncoder."""
    fields = {name: value for name, value in TRANSFORMER_FIELDS.items() if value is not None}
    lengths = token_length_fields(modules.token_rules) | {
        "max_seq_length": modules.max_seq_len or config.max_positions,
        "do_lower_case": modules.lower_case,
    }
    kinds = {
        "": "base.modules.transformer.Transformer",
        DENSE: "base.modules.dense.Dense",
        MASK: "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
        NORMALIZE: "base.modules.normalize.Normalize",
    }
    return {
        MODULES: [_module_entry(n, path, f"{LIBRARY}.{kind}") for n, (path, kind) in enumerate(kinds.items())],
        TRANSFORMER: fields | lengths,
        **token_module_files(modules.token_rules, config.hidden_size, modules.vector_width),
        PROMPTS: _prompt_fields(modules) | {"model_type": "MultiVectorEncoder"},
    }


def _sparse_module_files(modules: SentenceModules, config: EncoderConfig) -> dict[str, Any]:
    """Return file name -> JSON for the files of a SparseEncoder."""
    length = {"max_seq_length": modules.max_seq_len or config.max_positions, "do_lower_case": modules.lower_case}
    return {
        MODULES: [
            _module_entry(0, "", f"{LIBRARY}.base.modules.transformer.Transformer"),
            _module_entry(1, "1_SpladePooling", f"{LIBRARY}.sparse_encoder.modules.splade_pooling.SpladePooling"),
        ],
        TRANSFORMER: {name: value for name, value in SPARSE_FIELDS.items() if value is not None} | length,
        SPLADE_POOLING: SPLADE_FIELDS | {"embedding_dimension": config.vocab_size},
        PROMPTS: _prompt_fields(modules) | {"model_type": "SparseEncoder"},
    }


def _cross_encoder_module_files(modules: SentenceModules, config: EncoderConfig) -> dict[str, Any]:
    """Return file name -> JSON for the files of a CrossEncoder."""
    length = {"max_seq_length": modules.max_seq_len or config.max_positions, "do_lower_case": modules.lower_case}
    prompts = {name: value for name, value in _prompt_fields(modules).items() if name != "similarity_fn_name"}
    activation = cross_encoder_config_fields(modules.activation)[LIBRARY]["activation_fn"]
    return {
        MODULES: [_module_entry(0, "", f"{LIBRARY}.base.modules.transformer.Transformer")],
        TRANSFORMER: {name: value for name, value in CROSS_ENCODER_FIELDS.items() if value is not None} | length,
        PROMPTS: prompts | {"model_type": "CrossEncoder", "activation_fn": activation},
    }


def _module_entry(index: int, path: str, kind: str) -> dict[str, Any]:
    """Return the entry of `modules.json` for one module."""
    return {"idx": index, "name": str(index), "path": path, "type": kind}


def _prompt_fields(modules: SentenceModules) -> dict[str, Any]:
    """Return the fields of `config_sentence_transformers.json` for the prompts and the similarity."""
    return {
        "prompts": dict(modules.prompts),
        "default_prompt_name": modules.default_prompt,
        "similarity_fn_name": modules.similarity,
    }


def _dense_module_files(modules: SentenceModules, config: EncoderConfig) -> dict[str, Any]:
    """Return file name -> JSON for a SentenceTransformer's files; Text Embeddings Inference needs a maximum length."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")][: 2 + modules.normalize]
    pooling = {field: modules.pooling == name for name, field in POOLINGS.items()}
    pooling |= {f"pooling_mode_{name}": False for name in OTHER_POOLINGS}
    return {
        MODULES: [_module_entry(n, path, f"{LIBRARY}.models.{kind}") for n, (kind, path) in enumerate(kinds)],
        TRANSFORMER: {
            "max_seq_length": modules.max_seq_len or config.max_positions,
            "do_lower_case": modules.lower_case,
        },
        POOLING: {"word_embedding_dimension": config.hidden_size, **pooling, "include_prompt": True},
        PROMPTS: _prompt_fields(modules),
    }


# Row of VECTOR_HEADS -> (modules, architecture) -> the files of the directory.
MODULE_WRITERS: dict[str, Callable[[SentenceModules, EncoderConfig], dict[str, Any]]] = {
    "dense": _dense_module_files,
    "sparse": _sparse_module_files,
    "late_interaction": _multi_vector_module_files,
}


def sentence_module_files(modules: SentenceModules, config: EncoderConfig) -> dict[str, str]:
    """Return file name -> text for the files that make an exported model a directory of sentence-transformers."""
    write = _cross_encoder_module_files if modules.activation else MODULE_WRITERS[modules.vector_head]
    files = write(modules, config)
    return {name: json.dumps(value, indent=2) + "\n" for name, value in files.items()}


class _KindAndFolder(NamedTuple):
    """The class name that ends a module's type, and the module's folder."""

    kind: str
    folder: str


def _parse_module_entry(entry: Any, path: pathlib.Path) -> _KindAndFolder:
    """Return the class name that ends a module's type, and the module's folder."""
    kind, folder = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(folder, str):
        raise UserError(f"{path}: a module without type and path")
    relative = pathlib.PurePosixPath(folder)
    if relative.is_absolute() or ".." in relative.parts or "\\" in folder:
        raise UserError(f"{path}: the module's path '{folder}' is not inside of the directory")
    return _KindAndFolder(kind.rsplit(".", 1)[-1], folder)


def _read_transformer_fields(folder: pathlib.Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> value of the fields in the first of TRANSFORMER_FILES that exists; check them against `known`."""
    path = next((folder / name for name in TRANSFORMER_FILES if (folder / name).is_file()), None)
    if path is None:
        return {}
    fields = read_object(path)
    for name, value in fields.items():
        if name not in known:
            raise UserError(f"{path}: unknown field '{name}'; there may be {', '.join(known)}")
        if known[name] is not None and value != known[name]:
            raise UserError(f"{path}: {name} is {value!r}; only {known[name]!r} can be read")
    length = fields.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise UserError(f"{path}: max_seq_length is {length!r}; a number of tokens, at least 1, is needed")
    if type(fields.get("do_lower_case", False)) is not bool:
        raise UserError(f"{path}: do_lower_case is {fields['do_lower_case']!r}; true or false is needed")
    return fields


def _read_pooling(path: pathlib.Path) -> str:
    """Return the pooling in the `config.json` of a Pooling module, from the old or the new fields."""
    fields = read_object(path)
    if fields.get("include_prompt", True) is not True:
        raise UserError(f"{path}: include_prompt is {fields['include_prompt']!r}; only true can be read")
    modes = fields.get("pooling_mode")
    if modes is None:
        old = {field: name for name, field in POOLINGS.items()}
        chosen = [name for name, value in fields.items() if value is True and name.startswith("pooling_mode")]
        modes = [old.get(name, name) for name in chosen] or "mean"
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise UserError(f"{path}: pooling by {', '.join(map(str, modes))}; one of {', '.join(POOLINGS)} can be read")
    return str(modes[0])


def _check_normalize(path: pathlib.Path, vectors: str = VECTORS) -> None:
    """Raise UserError if a Normalize module, whose config may be absent, normalizes other vectors than `vectors`."""
    fields = read_object(path) if path.is_file() else {}
    for name, value in fields.items():
        if value != vectors:
            raise UserError(f"{path}: {name} is {value!r}; only '{vectors}' can be read")


def _read_model_max_length(path: pathlib.Path) -> int | None:
    """Return the `model_max_length` of the tokenizer; None if the field is absent or huge."""
    length = read_object(path).get("model_max_length") if path.is_file() else None
    return length if type(length) is int and 1 <= length < 10**9 else None


class _PromptsAndSimilarity(NamedTuple):
    """The prompts, the name of the default prompt, and the name of the similarity."""

    prompts: dict[str, str]
    default_prompt_name: str | None
    similarity: str | None


def _read_prompts_and_similarity(path: pathlib.Path, default_similarity: str | None = None) -> _PromptsAndSimilarity:
    """Return the prompts, the name of the default prompt, and the name of the similarity or its default.

    Raises UserError for prompts that are not texts, and for a field that shortens the vectors.
    """
    fields = read_object(path) if path.is_file() else {}
    for name in SHORTENING_FIELDS:
        if fields.get(name) is not None:
            raise UserError(
                f"{path}: {name} is {fields[name]!r}; bert_jax does not shorten vectors. Remove the field to get whole "
                "vectors"
            )
    prompts, default = fields.get("prompts") or {}, fields.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise UserError(f"{path}: prompts are not names with texts")
    if default is not None and default not in prompts:
        raise UserError(f"{path}: default_prompt_name is {default!r}, and prompts has no text of that name")
    return _PromptsAndSimilarity(prompts, default, fields.get("similarity_fn_name", default_similarity))
