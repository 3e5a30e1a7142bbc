"""WordPiece as in BERT, DistilBERT and ELECTRA: `vocab.txt`.

After google-research/bert, tokenization.py: each word is split into the longest pieces of the vocabulary; a piece that
continues a word begins with '##'.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenizer import bert_words, bpe, tokenizer_json
from bert_jax.tokenizer.bert_words import DECODER, PREFIX, SEPARATORS, SPECIAL, Normalizer, normalizer_of
from bert_jax.tokenizer.pair_merging import TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

MAX_WORD = 100  # characters; a longer word becomes the unknown token


def define(tokens: Sequence[str], normalizer: Normalizer, special: SpecialTokens = SPECIAL) -> Definition:
    """Return the definition of a vocabulary given in the order of ids.

    Raises:
        UserError: a token occurs twice, or a special token is missing.
    """
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
        **bert_words.splitting(normalizer),
        decoder=DECODER,
        model={**_model(special), "vocab": vocabulary},
    )


def parse(
    files: Sequence[bytes], special: SpecialTokens, config: Mapping[str, Any], lowercase: bool | None
) -> Definition:
    """Return the definition of a `vocab.txt`, whose line numbers from 0 are the ids; see `TokenizerKind.parse`."""
    tokens = parse_tokens(files[0])
    settings = {name: config[name] for name in Normalizer._fields if name in config}
    if "do_lower_case" not in settings:
        if lowercase is None:
            words = (token for token in tokens if token not in special and not token.startswith("[unused"))
            lowercase = not any(token != token.lower() for token in words)
        settings["do_lower_case"] = lowercase
    return define(tokens, Normalizer(**settings), special)


def parse_tokens(data: bytes) -> list[str]:
    """Return the lines of a `vocab.txt`; UserError where it is not UTF-8."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UserError("not a UTF-8 text, so not a vocabulary") from None
    # Not splitlines: a vocabulary may hold the other characters that end a line in Unicode.
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def config_settings(definition: Definition) -> dict[str, Any]:
    """Return the settings that a `tokenizer_config.json` repeats."""
    return normalizer_of(definition)._asdict()


def content(definition: Definition, tokens: Sequence[str], special: SpecialTokens) -> list[Any]:
    """Return everything that decides the ids of a text, for a digest."""
    if _is_plain(definition, special):
        return ["wordpiece", list(tokens), normalizer_of(definition)._asdict(), MAX_WORD]
    return tokenizer_json.content(definition, tokens, special)


def tokenizer_config(definition: Definition, special: SpecialTokens) -> dict[str, Any]:
    """Return the entries of `tokenizer_config.json` by which transformers builds the same tokenizer."""
    if _is_plain(definition, special):
        return {"tokenizer_class": "BertTokenizer", **normalizer_of(definition)._asdict()}
    return tokenizer_json.GENERAL_CONFIG


def train_wordpiece(text: TrainingText, vocab_size: int, lowercase: bool) -> TrainedVocabulary:
    """Return a WordPiece vocabulary of exactly `vocab_size` tokens, special tokens included.

    Memory grows with the number of distinct words, not with the text.

    Raises:
        UserError: no text, or a size that the text cannot fill or that its characters alone exceed.
    """
    normalizer = Normalizer(do_lower_case=lowercase)
    tokens, _ = bpe.merge_within_words(text, vocab_size, normalizer)
    return TrainedVocabulary(define(tokens, normalizer))


def _is_plain(definition: Definition, special: SpecialTokens) -> bool:
    """Return whether the vocabulary, the names in `SPECIAL` and a `Normalizer` describe the definition completely."""
    model = {name: value for name, value in definition["model"].items() if name != "vocab"}
    own = {"model": _model(special), **bert_words.splitting(normalizer_of(definition))}
    added = {token["content"] for token in definition["added_tokens"]}
    same = all({**definition, "model": model}[name] == value for name, value in own.items())
    return same and special == SPECIAL and added <= set(SPECIAL)


def _model(special: SpecialTokens) -> Definition:
    return {
        "type": "WordPiece",
        "unk_token": special.unk,
        "continuing_subword_prefix": PREFIX,
        "max_input_chars_per_word": MAX_WORD,
    }
