"""Byte-level BPE as in RoBERTa: `vocab.json` and `merges.txt`.

After Radford et al. 2019 (GPT-2) and Liu et al. 2019 (RoBERTa): text is split into words that hold the space before
them, their bytes are written as printable characters, and pairs are merged in the order of `merges.txt`.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.data.tokenizer import tokenizer_json
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.errors import UserError

SPECIAL = Special("<pad>", "<unk>", "<s>", "</s>", "<mask>")
SEPARATORS = 2
MERGES = "merges.txt"
SPACES = ("Ġ", "Ċ", "ĉ", "č")  # how the bytes of a space, a line feed, a tab and a carriage return are written


def define(
    vocabulary: Mapping[str, int],
    merges: Sequence[Sequence[str]],
    special: Special = SPECIAL,
    add_prefix_space: bool = False,
    lowercase: bool = False,
) -> Definition:
    """The definition of a vocabulary (token -> id) and its merges, first to last.

    With `add_prefix_space` the first word of a text is encoded as one inside it; RoBERTa's is not. RoBERTa's is not
    `lowercase` either.
    """
    space = {"add_prefix_space": add_prefix_space, "trim_offsets": True}
    byte_level = {"type": "ByteLevel", **space, "use_regex": True}
    definition = tokenizer_json.assemble(
        special,
        vocabulary,
        SEPARATORS,
        mask_takes_space=True,
        normalizer={"type": "Lowercase"} if lowercase else None,
        pre_tokenizer=byte_level,
        decoder=byte_level,
        model={
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "vocab": dict(vocabulary),
            "merges": [list(pair) for pair in merges],
        },
    )
    return {**definition, "post_processor": {**definition["post_processor"], **space}}


def continues(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Whether each token goes on with the word before it: its first byte is no space or line end."""
    return [not token.startswith(SPACES) for token in tokens]


def read(path: pathlib.Path, special: Special, config: Mapping[str, Any], lowercase: bool | None) -> Definition:
    """The definition of a `vocab.json` and the `merges.txt` beside it.

    Raises:
        UserError: a file is missing or broken, ids have holes, a merge is no pair of tokens, or lower case is asked.
    """
    if lowercase:
        raise UserError("a byte-level vocabulary tells capitals from small letters; it cannot be uncased")
    tokens = read_tokens(path)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer_json.check_special_tokens(special, vocabulary)
    merges = _read_merges(path.with_name(MERGES), vocabulary)
    return define(vocabulary, merges, special, bool(config.get("add_prefix_space")))


def read_tokens(path: pathlib.Path) -> list[str]:
    """The tokens of a `vocab.json` in the order of ids; UserError as `tokenizer_json.in_order`."""
    return list(tokenizer_json.in_order(tokenizer_json.read_json(path)))


def _read_merges(path: pathlib.Path, vocabulary: Mapping[str, int]) -> list[list[str]]:
    try:
        lines = path.read_bytes().decode().split("\n")
    except OSError:
        raise UserError(f"{MERGES} is not beside it; a byte-level vocabulary is the two of them") from None
    except UnicodeDecodeError:
        raise UserError(f"{MERGES} beside it is not a UTF-8 text") from None
    merges = []
    for number, line in enumerate(lines, 1):
        pair = line.rstrip("\r").split(" ")
        if pair == [""] or (number == 1 and line.startswith("#version")):
            continue
        if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys():
            raise UserError(f"{MERGES} beside it, line {number}: {line!r} does not merge two tokens of the vocabulary")
        merges.append(pair)
    return merges
