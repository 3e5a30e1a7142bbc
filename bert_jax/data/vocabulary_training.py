"""Vocabularies made from text."""

import collections
from collections.abc import Callable, Iterable, Iterator

import tokenizers
from tokenizers import trainers

from bert_jax.errors import UserError

LIMIT_ALPHABET = 1000  # characters that a trained vocabulary knows one by one; rarer ones become [UNK]
MIN_FREQUENCY = 2  # of a piece that training makes
MAX_TEXT = 8192  # characters that the library is given at once; its memory is a hundred times that


def train_wordpiece(
    documents: Callable[[], Iterable[str]],
    vocab_size: int,
    untrained: tokenizers.Tokenizer,
    special_tokens: Iterable[str],
) -> list[str]:
    """The tokens of a WordPiece vocabulary in the order of ids; the same text gives the same.

    Args:
        documents: gives the texts from the first on each time it is called, which is twice.
        vocab_size: special tokens included.
        untrained: normalises and splits text; changed in place.
        special_tokens: come first.

    Raises:
        UserError: no text, or a size that the text cannot fill or that its characters alone overflow.
    """
    characters, inside_words = _alphabet(documents(), untrained)
    if not characters:
        raise UserError("the text to train a vocabulary from is empty; give files with words in them")
    # The library numbers inner characters in the order of a hash map, and ties between pieces are broken by number.
    # Listed among the special tokens they have a fixed order, and two runs agree.
    first = [*special_tokens, *("##" + character for character in inside_words)]
    least = len(first) + len(characters)
    if vocab_size < least:
        raise UserError(f"--vocab_size {vocab_size:,} is too small: special tokens and characters alone are {least:,}")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=first,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
    )
    pieces = (piece for text in documents() for piece in cut_text(text))
    untrained.train_from_iterator(pieces, trainer)
    numbers = untrained.get_vocab()
    if len(numbers) < vocab_size:
        raise UserError(
            f"the text fills a vocabulary of {len(numbers):,} tokens, not of {vocab_size:,};"
            f" give more text or --vocab_size {len(numbers)}"
        )
    return sorted(numbers, key=numbers.__getitem__)


def cut_text(text: str, limit: int = MAX_TEXT) -> Iterator[str]:
    """The text in pieces of at most `limit` characters, cut after a space or line end where there is one."""
    start = 0
    while len(text) - start > limit:
        end = start + limit
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = space + 1 if space > start else end
        yield text[start:end]
        start = end
    yield text[start:]


def _alphabet(documents: Iterable[str], tokenizer: tokenizers.Tokenizer) -> tuple[list[str], list[str]]:
    """The commonest `LIMIT_ALPHABET` characters after normalising, and those of them that can stand inside a word."""
    raw: collections.Counter[str] = collections.Counter()
    for text in documents:
        raw.update(text)
    counts: collections.Counter[str] = collections.Counter()
    for character, count in raw.items():
        for normal in tokenizer.normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    common = sorted(counts, key=lambda character: (-counts[character], character))[:LIMIT_ALPHABET]
    inside = [c for c in common if len(tokenizer.pre_tokenizer.pre_tokenize_str("x" + c)) == 1]
    return sorted(common), sorted(inside)
