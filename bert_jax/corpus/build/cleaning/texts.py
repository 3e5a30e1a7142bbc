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
        evidence: the reason in this text, for a person, such as '12 words'.
        group: a kind of evidence that is counted by itself, such as a language.
    """

    evidence: str
    group: str = ""


@functools.lru_cache(maxsize=1)
def words_of(text: str) -> tuple[str, ...]:
    """Return the words, separated by white space; a text without any is one empty word."""
    return tuple(text.split()) or ("",)


@functools.lru_cache(maxsize=1)
def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines without surrounding white space that are not empty; a text without any has one empty line."""
    return tuple(filter(None, map(str.strip, text.split("\n")))) or ("",)


def fraction_of(items: Sequence[str], test: Callable[[str], bool]) -> float:
    """Return the fraction of the items that pass a test."""
    return sum(map(test, items)) / len(items)


def keep_lines(text: str, keep: Callable[[str], bool]) -> str | Removed:
    """Return the text without the lines that fail a test, which gets them without surrounding white space.

    Empty lines stay, but of several in a row that come about this way one does.
    """
    lines = text.split("\n")
    kept = [line for line in lines if not line.strip() or keep(line.strip())]
    if len(kept) == len(lines):
        return text
    left = _EMPTY_LINES.sub("\n\n", "\n".join(kept)).strip("\n")
    return left if left.strip() else Removed("no line is left")


@functools.lru_cache(maxsize=1)
def word_hashes(text: str) -> np.ndarray:
    """Return `hash_words` of the words of a text."""
    return hash_words(words_of(text))
