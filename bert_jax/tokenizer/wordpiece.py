"""WordPiece (as in BERT, DistilBERT and ELECTRA; `vocab.txt`) and BPE; both methods split BERT's words into pieces.

As in google-research/bert, tokenization.py, text is cleaned, Chinese characters are separated, and the text is split at
white space and punctuation. A piece that continues a word begins with '##'. WordPiece splits each word into the longest
pieces of the vocabulary. BPE (Sennrich, Haddow and Birch 2016) merges pairs of pieces in the order of learning.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenizer import pair_merging, tokenizer_json
from bert_jax.tokenizer.pair_merging import TokensAndMerges, TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

SPECIAL = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SEPARATORS = 1
PREFIX = "##"  # prefix of a piece that continues a word
NORMALIZER = "BertNormalizer"
MAX_WORD = 100  # maximum characters of a word; WordPiece encodes a longer word as the unknown token
WORDPIECE_MODEL: Definition = {
    "type": "WordPiece",
    "unk_token": SPECIAL.unk,
    "continuing_subword_prefix": PREFIX,
    "max_input_chars_per_word": MAX_WORD,
}
DECODER = {"type": "WordPiece", "prefix": PREFIX, "cleanup": True}


class Normalizer(NamedTuple):
    """Normalization of text before it is split; the fields are named as in `tokenizer_config.json`."""

    do_lower_case: bool = True
    strip_accents: bool | None = None  # None: accents are stripped if do_lower_case is True
    tokenize_chinese_chars: bool = True


def word_splitting_steps(normalizer: Normalizer) -> Definition:
    """Return the parts of a definition that clean text and split it into words."""
    return {
        "normalizer": {
            "type": NORMALIZER,
            "clean_text": True,
            "handle_chinese_chars": normalizer.tokenize_chinese_chars,
            "strip_accents": normalizer.strip_accents,
            "lowercase": normalizer.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


def normalizer_of(definition: Definition) -> Normalizer:
    """Return the normalizer of a definition; steps that `Normalizer` cannot express are left out."""
    part = next(iter(tokenizer_json.steps_of_part(definition["normalizer"])), {})
    return Normalizer(
        bool(part.get("lowercase")), part.get("strip_accents"), bool(part.get("handle_chinese_chars", False))
    )


def wordpiece_continuation_flags(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Return, for each token, whether it has the prefix (such as '##') of a token that continues the word before it."""
    prefix = definition["model"].get("continuing_subword_prefix") or PREFIX
    return [token.startswith(prefix) for token in tokens]


def define_wordpiece(
    tokens: Sequence[str],
    normalizer: Normalizer,
    special: SpecialTokens = SPECIAL,
    separators: int = SEPARATORS,
    mask_takes_space: bool = False,
) -> Definition:
    """Return the definition of a WordPiece tokenizer from its tokens in the order of ids.

    The other arguments are as in `tokenizer_json.assemble_definition`.

    Raises:
        UserError: a token occurs twice, or a special token is missing.
    """
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        first_id, token = next((i, token) for i, token in enumerate(tokens) if vocabulary[token] != i)
        raise UserError(
            f"{token!r} is on lines {first_id + 1} and {vocabulary[token] + 1}; the first is never used, so rename it"
        )
    model = {**WORDPIECE_MODEL, "unk_token": special.unk, "vocab": vocabulary}
    return _define_with_bert_words(special, vocabulary, normalizer, model, separators, mask_takes_space)


def define_bpe(tokens: Sequence[str], merges: Sequence[Sequence[str]], normalizer: Normalizer) -> Definition:
    """Return the definition of a BPE tokenizer from tokens (in the order of ids) and merges (as learned)."""
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": SPECIAL.unk,
        "continuing_subword_prefix": PREFIX,
        "end_of_word_suffix": None,
        "fuse_unk": True,  # consecutive unknown characters of a word become one token
        "byte_fallback": False,
        "vocab": vocabulary,
        "merges": [list(pair) for pair in merges],
    }
    return _define_with_bert_words(SPECIAL, vocabulary, normalizer, model)


def _define_with_bert_words(
    special: SpecialTokens,
    vocabulary: Mapping[str, int],
    normalizer: Normalizer,
    model: Definition,
    separators: int = SEPARATORS,
    mask_takes_space: bool = False,
) -> Definition:
    """Return the definition of a tokenizer that splits text into BERT's words, and words into pieces by `model`."""
    return tokenizer_json.assemble_definition(
        special,
        vocabulary,
        separators,
        mask_takes_space=mask_takes_space,
        **word_splitting_steps(normalizer),
        decoder=DECODER,
        model=model,
    )


