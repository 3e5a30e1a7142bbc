"""Directories of sentence-transformers: what is done to a text before its encoder, and to the tokens after it.

`modules.json` lists the modules: a Transformer, a Pooling, and perhaps a Normalize. Version 6 of the library writes
other fields than its predecessors. Both are read; the older ones are written, as every version reads them.
"""

import json
import pathlib
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.interop.strict_json import read_list, read_object

MODULES = "modules.json"
KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
POOLING_NAMES = {"mean": "mean", "cls": "cls", "max": "max"}  # theirs -> a row of inference.embed.POOLINGS
OLD_POOLING = "pooling_mode_{}_tokens"
OLD_FIRST = "pooling_mode_cls_token"
# Fields of a Pooling's config.json that are of no consequence, and values that others need to have.
POOLING_SIZES = ("embedding_dimension", "word_embedding_dimension")
OF_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
TRANSFORMER_FIELDS = {
    "max_seq_length": None,
    "do_lower_case": None,
    "transformer_task": ("feature-extraction",),
    "modality_config": ({"text": OF_TEXT},),
    "module_output_name": ("token_embeddings",),
}


class SentenceModules(NamedTuple):
    """How texts become vectors; the defaults are those of sentence-transformers for a bare encoder."""

    folder: str = ""  # of the encoder, inside of the directory
    pooling: str = "mean"  # a row of inference.embed.POOLINGS
    normalize: bool = False  # vectors of length 1
    max_seq_len: int | None = None  # maximum tokens of a text; None: as many as the model reads
    lower_case: bool = False  # before the tokenizer
    prompt: str = ""  # before every text


def read_sentence_modules(directory: pathlib.Path) -> SentenceModules | None:
    """Return what `modules.json` and the files that it names say; None where there is no `modules.json`.

    Raises UserError for a module, a pooling or a field that this project does not compute, which it names.
    """
    path = directory / MODULES
    if not path.is_file():
        return None
    modules = [_module(one, path) for one in read_list(path)]
    kinds = [kind for kind, _ in modules]
    if kinds not in KNOWN:
        raise UserError(
            f"{path}: the modules {', '.join(kinds) or 'of nothing'}; only Transformer, Pooling and then perhaps "
            "Normalize can be read"
        )
    folder = modules[0][1]
    transformer = _transformer(directory / folder / "sentence_bert_config.json")
    return SentenceModules(
        folder=folder,
        pooling=_pooling(directory / modules[1][1] / "config.json"),
        normalize="Normalize" in kinds,
        max_seq_len=transformer.get("max_seq_length")
        or _model_max_length(directory / folder / "tokenizer_config.json"),
        lower_case=transformer.get("do_lower_case", False),
        prompt=_prompt(directory / "config_sentence_transformers.json"),
    )


def sentence_module_files(modules: SentenceModules, hidden_size: int) -> dict[str, str]:
    """Return name -> text of the files that make an exported encoder a directory of sentence-transformers."""
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")][: 2 + modules.normalize]
    pooling = {"word_embedding_dimension": hidden_size} | {
        OLD_FIRST if name == "cls" else OLD_POOLING.format(name): modules.pooling == ours
        for name, ours in POOLING_NAMES.items()
    }
    files: dict[str, Any] = {
        MODULES: [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (kind, path) in enumerate(kinds)
        ],
        "sentence_bert_config.json": {"max_seq_length": modules.max_seq_len, "do_lower_case": modules.lower_case},
        "1_Pooling/config.json": pooling,
        "config_sentence_transformers.json": {
            "prompts": {"default": modules.prompt} if modules.prompt else {},
            "default_prompt_name": "default" if modules.prompt else None,
            "similarity_fn_name": "cosine",
        },
    }
    return {name: json.dumps(value, indent=2) + "\n" for name, value in files.items()}


def _module(one: Any, path: pathlib.Path) -> tuple[str, str]:
    """The last name of a module's type, and its folder."""
    kind, folder = (one.get(key) if isinstance(one, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(folder, str):
        raise UserError(f"{path}: a module without type and path")
    place = pathlib.PurePosixPath(folder)
    if place.is_absolute() or ".." in place.parts or "\\" in folder:
        raise UserError(f"{path}: the module's path '{folder}' is not inside of the directory")
    return kind.rsplit(".", 1)[-1], folder


def _transformer(path: pathlib.Path) -> dict[str, Any]:
    """The fields of `sentence_bert_config.json`, checked."""
    found = read_object(path) if path.is_file() else {}
    for name, value in found.items():
        if name not in TRANSFORMER_FIELDS:
            raise UserError(f"{path}: unknown field '{name}'; there may be {', '.join(TRANSFORMER_FIELDS)}")
        allowed = TRANSFORMER_FIELDS[name]
        if allowed is not None and value not in allowed:
            raise UserError(f"{path}: {name} is {value!r}, of which only {allowed[0]!r} can be read")
    length = found.get("max_seq_length")
    if length is not None and (type(length) is not int or length < 1):
        raise UserError(f"{path}: max_seq_length is {length!r}; a number of tokens, at least 1, is needed")
    if type(found.get("do_lower_case", False)) is not bool:
        raise UserError(f"{path}: do_lower_case is {found['do_lower_case']!r}; true or false is needed")
    return found


def _pooling(path: pathlib.Path) -> str:
    """The pooling of a Pooling's `config.json`, by its old or its new fields."""
    found = read_object(path)
    if found.get("include_prompt", True) is not True:
        raise UserError(f"{path}: include_prompt is {found['include_prompt']!r}; only true can be read")
    modes = found.get("pooling_mode")
    if modes is None:
        old = {OLD_FIRST if name == "cls" else OLD_POOLING.format(name): name for name in POOLING_NAMES}
        chosen = [name for name, value in found.items() if value is True and name.startswith("pooling_mode")]
        modes = [old.get(name, name) for name in chosen] or "mean"
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or modes[0] not in POOLING_NAMES:
        raise UserError(
            f"{path}: pooling by {', '.join(map(str, modes))}; one of {', '.join(POOLING_NAMES)} can be read"
        )
    return POOLING_NAMES[modes[0]]


def _model_max_length(path: pathlib.Path) -> int | None:
    """The maximum tokens that the tokenizer states; None where it states none, or one that is a stand-in for none."""
    length = read_object(path).get("model_max_length") if path.is_file() else None
    return length if type(length) is int and 1 <= length < 10**9 else None


def _prompt(path: pathlib.Path) -> str:
    """The prompt that sentence-transformers puts before every text."""
    found = read_object(path) if path.is_file() else {}
    name = found.get("default_prompt_name")
    if name is None:
        return ""
    prompts = found.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(prompt, str):
        raise UserError(f"{path}: default_prompt_name is {name!r}, and prompts has no text of that name")
    return prompt
