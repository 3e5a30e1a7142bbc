"""Quality and repetition as in Gopher (Rae et al. 2021, appendix A.1.1 and table A1), with its thresholds.

Words are separated by white space, so these rules do not fit Chinese, Japanese, Thai, Khmer, Lao and Burmese.
"""

import re
import string
from collections.abc import Sequence

import numpy as np

from bert_jax.corpus.build.cleaning.texts import ELLIPSES, Removed, fraction_of, lines_of, word_hashes, words_of
from bert_jax.corpus.build.signatures import hash_ngrams

_PUNCTUATION = string.punctuation + "\u2018\u2019\u201c\u201d\u2026"
_PARAGRAPH_END = re.compile(r"\n\s*\n")
_FIRST_DUPLICATE = 5  # words of the shortest n-gram of `repeated_ngrams`


def word_count(text: str, *, min_words: int = 50, max_words: int = 100_000) -> str | Removed:
    """Remove a text with fewer than `min_words` or more than `max_words` words."""
    num_words = len(words_of(text))
    return text if min_words <= num_words <= max_words else Removed(f"{num_words} words")


def word_length(text: str, *, min_mean: float = 3.0, max_mean: float = 10.0) -> str | Removed:
    """Remove a text with a mean word length, in characters, below `min_mean` or above `max_mean`."""
    words = words_of(text)
    mean = sum(map(len, words)) / len(words)
    return text if min_mean <= mean <= max_mean else Removed(f"words of {mean:.1f} characters on average")


def symbols(text: str, *, max_ratio: float = 0.1) -> str | Removed:
    """Remove a text with more than `max_ratio` hash signs, or ellipses, for each word."""
    num_words = len(words_of(text))
    for name, signs in (("hash signs", ("#",)), ("ellipses", ELLIPSES)):
        ratio = sum(map(text.count, signs)) / num_words
        if ratio > max_ratio:
            return Removed(f"{ratio:.2f} {name} for each word")
    return text


def bullet_lines(
    text: str, *, max_fraction: float = 0.9, bullets: Sequence[str] = ("\u2022", "-", "*")
) -> str | Removed:
    """Remove a text in which more than `max_fraction` of the lines begin with a bullet."""
    fraction = fraction_of(lines_of(text), lambda line: line.startswith(tuple(bullets)))
    return text if fraction <= max_fraction else Removed(f"{fraction:.0%} of the lines begin with a bullet")


def ellipsis_lines(text: str, *, max_fraction: float = 0.3) -> str | Removed:
    """Remove a text in which more than `max_fraction` of the lines end in an ellipsis."""
    fraction = fraction_of(lines_of(text), lambda line: line.endswith(ELLIPSES))
    return text if fraction <= max_fraction else Removed(f"{fraction:.0%} of the lines end in an ellipsis")


def alphabetic_words(text: str, *, min_fraction: float = 0.8) -> str | Removed:
    """Remove a text in which less than `min_fraction` of the words have a letter."""
    fraction = fraction_of(words_of(text), lambda word: word.isalpha() or any(map(str.isalpha, word)))
    return text if fraction >= min_fraction else Removed(f"{fraction:.0%} of the words have a letter")


def stop_words(
    text: str,
    *,
    min_different: int = 2,
    words: Sequence[str] = ("the", "be", "to", "of", "and", "that", "have", "with"),
) -> str | Removed:
    """Remove a text with fewer than `min_different` different stop words; the default words are English."""
    wanted, different = {word.lower() for word in words}, set()
    for word in words_of(text):
        plain = word.strip(_PUNCTUATION).lower()
        if plain in wanted:
            different.add(plain)
            if len(different) >= min_different:
                return text
    return text if len(different) >= min_different else Removed(f"{len(different)} different stop words")


def repeated_lines(text: str, *, max_fraction: float = 0.3, max_character_fraction: float = 0.2) -> str | Removed:
    """Remove a text in which too many lines, or characters in lines, repeat an earlier line."""
    return _remove_if_repetitive(text, lines_of(text), "line", max_fraction, max_character_fraction)


def repeated_paragraphs(text: str, *, max_fraction: float = 0.3, max_character_fraction: float = 0.2) -> str | Removed:
    """Remove a text in which too many paragraphs, or characters in paragraphs, repeat an earlier paragraph."""
    paragraphs = [paragraph for part in _PARAGRAPH_END.split(text) if (paragraph := part.strip())] or [""]
    return _remove_if_repetitive(text, paragraphs, "paragraph", max_fraction, max_character_fraction)


