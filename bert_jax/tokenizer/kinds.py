"""TOKENIZERS, the table of tokenizer kinds: how each kind is trained and used."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenizer import byte_level, sentencepiece, tokenizer_json, wordpiece
from bert_jax.tokenizer.pair_merging import TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens


def _general_class_config(definition: Definition, special: SpecialTokens) -> dict[str, Any]:
    """Return the tokenizer_config.json of a kind for which transformers has no specific class."""
    return tokenizer_json.GENERAL_CONFIG


def _no_settings(definition: Definition) -> dict[str, Any]:
    """Return {}, the settings of a kind that has no settings in tokenizer_config.json."""
    return {}


Train = Callable[[TrainingText, int, bool], TrainedVocabulary]  # (text, vocab_size, lowercase) -> vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerKind:
    """A kind of tokenizer: how it is recognized, trained and used; a row of TOKENIZERS.

    Attributes:
        name: value of `--kind`.
        model: entries of the model in tokenizer.json that identify the kind.
        pre_tokenizers: types of pre-tokenizers; tokenizer.json must have at least one of these types; (): no condition.
        special: names of the special tokens if the directory does not give them.
        separators: number of separators between the texts of a pair if tokenizer.json does not give this number.
        continues: function (definition, tokens) -> for each token, whether it continues the word before it.
        train: value of `--normalization` -> function that trains a vocabulary; the first value is the default.
        trains_in_memory: True if training holds the text in memory.
        keeps_single_occurrences: True if training may make a token of a string that occurs only once.
        word_prefix: prefix with which a single word is encoded like a word inside a sentence.
        mask_takes_space: True if words include the space before them, so that the mask token must include the space
            before it, too.
        vocabulary_files: names of the files other than tokenizer.json that hold a vocabulary; the first name identifies
            the kind.
        parse_tokens: function from the content of the first vocabulary file to its tokens in the order of ids; None:
            reading the file needs another library, so the tokens are not compared with tokenizer.json.
        digest_content: function (definition, tokens, special tokens) -> everything that decides the ids of a text.
        config_settings: function from a definition to the settings of tokenizer_config.json that the definition
            implements.
        tokenizer_config: function (definition, special tokens) -> the class of transformers that opens the tokenizer,
            and its settings.
        writes_vocabulary: True if saving also writes the first vocabulary file, with a token per line.
    """

    name: str
    model: Mapping[str, str]
    pre_tokenizers: tuple[str, ...]
    special: SpecialTokens
    separators: int
    continues: Callable[[Definition, Sequence[str]], list[bool]]
    train: Mapping[str, Train]
    trains_in_memory: bool = False
    keeps_single_occurrences: bool = False
    word_prefix: str = ""
    mask_takes_space: bool = False
    vocabulary_files: tuple[str, ...] = ()
    parse_tokens: Callable[[bytes], list[str]] | None = None
    digest_content: Callable[[Definition, Sequence[str], SpecialTokens], list[Any]] = (
        tokenizer_json.content_that_decides_ids
    )
    config_settings: Callable[[Definition], dict[str, Any]] = _no_settings
    tokenizer_config: Callable[[Definition, SpecialTokens], dict[str, Any]] = _general_class_config
    writes_vocabulary: bool = False


def _train_by_normalization(train: Callable[..., TrainedVocabulary], names: Iterable[str]) -> dict[str, Train]:
    """Return a dict: name of a normalization -> function that trains a vocabulary with this normalization."""
    return {name: functools.partial(train, normalization=name) for name in names}


_KINDS = (
    TokenizerKind(
        name="wordpiece",
        model={"type": "WordPiece"},
        pre_tokenizers=(),
        special=wordpiece.SPECIAL,
        separators=wordpiece.SEPARATORS,
        continues=wordpiece.wordpiece_continuation_flags,
        train={"bert": wordpiece.train_wordpiece},
        vocabulary_files=("vocab.txt",),
        parse_tokens=wordpiece.vocab_txt_tokens,
        digest_content=wordpiece.wordpiece_digest_content,
        config_settings=wordpiece.wordpiece_settings,
        tokenizer_config=wordpiece.wordpiece_tokenizer_config,
        writes_vocabulary=True,
    ),
    TokenizerKind(
        name="bpe",
        model={"type": "BPE", "continuing_subword_prefix": wordpiece.PREFIX},
        pre_tokenizers=(),
        special=wordpiece.SPECIAL,
        separators=wordpiece.SEPARATORS,
        continues=wordpiece.wordpiece_continuation_flags,
        train={"bert": wordpiece.train_bpe},
    ),
    TokenizerKind(
        name="byte_level",
        model={"type": "BPE"},
        pre_tokenizers=("ByteLevel",),
        special=byte_level.SPECIAL,
        separators=byte_level.SEPARATORS,
        continues=byte_level.byte_level_continuation_flags,
        train=_train_by_normalization(byte_level.train_byte_level, byte_level.NORMALIZATIONS),
        word_prefix=" ",
        mask_takes_space=True,
        vocabulary_files=(byte_level.VOCABULARY, byte_level.MERGES),
        config_settings=byte_level.byte_level_settings,
        parse_tokens=byte_level.vocab_json_tokens,
    ),
    TokenizerKind(
        name="unigram",
        model={"type": "Unigram"},
        pre_tokenizers=("Metaspace",),
        special=sentencepiece.SPECIAL,
        separators=sentencepiece.SEPARATORS,
        continues=sentencepiece.sentencepiece_continuation_flags,
        train=_train_by_normalization(sentencepiece.train_unigram, sentencepiece.NORMALIZATIONS),
        trains_in_memory=True,
        mask_takes_space=True,
        vocabulary_files=(sentencepiece.FILE,),
        config_settings=sentencepiece.sentencepiece_settings,
    ),
    TokenizerKind(
        name="sentencepiece_bpe",
        model={"type": "BPE"},
        pre_tokenizers=("Metaspace",),
        special=sentencepiece.SPECIAL,
        separators=sentencepiece.SEPARATORS,
        continues=sentencepiece.sentencepiece_continuation_flags,
        train=_train_by_normalization(sentencepiece.train_sentencepiece_bpe, sentencepiece.NORMALIZATIONS),
        trains_in_memory=True,
        keeps_single_occurrences=True,
        mask_takes_space=True,
        config_settings=sentencepiece.sentencepiece_settings,
    ),
)
TOKENIZERS = {kind.name: kind for kind in _KINDS}  # `tokenizer_kind_of` returns the first kind that fits


def tokenizer_kind_of(definition: Definition) -> TokenizerKind:
    """Return the kind of tokenizer that a definition describes; raise UserError for an unknown kind."""
    model = definition["model"]
    pre_tokenizers = {part.get("type") for part in tokenizer_json.steps_of_part(definition["pre_tokenizer"])}
    for kind in TOKENIZERS.values():
        if all(model.get(name) == value for name, value in kind.model.items()) and (
            not kind.pre_tokenizers or pre_tokenizers & set(kind.pre_tokenizers)
        ):
            return kind
    description = " with ".join(
        [str(model["type"]), " and ".join(sorted(map(str, pre_tokenizers))) or "no pre_tokenizer"]
    )
    raise UserError(
        f"an unknown kind of tokenizer ({description}); supported are WordPiece, BPE that marks pieces inside words"
        f" {wordpiece.PREFIX}, byte-level BPE, and SentencePiece's unigram and BPE"
    )
