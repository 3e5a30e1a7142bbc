"""The kinds of vocabularies, one row each: how its files are read and what differs in the use of it."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data import byte_level, sentencepiece_model, tokenizer_json, wordpiece
from bert_jax.data.tokenizer_json import Definition, Special
from bert_jax.errors import UserError


class Kind(NamedTuple):
    """One kind."""

    name: str
    model: str  # its type in tokenizer.json
    pre_tokenizers: tuple[str, ...]  # one of these must be there; none: any will do
    special: Special  # what the special tokens are called where the directory does not say
    separators: int  # where tokenizer.json does not say
    word_prefix: str  # before a word that is encoded alone, inside a sentence
    file: str  # raw vocabulary
    read: Callable[[pathlib.Path, Special, Mapping[str, Any], bool | None], Definition]
    tokens: Callable[[pathlib.Path], list[str]] | None  # of that file; None: costs another library
    content: Callable[[Definition, Sequence[str], Special], list[Any]]  # for a digest
    settings: Callable[[Definition], dict[str, Any]]  # what of it a tokenizer_config.json says too
    describe: Callable[[Definition, Special], dict[str, Any]]  # the class that opens it in transformers
    writes_file: bool  # whether `file`, a token a line, is written beside tokenizer.json


KINDS = (
    Kind(
        name="wordpiece",
        model="WordPiece",
        pre_tokenizers=(),
        special=wordpiece.SPECIAL,
        separators=wordpiece.SEPARATORS,
        word_prefix="",
        file="vocab.txt",
        read=wordpiece.read,
        tokens=wordpiece.read_tokens,
        content=wordpiece.content,
        settings=lambda definition: wordpiece.normalizer_of(definition)._asdict(),
        describe=wordpiece.describe,
        writes_file=True,
    ),
    Kind(
        name="byte_level",
        model="BPE",
        pre_tokenizers=("ByteLevel",),
        special=byte_level.SPECIAL,
        separators=byte_level.SEPARATORS,
        word_prefix=" ",
        file="vocab.json",
        read=byte_level.read,
        tokens=byte_level.read_tokens,
        content=tokenizer_json.content,
        settings=lambda definition: {},
        describe=lambda definition, special: tokenizer_json.GENERAL,
        writes_file=False,
    ),
    Kind(
        name="unigram",
        model="Unigram",
        pre_tokenizers=("Metaspace",),
        special=sentencepiece_model.SPECIAL,
        separators=sentencepiece_model.SEPARATORS,
        word_prefix="",
        file="spiece.model",
        read=sentencepiece_model.read,
        tokens=None,
        content=tokenizer_json.content,
        settings=lambda definition: {},
        describe=lambda definition, special: tokenizer_json.GENERAL,
        writes_file=False,
    ),
)


def kind_of(definition: Definition) -> Kind:
    """The row of a definition; UserError where there is none."""
    model = definition["model"]["type"]
    pre_tokenizers = {part.get("type") for part in tokenizer_json.components(definition["pre_tokenizer"])}
    for kind in KINDS:
        if kind.model == model and (not kind.pre_tokenizers or pre_tokenizers & set(kind.pre_tokenizers)):
            return kind
    found = " with ".join([str(model), " and ".join(sorted(map(str, pre_tokenizers))) or "no pre_tokenizer"])
    raise UserError(f"a tokenizer of a kind that is not known ({found}); known are WordPiece, byte-level BPE, unigram")
