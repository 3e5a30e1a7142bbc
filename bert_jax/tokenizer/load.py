"""Loading of a `Tokenizer` from a directory or a vocabulary file, whether trained by bert_jax or published.

Only this module reads the files of a tokenizer, in this order:
1. `tokenizer.json`, or, in a directory without this file, the vocabulary file of a kind: `vocab.txt`, `vocab.json`,
   `spiece.model`, or `spm.model` of DeBERTa;
2. `special_tokens_map.json` and `tokenizer_config.json`: the class, its settings, and the names of special tokens;
   if these two files name no class, the `config.json` of a model;
3. `merges.txt`, if the vocabulary file is `vocab.json`;
4. a file that must agree with the files above: the vocabulary file, or, in a directory without `tokenizer.json`, the
   file `added_tokens.json`.

If the directory has a file `SHA256SUMS`, the digests of these files are first compared with `SHA256SUMS`.
"""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax import strict_json
from bert_jax.errors import UserError, with_message
from bert_jax.files import check_sums
from bert_jax.readers.hub import local_or_downloaded_tokenizer
from bert_jax.tokenizer import tokenizer_json
from bert_jax.tokenizer.classes import (
    CLASS_OF_FILE,
    CLASSES,
    TokenizerClass,
    check_settings_agree,
    has_token_types,
    tokenizer_class_name,
    tokenizer_class_of_vocabulary_file,
)
from bert_jax.tokenizer.kinds import tokenizer_kind_of
from bert_jax.tokenizer.tokenizer import Tokenizer, build_tokenizer
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

DEFINITION = "tokenizer.json"
CONFIG = "tokenizer_config.json"
NAMES = "special_tokens_map.json"
ADDED = "added_tokens.json"
MODEL = "config.json"  # the config of the model, not of the tokenizer
FILES = (
    *(DEFINITION, CONFIG, NAMES, ADDED),
    *dict.fromkeys(name for row in CLASSES.values() for name in row.files),
)
OTHER_NAME = "vocab.txt"  # a vocabulary file with an unknown name is read as if it had this name


