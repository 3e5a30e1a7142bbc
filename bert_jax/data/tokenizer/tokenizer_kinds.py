"""The kinds of vocabularies, one row each: how its files are read and what differs in the use of it."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.data.tokenizer import byte_level, sentencepiece_model, tokenizer_json, wordpiece
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.errors import UserError


def _general(definition: Definition, special: Special) -> dict[str, Any]:
    return tokenizer_json.GENERAL


def _no_settings(definition: Definition) -> dict[str, Any]:
    return {}


class Kind(NamedTuple):
    """One kind."""

    name: str
    model: Mapping[str, str]  # what its model in tokenizer.json says
    pre_tokenizers: tuple[str, ...]  # one of these must be there; none: any will do
    special: Special  # what the special tokens are called where the directory does not say
    separators: int  # where tokenizer.json does not say
    continues: Callable[[Definition, Sequence[str]], list[bool]]  # whether each token goes on with the word before it
    word_prefix: str = ""  # before a word that is encoded alone, inside a sentence
    mask_takes_space: bool = False  # whether words hold the space before them, so that the mask token must
    file: str = ""  # raw vocabulary; "": none but tokenizer.json
    read: Callable[[pathlib.Path, Special, Mapping[str, Any], bool | None], Definition] | None = None
    tokens: Callable[[pathlib.Path], list[str]] | None = None  # of that file; None: costs another library
    content: Callable[[Definition, Sequence[str], Special], list[Any]] = tokenizer_json.content  # for a digest
    settings: Callable[[Definition], dict[str, Any]] = _no_settings  # what of it a tokenizer_config.json says too
    describe: Callable[[Definition, Special], dict[str, Any]] = _general  # the class that opens it in transformers
    writes_file: bool = False  # whether `file`, a token a line, is written beside tokenizer.json


KINDS = (
    Kind(
        name="wordpiece",
        model={"type": "WordPiece"},
        pre_tokenizers=(),
        special=wordpiece.SPECIAL,
        separators=wordpiece.SEPARATORS,
        continues=wordpiece.continues,
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
        model={"type": "BPE"},
        pre_tokenizers=("ByteLevel",),
        special=byte_level.SPECIAL,
        separators=byte_level.SEPARATORS,
        continues=byte_level.continues,
        word_prefix=" ",
        mask_takes_space=True,
        file="vocab.json",
        read=byte_level.read,
        tokens=byte_level.read_tokens,
    ),
    Kind(
        name="unigram",
        model={"type": "Unigram"},
        pre_tokenizers=("Metaspace",),
        special=sentencepiece_model.SPECIAL,
        separators=sentencepiece_model.SEPARATORS,
        continues=sentencepiece_model.continues,
        mask_takes_space=True,
        file="spiece.model",
        read=sentencepiece_model.read,
    ),
    Kind(
        name="sentencepiece_bpe",
        model={"type": "BPE"},
        pre_tokenizers=("Metaspace",),
        special=sentencepiece_model.SPECIAL,
        separators=sentencepiece_model.SEPARATORS,
        continues=sentencepiece_model.continues,
        mask_takes_space=True,  # its spiece.model is read by the row above
    ),
    Kind(
        name="bpe",
        model={"type": "BPE", "continuing_subword_prefix": wordpiece.PREFIX},
        pre_tokenizers=(),
        special=wordpiece.SPECIAL,
        separators=wordpiece.SEPARATORS,
        continues=wordpiece.continues,
    ),
)


def kind_of(definition: Definition) -> Kind:
    """The row of a definition; UserError where there is none."""
    model = definition["model"]
    pre_tokenizers = {part.get("type") for part in tokenizer_json.components(definition["pre_tokenizer"])}
    for kind in KINDS:
        if all(model.get(name) == value for name, value in kind.model.items()) and (
            not kind.pre_tokenizers or pre_tokenizers & set(kind.pre_tokenizers)
        ):
            return kind
    found = " with ".join([str(model["type"]), " and ".join(sorted(map(str, pre_tokenizers))) or "no pre_tokenizer"])
    raise UserError(
        f"a tokenizer of a kind that is not known ({found}); known are WordPiece, BPE that marks pieces inside words"
        f" {wordpiece.PREFIX}, byte-level BPE, and SentencePiece's unigram and BPE"
    )