def parse_vocab_txt(
    files: Sequence[bytes],
    special: SpecialTokens,
    config: Mapping[str, Any],
    lowercase: bool | None,
    separators: int = SEPARATORS,
    mask_takes_space: bool = False,
) -> Definition:
    """Return the definition of a tokenizer from the bytes of its `vocab.txt`; the line numbers from 0 are the ids.

    The arguments are as in `TokenizerClass.parse`.
    """
    tokens = vocab_txt_tokens(files[0])
    settings = {name: config[name] for name in Normalizer._fields if name in config}
    if "do_lower_case" not in settings:
        if lowercase is None:
            words = (token for token in tokens if token not in special and not token.startswith("[unused"))
            lowercase = not any(token != token.lower() for token in words)
        settings["do_lower_case"] = lowercase
    return define_wordpiece(tokens, Normalizer(**settings), special, separators, mask_takes_space)


def vocab_txt_tokens(data: bytes) -> list[str]:
    """Return the tokens of a `vocab.txt`, a token per line; raise UserError for a file that is not UTF-8.

    A byte order mark is removed. Spaces after a token are removed as well, as in the library `tokenizers`.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError("not a UTF-8 text, so this is not a vocabulary") from None
    # The text is not split by `splitlines`, because a token may contain other characters that end a line in Unicode.
    return [line.rstrip(" \t\r") or line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def wordpiece_settings(definition: Definition) -> dict[str, Any]:
    """Return the settings of `tokenizer_config.json` that a WordPiece definition implements."""
    return normalizer_of(definition)._asdict()


def wordpiece_digest_content(definition: Definition, tokens: Sequence[str], special: SpecialTokens) -> list[Any]:
    """Return all parts of a WordPiece definition that decide the token ids of a text, for a digest."""
    if _has_only_bert_settings(definition, special):
        return ["wordpiece", list(tokens), normalizer_of(definition)._asdict(), MAX_WORD]
    return tokenizer_json.content_that_decides_ids(definition, tokens, special)


def wordpiece_tokenizer_config(definition: Definition, special: SpecialTokens) -> dict[str, Any]:
    """Return the entries of `tokenizer_config.json` with which transformers builds an equal tokenizer."""
    if (
        _has_only_bert_settings(definition, special)
        and tokenizer_json.pair_layout(definition, special)[0] == SEPARATORS
    ):
        return {"tokenizer_class": "BertTokenizer", **normalizer_of(definition)._asdict()}
    return tokenizer_json.GENERAL_CONFIG


def _has_only_bert_settings(definition: Definition, special: SpecialTokens) -> bool:
    """Return whether the vocabulary, the names in `SPECIAL` and a `Normalizer` describe the definition completely."""
    model = {name: value for name, value in definition["model"].items() if name != "vocab"}
    added = {token["content"] for token in definition["added_tokens"]}
    parts = word_splitting_steps(normalizer_of(definition))
    is_plain = model == WORDPIECE_MODEL and all(definition[name] == value for name, value in parts.items())
    return is_plain and special == SPECIAL and added <= set(SPECIAL)


def train_wordpiece(text: TrainingText, vocab_size: int, lowercase: bool) -> TrainedVocabulary:
    """Return a WordPiece vocabulary of exactly `vocab_size` tokens, special tokens included.

    Memory grows with the number of distinct words, not with the text.

    Raises:
        UserError: there is no text, the text cannot fill a vocabulary of this size, or its distinct characters already
            exceed the size.
    """
    normalizer = Normalizer(do_lower_case=lowercase)
    tokens, _ = _learn_merges_within_words(text, vocab_size, normalizer)
    return TrainedVocabulary(define_wordpiece(tokens, normalizer))


def train_bpe(text: TrainingText, vocab_size: int, lowercase: bool) -> TrainedVocabulary:
    """Return a BPE vocabulary of exactly `vocab_size` tokens; memory and errors are as in `train_wordpiece`."""
    normalizer = Normalizer(do_lower_case=lowercase)
    return TrainedVocabulary(define_bpe(*_learn_merges_within_words(text, vocab_size, normalizer), normalizer))


def _learn_merges_within_words(text: TrainingText, vocab_size: int, normalizer: Normalizer) -> TokensAndMerges:
    """Learn merges within BERT's words; return tokens in the order of ids, and merges in the order of learning."""
    untrained = define_bpe(SPECIAL, (), normalizer)
    library = tokenizers.Tokenizer.from_str(json.dumps(untrained))
    pair_merging.check_text_has_characters(text)
    characters = pair_merging.required_characters(text.characters, library.normalizer.normalize_str)
    after = {character: library.normalizer.normalize_str("x" + character) for character in characters}
    is_one_word = {character: len(library.pre_tokenizer.pre_tokenize_str(after[character])) == 1 for character in after}
    # The library numbers the characters inside words in the order of a hash map, and these numbers break ties between
    # pieces. A list of the characters among the special tokens fixes their order, so that two runs give equal
    # vocabularies.
    first = [*SPECIAL, *(PREFIX + character for character in characters if is_one_word[character])]
    return pair_merging.learn_merges(text.pieces(), vocab_size, untrained, SPECIAL, first, characters, PREFIX)