def load_tokenizer(path: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """Return the tokenizer of a directory or of a vocabulary file.

    Args:
        path: a directory, a `tokenizer.json` or vocabulary file, or a name on the Hugging Face Hub (readers/hub.py).
        lowercase: whether a vocabulary file is uncased; used if `tokenizer_config.json` says nothing about case. None:
            the kind of the vocabulary decides; WordPiece is cased if a token has a capital letter, else uncased.

    Raises:
        UserError: the path has no tokenizer, a file is broken or differs from `SHA256SUMS`, the kind is unknown, the
            ids have gaps, a special token is missing, or the files contradict each other or `lowercase`.
    """
    path = local_or_downloaded_tokenizer(path)
    file = _find_definition_file(path)
    if path.is_dir():
        check_sums(file.parent, FILES)
    try:
        config = _read_json_beside(file, CONFIG)
        if lowercase is not None and config.get("do_lower_case", lowercase) != lowercase:
            raise UserError(f"do_lower_case is {config['do_lower_case']} in {CONFIG}, but you asked for {lowercase}")
        class_name = tokenizer_class_name(config, _read_json_beside(file, MODEL))
        config = _read_json_beside(file, NAMES) | config
        if file.name == DEFINITION:
            return _load_definition(file, class_name, config, lowercase)
        row = tokenizer_class_of_vocabulary_file(class_name, file.name if file.name in CLASS_OF_FILE else OTHER_NAME)
        return _load_vocabulary(file, row, class_name, config, lowercase)
    except UserError as error:
        raise with_message(error, f"{file}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # wrong types of values
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"{file}: this file or another in its directory is not of a tokenizer ({reason:.200})"
        ) from error


def _find_definition_file(path: pathlib.Path) -> pathlib.Path:
    """Return the path of the file that defines a tokenizer; `path` is this file or its directory."""
    candidates = (DEFINITION, *CLASS_OF_FILE)
    if path.is_dir():
        paths = [path / name for name in candidates if (path / name).exists()]
        if len(paths) > 1 and paths[0].name != DEFINITION:
            raise UserError(
                f"{path} holds both {paths[0].name} and {paths[1].name}; give the path of one of these files"
            )
    else:
        paths = [path] if path.exists() else []
    if not paths:
        raise UserError(
            f"{path}: no such vocabulary; give a directory with {', '.join(candidates[:-1])} or {candidates[-1]}, or a "
            "name of the Hub as OWNER/NAME"
        )
    return paths[0]


def _load_definition(
    file: pathlib.Path, class_name: str, config: Mapping[str, Any], lowercase: bool | None
) -> Tokenizer:
    """Return the tokenizer that a `tokenizer.json` defines, and check that the other files agree with it."""
    definition = tokenizer_json.complete_definition(strict_json.parse_object(_read_limited_file(file), file.name))
    kind = tokenizer_kind_of(definition)
    special = _special_tokens(config, CLASSES.get(class_name, CLASSES[""]).special or kind.special)
    tokens = tokenizer_json.tokens_in_id_order(definition)
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    # transformers, too, adds special tokens and a post-processor that a file lacks.
    definition = tokenizer_json.with_special_tokens(
        definition, special, vocabulary, kind.separators, kind.mask_takes_space
    )
    definition = _with_tokens_listed_in_config(definition, config, vocabulary)
    tokenizer = build_tokenizer(definition, special, has_token_types(class_name, config), kind=kind, tokens=tokens)
    if lowercase is not None and lowercase != tokenizer.lowercase:
        raise UserError(f"the file sets lowercase to {tokenizer.lowercase}, but you asked for {lowercase}")
    check_settings_agree(class_name, config, definition, kind.config_settings(definition))
    if kind.parse_tokens and (vocabulary_file := file.with_name(kind.vocabulary_files[0])).exists():
        vocabulary_tokens = kind.parse_tokens(_read_limited_file(vocabulary_file))
        if list(tokens[: len(vocabulary_tokens)]) != vocabulary_tokens:
            raise UserError(
                f"{vocabulary_file.name} beside it, of {len(vocabulary_tokens)} tokens, differs from its own "
                f"vocabulary of {len(tokens)}; remove the wrong file, or make both again"
            )
    return tokenizer


def _load_vocabulary(
    file: pathlib.Path, row: TokenizerClass, class_name: str, config: Mapping[str, Any], lowercase: bool | None
) -> Tokenizer:
    """Return the tokenizer of a vocabulary file, read by the rules of a class."""
    further_files = [file.with_name(name) for name in row.files[1:]]
    for path in further_files:
        if not path.exists():
            raise UserError(f"{path.name} is missing in its directory; this kind of vocabulary needs both files")
    assert row.parse
    assert row.special
    special = _special_tokens(config, row.special)
    files = [_read_limited_file(path) for path in (file, *further_files)]
    definition = row.parse(files, special, config, lowercase)
    vocabulary = {token: token_id for token_id, token in enumerate(tokenizer_json.tokens_in_id_order(definition))}
    if unknown := _read_json_beside(file, ADDED).keys() - vocabulary.keys():
        raise _unknown_tokens_error(unknown)
    definition = _with_tokens_listed_in_config(definition, config, vocabulary)
    return build_tokenizer(definition, special, has_token_types(class_name, config))


def _with_tokens_listed_in_config(
    definition: Definition, config: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> Definition:
    """Return the definition with the added tokens that a config lists, in place of added tokens of equal names.

    As in transformers, the entry `added_tokens_decoder` gives the properties of a token. A token that the config lists
    only by its name is a special token.

    Raises:
        UserError: the vocabulary lacks a token of the config, or gives the token another id than the config.
    """
    decoder = config.get("added_tokens_decoder") or {}
    extra = config.get("extra_special_tokens") or ()
    names = [*(config.get("additional_special_tokens") or ()), *(extra.values() if isinstance(extra, dict) else extra)]
    names += [name for role in ("bos_token", "eos_token") if _token_name(name := config.get(role)) in vocabulary]
    tokens = {token["content"]: token for token in definition["added_tokens"]}
    tokens |= {token["content"]: {**token, "id": int(token_id)} for token_id, token in decoder.items()}
    for name in map(_token_name, names):
        tokens.setdefault(name, tokenizer_json.added_special_token(name, vocabulary.get(name, -1)))
    unknown = [name for name, token in tokens.items() if vocabulary.get(name) != token["id"]]
    if unknown:
        raise _unknown_tokens_error(unknown)
    return {**definition, "added_tokens": sorted(tokens.values(), key=lambda token: token["id"])}


def _unknown_tokens_error(tokens: Iterable[str]) -> UserError:
    return UserError(
        f"tokens were added to this vocabulary in other files ({', '.join(sorted(tokens))}); save it with "
        f"transformers, which writes {DEFINITION}"
    )


def _token_name(token: Any) -> Any:
    """Return the name of a token that a config gives as a name or as an object with the name as its `content`."""
    return token.get("content") if isinstance(token, dict) else token


def _special_tokens(config: Mapping[str, Any], default: SpecialTokens) -> SpecialTokens:
    """Return the names of the special tokens: the names in a config replace the names in `default`."""
    names: dict[str, str] = {}
    for role, default_name in default._asdict().items():
        name = _token_name(config.get(f"{role}_token") or default_name)
        if not isinstance(name, str):
            raise UserError(f"{role}_token in {CONFIG} or {NAMES} beside it is not a string; write the token as text")
        names[role] = name
    return SpecialTokens(**names)


def _read_json_beside(file: pathlib.Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file in the directory of `file`; {} if there is no such file."""
    path = file.with_name(name)
    return strict_json.parse_object(_read_limited_file(path), name) if path.exists() else {}


def _read_limited_file(file: pathlib.Path) -> bytes:
    """Return the bytes of a tokenizer's file; raise UserError if the file is too large."""
    return strict_json.read_bounded_bytes(file, strict_json.MAX_TABLE_BYTES, file.name)
