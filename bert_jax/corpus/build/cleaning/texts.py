"""`Removed`, and the words and lines of a text, which the rules of cleaning share."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.signatures import hash_words

ELLIPSES = ("...", "\u2026")
# Marks that end sentences in CJK, Devanagari, Arabic, Armenian, Ethiopic, Tibetan, Burmese and Khmer scripts.
SENTENCE_ENDS = "\u3002\uff01\uff1f\u0964\u0965\u061f\u06d4\u0589\u1362\u1367\u0f0d\u104b\u17d4"
_EMPTY_LINES = re.compile(r"\n\s*\n\s*\n")


class Removed(NamedTuple):
    """The verdict that a document is removed.

    Attributes:
        evidence: the reason in this text, for a reader, such as '12 words'.
        group: a kind of evidence that is counted separately, such as a language.
    """

    evidence: str
    group: str = ""


@functools.lru_cache(maxsize=1)
def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text, separated by white space; a text without words has an empty word."""
    return tuple(text.split()) or ("",)


@functools.lru_cache(maxsize=1)
def lines_of(text: str) -> tuple[str, ...]:
    """Return the non-empty lines of a text without surrounding white space; for a text without any, an empty line."""
    return tuple(filter(None, map(str.strip, text.split("\n")))) or ("",)


def fraction_of(items: Sequence[str], test: Callable[[str], bool]) -> float:
    """Return the fraction of the items that pass a test."""
    return sum(map(test, items)) / len(items)


def keep_lines(text: str, keep: Callable[[str], bool]) -> str | Removed:
    """Return the text without the lines that `keep` rejects; `keep` gets a line without surrounding white space.

    Empty lines stay; several empty lines in a row, after the removal, become a single empty line.
    """
    lines = text.split("\n")
    kept_lines = [line for line in lines if not line.strip() or keep(line.strip())]
    if len(kept_lines) == len(lines):
        return text
    left = _EMPTY_LINES.sub("\n\n", "\n".join(kept_lines)).strip("\n")
    return left if left.strip() else Removed("no line is left")


@functools.lru_cache(maxsize=1)
def word_hashes(text: str) -> np.ndarray:
    """Return a hash of each word of a text, as `hash_words`."""
    return hash_words(words_of(text))
