"""A directory, ours or a published one, or a vocabulary file -> a `Tokenizer`.

Only this file reads the files of a tokenizer, in this order:
1. `tokenizer.json`, or where there is none the vocabulary file of a kind: `vocab.txt`, `vocab.json`, `spiece.model`,
   or `spm.model` of DeBERTa;
2. `special_tokens_map.json` and `tokenizer_config.json` beside it: the names of special tokens, and the casing;
3. the other files of a vocabulary: `merges.txt` beside `vocab.json`;
4. to check that they agree: `added_tokens.json` beside a vocabulary, the vocabulary beside a `tokenizer.json`.
The digests of these files are compared with `SHA256SUMS` first, where a directory has one.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.files import check
from bert_jax.tokenizer import tokenizer_json
from bert_jax.tokenizer.kinds import TOKENIZERS, TokenizerKind, kind_of
from bert_jax.tokenizer.tokenizer import Tokenizer, build_tokenizer
from bert_jax.tokenizer.tokenizer_json import SpecialTokens

DEFINITION = "tokenizer.json"
CONFIG = "tokenizer_config.json"
NAMES = "special_tokens_map.json"
ADDED = "added_tokens.json"
KIND_OF_FILE = {name: kind for kind in TOKENIZERS.values() for name in (*kind.vocabulary_files[:1], *kind.published)}
FILES = (
    DEFINITION,
    CONFIG,
    NAMES,
    ADDED,
    *(name for kind in TOKENIZERS.values() for name in (*kind.vocabulary_files, *kind.published)),
)
OTHER_NAME = TOKENIZERS["wordpiece"]  # the kind of a vocabulary file of any other name


def load_tokenizer(path: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """Return the tokenizer of a directory or of a vocabulary file.

    Args:
        path: a directory, or a file of step 1 above.
        lowercase: whether a vocabulary file is uncased, where `tokenizer_config.json` does not say; None: as its kind
            decides. WordPiece is uncased unless a token has a capital letter.

    Raises:
        UserError: no tokenizer there, a broken file, one that differs from `SHA256SUMS`, an unknown kind, ids with
            holes, a missing special token, files that contradict each other, or `lowercase` contradicts them.
    """
    file = _find(pathlib.Path(path))
    if pathlib.Path(path).is_dir():
        check(file.parent, FILES)
    try:
        config = _json_beside(file, CONFIG)
        if lowercase is not None and config.get("do_lower_case", lowercase) != lowercase:
            raise UserError(f"do_lower_case is {config['do_lower_case']} in {CONFIG}, but {lowercase} was asked for")
        names = _json_beside(file, NAMES) | config
        if file.name == DEFINITION:
            return _load_definition(file, names, lowercase)
        kind = KIND_OF_FILE.get(file.name, OTHER_NAME)
        published = kind.published.get(file.name)
        special = _special_tokens(names, published.special if published else kind.special)
        return _load_vocabulary(file, kind, config, special, lowercase)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # values of other types
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"{file}: it or a file beside it is not of a tokenizer ({reason:.200})") from error


def _find(path: pathlib.Path) -> pathlib.Path:
    """Return the file that defines the tokenizer."""
    candidates = (DEFINITION, *KIND_OF_FILE)
    if path.is_dir():
        found = [path / name for name in candidates if (path / name).exists()]
        if len(found) > 1 and found[0].name != DEFINITION:
            raise UserError(f"{path} holds both {found[0].name} and {found[1].name}; give the path of one of them")
    else:
        found = [path] if path.exists() else []
    if not found:
        raise UserError(
            f"{path}: no such vocabulary; give a directory made by `tokenizer`, or one with "
            f"{', '.join(candidates[:-1])} or {candidates[-1]}"
        )
    return found[0]


def _load_definition(file: pathlib.Path, config: Mapping[str, Any], lowercase: bool | None) -> Tokenizer:
    """Return the tokenizer of a `tokenizer.json`."""
    definition = tokenizer_json.complete(tokenizer_json.parse_json(_read(file), file.name))
    kind = kind_of(definition)
    special = _special_tokens(config, kind.special)
    tokens = tokenizer_json.tokens_of(definition)
    tokenizer_json.check_special_tokens(special, tokens)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # As transformers does for a file without these.
    definition = tokenizer_json.with_special_tokens(definition, special, vocabulary, kind.mask_takes_space)
    definition = tokenizer_json.with_post_processor(definition, special, vocabulary, kind.separators)
    tokenizer = build_tokenizer(definition, special)
    if lowercase is not None and lowercase != tokenizer.lowercase:
        raise UserError(f"lowercase is {tokenizer.lowercase} in it, but {lowercase} was asked for")
    for name, value in kind.config_settings(definition).items():
        if config.get(name, value) != value:
            raise UserError(f"{name} is {value} in it, but {config[name]} in {CONFIG}; make them equal")
    if kind.parse_tokens and (beside := file.with_name(kind.vocabulary_files[0])).exists():
        other = kind.parse_tokens(_read(beside))
        if list(tokens[: len(other)]) != other:
            raise UserError(
                f"{beside.name} beside it, of {len(other)} tokens, differs from its own vocabulary of {len(tokens)};"
                " remove the wrong file, or make both again"
            )
    return tokenizer


def _load_vocabulary(
    file: pathlib.Path,
    kind: TokenizerKind,
    config: Mapping[str, Any],
    special: SpecialTokens,
    lowercase: bool | None,
) -> Tokenizer:
    """Return the tokenizer of the vocabulary file of a kind."""
    published = kind.published.get(file.name)
    others = [file.with_name(name) for name in kind.vocabulary_files[1:]] if not published else []
    for other in others:
        if not other.exists():
            raise UserError(f"{other.name} is not beside it; this kind of vocabulary needs both files")
    parse = published.parse if published else kind.parse
    assert parse
    definition = parse([_read(file), *map(_read, others)], special, config, lowercase)
    tokenizer = build_tokenizer(definition, special)
    added = {token["content"] for token in (config.get("added_tokens_decoder") or {}).values()}
    unknown = (added | _json_beside(file, ADDED).keys()) - set(tokenizer.tokens)
    if unknown:
        raise UserError(
            f"tokens were added to this vocabulary in other files ({', '.join(sorted(unknown))}); save it with "
            f"transformers, which writes {DEFINITION}"
        )
    return tokenizer


def _special_tokens(config: Mapping[str, Any], usual: SpecialTokens) -> SpecialTokens:
    """Return the names of the special tokens; a config gives a name, or an object with the name as its `content`."""
    names: dict[str, str] = {}
    for role, name_of_role in usual._asdict().items():
        value = config.get(f"{role}_token") or name_of_role
        name = value.get("content") if isinstance(value, dict) else value
        if not isinstance(name, str):
            raise UserError(f"{role}_token in {CONFIG} or {NAMES} beside it is not a string; write the token as text")
        names[role] = name
    return SpecialTokens(**names)


def _json_beside(file: pathlib.Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file beside `file`; an empty one where there is no such file."""
    beside = file.with_name(name)
    return tokenizer_json.parse_json(_read(beside), name) if beside.exists() else {}


def _read(file: pathlib.Path) -> bytes:
    return strict_json.read_bytes(file, strict_json.MAX_TABLE_BYTES, file.name)