def _remove_if_repetitive(
    text: str, items: Sequence[str], item_type: str, max_fraction: float, max_character_fraction: float
) -> str | Removed:
    """Remove a text in which too many `items`, such as lines, or characters in items, repeat an earlier item."""
    items_fraction, character_fraction = repeated_fractions(items)
    if items_fraction > max_fraction:
        return Removed(f"{items_fraction:.0%} of the {item_type}s repeat an earlier {item_type}")
    if character_fraction > max_character_fraction:
        return Removed(
            f"{character_fraction:.0%} of the characters are in {item_type}s that repeat an earlier {item_type}"
        )
    return text


def repeated_fractions(items: Sequence[str]) -> tuple[float, float]:
    """Return the fractions of the items that repeat an earlier item, and of the characters in such items."""
    seen: set[str] = set()
    num_repeated = characters = 0
    for item in items:
        if item in seen:
            num_repeated, characters = num_repeated + 1, characters + len(item)
        seen.add(item)
    return num_repeated / len(items), characters / max(1, sum(map(len, items)))


def frequent_ngrams(text: str, *, max_fractions: Sequence[float] = (0.20, 0.18, 0.16)) -> str | Removed:
    """Remove a text in which the most frequent n-gram, for n from 2, has too many of the characters.

    An n-gram that occurs once does not count; of several most frequent n-grams, the longest counts.

    Args:
        text: text of a document.
        max_fractions: maximum fraction of the characters in words, for n = 2, 3, ...
    """
    sizes, words = _word_sizes(text), word_hashes(text)
    ends = np.append(0, np.cumsum(sizes))
    for n, limit in enumerate(max_fractions, 2):
        hashes = hash_ngrams(words, n)
        most = _max_occurrences(hashes)
        if most < 2:
            return text  # longer n-grams occur once as well
        if most * n * sizes.max() <= limit * ends[-1]:
            continue  # fast: no n-gram can exceed the limit
        keys, first, counts = np.unique(hashes, return_index=True, return_counts=True)
        longest = np.lexsort([-first, ends[first + n] - ends[first], counts])[-1]  # among the most frequent n-grams
        fraction = _covered_fraction(sizes, hashes == keys[longest], n)
        if fraction > limit:
            return Removed(f"{fraction:.0%} of the characters are in the most frequent {n}-gram")
    return text


def repeated_ngrams(
    text: str, *, max_fractions: Sequence[float] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)
) -> str | Removed:
    """Remove a text in which too many characters are in n-grams, for n from 5, that repeat an earlier n-gram.

    A character in several such n-grams counts once.

    Args:
        text: text of a document.
        max_fractions: maximum fraction of the characters in words, for n = 5, 6, ...
    """
    sizes, words = _word_sizes(text), word_hashes(text)
    for n, limit in enumerate(max_fractions, _FIRST_DUPLICATE):
        hashes = hash_ngrams(words, n)
        if _max_occurrences(hashes) < 2:
            return text  # longer n-grams occur once as well
        is_repeat = np.ones(len(hashes), bool)
        is_repeat[np.unique(hashes, return_index=True)[1]] = False
        fraction = _covered_fraction(sizes, is_repeat, n)
        if fraction > limit:
            return Removed(f"{fraction:.0%} of the characters are in {n}-grams that repeat an earlier {n}-gram")
    return text


def _max_occurrences(hashes: np.ndarray) -> int:
    """Return the number of occurrences of the most frequent hash."""
    ordered = np.sort(hashes)
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    return int(np.diff(np.append(starts, len(ordered))).max(initial=0))


def _word_sizes(text: str) -> np.ndarray:
    """Return the number of characters of each word, int64 [words]."""
    words = words_of(text)
    return np.fromiter(map(len, words), np.int64, len(words))


def _covered_fraction(sizes: np.ndarray, starts: np.ndarray, n: int) -> float:
    """Return the fraction of the characters in the n-grams that start at the marked words."""
    inside = np.zeros(len(sizes), bool)
    for offset in range(n):
        inside[offset : offset + len(starts)] |= starts
    return float(sizes[inside].sum() / max(1, sizes.sum()))
