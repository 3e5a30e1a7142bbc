"""Saving of a `Tokenizer` as a directory that `AutoTokenizer` of transformers opens."""

import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from bert_jax.files import new_directory, read_file
from bert_jax.tokenizer.byte_level import with_prefix_space
from bert_jax.tokenizer.classes import GENERAL_CLASS, opens_alike_in_transformers_5, tokenizer_class_name
from bert_jax.tokenizer.load import CONFIG, DEFINITION, FILES, load_tokenizer
from bert_jax.tokenizer.tokenizer import Tokenizer

MAX_LENGTH = 512  # maximum tokens of a text for `AutoTokenizer`; an export writes the maximum of its model instead


def save_tokenizer(tokenizer: Tokenizer, directory: str | os.PathLike[str], files: Mapping[str, bytes] = {}) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `files`; the directory appears only when it is complete.

    The directory also contains `SHA256SUMS` and, for a WordPiece vocabulary, `vocab.txt`.

    Raises:
        OSError: the directory cannot be written, or is not empty.
    """
    with new_directory(directory) as partial:
        if tokenizer.kind.writes_vocabulary:
            lines = "".join(token + "\n" for token in tokenizer.tokens)
            (partial / tokenizer.kind.vocabulary_files[0]).write_bytes(lines.encode())
        for name, content in files.items():
            (partial / name).write_bytes(content)
        _write_definition(tokenizer, partial, {})


def tokenizer_files(directory: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Return the files in a directory that belong to its tokenizer."""
    return [path for path in (pathlib.Path(directory) / name for name in FILES) if path.is_file()]


def copy_tokenizer(source: str | os.PathLike[str], target: str | os.PathLike[str], spaces_words: bool = False) -> None:
    """Copy the files of a tokenizer into an existing directory, so that `AutoTokenizer` opens it.

    The copy of a source without `tokenizer.json` gets this file. The copy of a source without the entries
    `tokenizer_class` and `model_input_names` in `tokenizer_config.json` gets these entries. The copy names the general
    class if transformers 5 would open the class of the source with rules that contradict `tokenizer.json`.

    Args:
        source: directory of a tokenizer.
        target: an existing directory.
        spaces_words: True if the model was trained on lists of words, each encoded like a word inside a sentence. If
            True, the copy of a byte-level tokenizer has `add_prefix_space`, so that transformers encodes each word like
            a word inside a sentence.

    Raises:
        UserError: `load_tokenizer` cannot read the source.
        OSError: the target cannot be written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    tokenizer = load_tokenizer(source)
    for path in tokenizer_files(source):
        shutil.copyfile(path, target / path.name)
    config = json.loads(read_file(source / CONFIG)) if (source / CONFIG).exists() else {}
    if not ((source / DEFINITION).exists() and config.get("tokenizer_class")):
        _write_definition(tokenizer, target, config)
    else:
        added: dict[str, Any] = {} if "model_input_names" in config else {**_input_names_entry(tokenizer)}
        settings = tokenizer.kind.config_settings(tokenizer.definition)
        if not opens_alike_in_transformers_5(tokenizer_class_name(config, {}), config, tokenizer.definition, settings):
            added |= {"tokenizer_class": GENERAL_CLASS, **_special_token_entries(tokenizer)}
        if added:
            _write_config({**config, **added}, target)
    if spaces_words and tokenizer.kind.word_prefix:
        _write_json(with_prefix_space(tokenizer.definition), target / DEFINITION)
        _write_config({**json.loads((target / CONFIG).read_bytes()), "add_prefix_space": True}, target)


def _write_definition(tokenizer: Tokenizer, directory: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`; the values of the tokenizer replace values of `config`."""
    settings = {
        **tokenizer.kind.tokenizer_config(tokenizer.definition, tokenizer.special),
        **_input_names_entry(tokenizer),
        **_special_token_entries(tokenizer),
    }
    _write_json(tokenizer.definition, directory / DEFINITION)
    _write_config({"model_max_length": MAX_LENGTH, **config, **settings}, directory)


def _special_token_entries(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the entries of `tokenizer_config.json` that name the special tokens."""
    return {f"{role}_token": token for role, token in tokenizer.special._asdict().items()}


def _input_names_entry(tokenizer: Tokenizer) -> dict[str, list[str]]:
    """Return the entry of `tokenizer_config.json` that names the inputs of a model.

    The entry is needed because versions of transformers have different default inputs.
    """
    return {"model_input_names": ["input_ids", *["token_type_ids"] * tokenizer.second_type, "attention_mask"]}


def _write_json(value: Mapping[str, Any], path: pathlib.Path) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def _write_config(config: Mapping[str, Any], directory: pathlib.Path) -> None:
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
