"""Training of vocabularies by merging pairs, for several kinds, and the types `TrainingText` and `TrainedVocabulary`.

The method is from Sennrich, Haddow and Birch 2016, with the trainer of the library `tokenizers`. Equal texts give equal
vocabularies in any process: nothing depends on the order of the library's hash maps.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tokenizers
from tokenizers import trainers

from bert_jax.errors import UserError
from bert_jax.tokenizer import tokenizer_json
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

ALPHABET = 1000  # number of most frequent characters that every vocabulary contains
COVERAGE = 0.9995  # further characters are added until this fraction of the text is covered; the rest is unknown
MIN_FREQUENCY = 2  # minimum frequency of a piece that training adds
MAX_TEXT = 8192  # maximum characters per call of the library, which needs a hundred times the memory of the text


class TrainingText(NamedTuple):
    """The text on which a vocabulary is trained."""

    pieces: Callable[[], Iterable[str]]  # each call yields all pieces of the text again
    characters: Mapping[str, float]  # character -> its frequency in the text


class TrainedVocabulary(NamedTuple):
    """A trained vocabulary as a definition, and further files to save next to its tokenizer.json."""

    definition: Definition
    files: Mapping[str, bytes] = {}


def required_characters(counts: Mapping[str, float], normalize: Callable[[str], str]) -> list[str]:
    """Return the normalized characters, except spaces, that a vocabulary must contain, in the order of code points."""
    weights: dict[str, float] = {}
    for character in sorted(counts):  # a fixed order, because sums of floats depend on the order
        for normal in normalize(character):
            if not normal.isspace():
                weights[normal] = weights.get(normal, 0.0) + counts[character]
    frequent = sorted(weights, key=lambda character: (-weights[character], character))
    covered = itertools.accumulate(weights[character] for character in frequent)
    enough = sum(total < COVERAGE * sum(weights.values()) for total in covered) + 1
    return sorted(frequent[: max(enough, ALPHABET)])


def check_text_has_characters(text: TrainingText) -> None:
    """Raise UserError for a text without characters other than spaces."""
    if all(character.isspace() for character in text.characters):
        raise UserError("the text to train a vocabulary from is empty; give files with words in them")


class VocabularyNotFullError(UserError):
    """The text has too few different words for a vocabulary of the requested size; the text can fill `num_tokens`."""

    def __init__(self, message: str, num_tokens: int):
        super().__init__(message)
        self.num_tokens = num_tokens


def check_vocabulary_is_full(num_tokens: int, vocab_size: int) -> None:
    """Raise VocabularyNotFullError if training made fewer tokens than requested."""
    if num_tokens < vocab_size:
        raise VocabularyNotFullError(
            f"the text fills a vocabulary of {num_tokens:,} tokens, not of {vocab_size:,};"
            f" give more text or --vocab_size {num_tokens}",
            num_tokens,
        )


def vocabulary_too_small_error(vocab_size: int, least: int) -> UserError:
    """Return the error for a vocabulary size below `least`, the minimum size for the text."""
    return UserError(f"--vocab_size {vocab_size:,} is too small: special tokens and characters alone are {least:,}")


def cut_text(text: str, limit: int = MAX_TEXT) -> Iterator[str]:
    """Yield the text in pieces of at most `limit` characters, each cut after its last space or line end if possible."""
    start = 0
    while len(text) - start > limit:
        end = start + limit
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = space + 1 if space > start else end
        yield text[start:end]
        start = end
    yield text[start:]


class TokensAndMerges(NamedTuple):
    """The tokens of a vocabulary in the order of ids, and its merges in the order of learning."""

    tokens: list[str]
    merges: list[list[str]]


def learn_merges(
    pieces: Iterable[str],
    vocab_size: int,
    untrained: Definition,
    special: SpecialTokens,
    first: Sequence[str],
    characters: Sequence[str],
    prefix: str = "",
) -> TokensAndMerges:
    """Learn a BPE vocabulary; return its tokens in the order of ids, and its merges in the order of learning.

    Args:
        pieces: the text in pieces.
        vocab_size: number of tokens.
        untrained: definition that splits text into words.
        special: names of the special tokens.
        first: tokens with the lowest ids, in order.
        characters: the characters that the vocabulary must contain.
        prefix: prefix of a piece that continues a word.

    Raises:
        UserError: the size is too small for `first` and `characters`, or the text cannot fill the vocabulary.
    """
    least = len(first) + len(characters)
    if vocab_size < least:
        raise vocabulary_too_small_error(vocab_size, least)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=list(first),
        initial_alphabet=list(characters),
        limit_alphabet=len(characters),
        continuing_subword_prefix=prefix,
    )
    plain = tokenizer_json.without_special_tokens(untrained, special)
    library = tokenizers.Tokenizer.from_str(json.dumps(plain))
    library.train_from_iterator(pieces, trainer)
    ids = library.get_vocab()
    check_vocabulary_is_full(len(ids), vocab_size)
    return TokensAndMerges(sorted(ids, key=ids.__getitem__), json.loads(library.to_str())["model"]["merges"])
