"""WordPiece as in BERT, DistilBERT and ELECTRA: `vocab.txt`, and how text is cleaned before it is split.

After google-research/bert, tokenization.py: text is cleaned, Chinese characters are parted, words are split at
whitespace and punctuation and then into the longest pieces of the vocabulary, a piece inside a word marked '##'.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.tokenizer import tokenizer_json
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.errors import UserError

SPECIAL = Special("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD = 100  # characters; a longer word is the unknown token
SEPARATORS = 1
PREFIX = "##"  # of a piece inside a word
DECODER = {"type": "WordPiece", "prefix": PREFIX, "cleanup": True}


class Normalizer(NamedTuple):
    """What happens to text before it is split; the field names are those of `tokenizer_config.json`."""

    do_lower_case: bool = True
    strip_accents: bool | None = None  # None: as do_lower_case
    tokenize_chinese_chars: bool = True


def define(tokens: Sequence[str], normalizer: Normalizer, special: Special = SPECIAL) -> Definition:
    """The definition of a vocabulary in the order of its ids; UserError for a token that is there twice."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        first, token = next((number, token) for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise UserError(
            f"{token!r} is on lines {first + 1} and {vocabulary[token] + 1}; the first is never used: rename it"
        )
    return tokenizer_json.assemble(
        special,
        vocabulary,
        SEPARATORS,
        mask_takes_space=False,
        **splitting(normalizer),
        decoder=DECODER,
        model={**_model(special), "vocab": vocabulary},
    )


def read(path: pathlib.Path, special: Special, config: Mapping[str, Any], lowercase: bool | None) -> Definition:
    """The definition of a `vocab.txt`.

    Args:
        path: one token a line, the id is the number of the line from 0.
        special: what the special tokens are called.
        config: of `tokenizer_config.json`, whose names of `Normalizer` are taken.
        lowercase: where the config does not say; None is uncased unless the vocabulary holds a capital letter.
    """
    tokens = read_tokens(path)
    known = {name: config[name] for name in Normalizer._fields if name in config}
    if "do_lower_case" not in known:
        if lowercase is None:
            words = (token for token in tokens if token not in special and not token.startswith("[unused"))
            lowercase = not any(token != token.lower() for token in words)
        known["do_lower_case"] = lowercase
    return define(tokens, Normalizer(**known), special)


def read_tokens(path: pathlib.Path) -> list[str]:
    """The lines of a `vocab.txt`; UserError where it is not UTF-8."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise UserError("not a UTF-8 text, so not a vocabulary") from None
    # Not splitlines: a vocabulary may hold the other characters that end a line in Unicode.
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def normalizer_of(definition: Definition) -> Normalizer:
    """What a WordPiece definition does to text, so far as `Normalizer` can say it."""
    part = next(iter(tokenizer_json.components(definition["normalizer"])), {})
    return Normalizer(
        bool(part.get("lowercase")), part.get("strip_accents"), bool(part.get("handle_chinese_chars", False))
    )


def is_plain(definition: Definition, special: Special) -> bool:
    """Whether the vocabulary, the names in `SPECIAL` and a `Normalizer` say all there is to say."""
    model = {name: value for name, value in definition["model"].items() if name != "vocab"}
    own = {"model": _model(special), **splitting(normalizer_of(definition))}
    added = {token["content"] for token in definition["added_tokens"]}
    same = all({**definition, "model": model}[name] == value for name, value in own.items())
    return same and special == SPECIAL and added <= set(SPECIAL)


def continues(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Whether each token goes on with the word before it."""
    prefix = definition["model"].get("continuing_subword_prefix") or PREFIX
    return [token.startswith(prefix) for token in tokens]


def content(definition: Definition, tokens: Sequence[str], special: Special) -> list[Any]:
    """All that decides which ids a text gets, for a digest."""
    if is_plain(definition, special):
        return ["wordpiece", list(tokens), normalizer_of(definition)._asdict(), MAX_WORD]
    return tokenizer_json.content(definition, tokens, special)


def describe(definition: Definition, special: Special) -> dict[str, Any]:
    """What `tokenizer_config.json` says so that transformers makes the same of it."""
    if is_plain(definition, special):
        return {"tokenizer_class": "BertTokenizer", **normalizer_of(definition)._asdict()}
    return tokenizer_json.GENERAL


def _model(special: Special) -> Definition:
    return {
        "type": "WordPiece",
        "unk_token": special.unk,
        "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": MAX_WORD,
    }


def splitting(normalizer: Normalizer) -> Definition:
    """The parts of a definition that clean text and part it into words."""
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalizer.tokenize_chinese_chars,
            "strip_accents": normalizer.strip_accents,
            "lowercase": normalizer.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }
