"""What looks wrong with one sequence: a name per sign, by which the page filters."""

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.reports.corpus.checks import MAX_TOKENS_PER_WORD, MAX_WORD_CHARACTERS, MIN_FILL
from bert_jax.reports.corpus.sequences_text import REPLACEMENT

MIN_DISTINCT = 0.25  # of the tokens of a text; boilerplate and tables have fewer
MIN_TOKENS = 32  # of a text of which the last two signs say something
JOINERS = "\u200c\u200d"  # invisible, but part of the spelling of Persian, of Hindi and of emoji


class Text(NamedTuple):
    """What the signs look at.

    `ids` int32 [tokens]: before masking, without special tokens and padding. `entries`: their text, one after another.
    `num_words`: tokens that begin a word. `num_unknown`: unknown tokens. `num_predicted`: tokens to predict. `fill`:
    fraction of the sequence that is no padding.
    """

    ids: np.ndarray
    entries: str
    num_words: int
    num_unknown: int
    num_predicted: int
    fill: float


def is_invisible(character: str) -> bool:
    """Return whether a character changes how a text looks or reads without being seen, such as U+202E."""
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and character not in JOINERS


def _many_tokens_per_word(text: Text) -> bool:
    words = max(1, text.num_words)
    spaced = len(text.entries) / words <= MAX_WORD_CHARACTERS  # of other scripts, tokens per word say nothing
    return len(text.ids) >= MIN_TOKENS and spaced and len(text.ids) / words > MAX_TOKENS_PER_WORD


def _repeats_itself(text: Text) -> bool:
    return len(text.ids) >= MIN_TOKENS and len(np.unique(text.ids)) < MIN_DISTINCT * len(text.ids)


SIGNS: dict[str, Callable[[Text], bool]] = {
    "nothing to predict": lambda text: not text.num_predicted,
    "mostly padding": lambda text: text.fill < MIN_FILL,
    "unknown tokens": lambda text: text.num_unknown > 0,
    "broken characters": lambda text: REPLACEMENT in text.entries,
    "invisible characters": lambda text: any(map(is_invisible, text.entries)),
    "many tokens per word": _many_tokens_per_word,
    "repeats itself": _repeats_itself,
}


def signs_of(text: Text) -> list[str]:
    """Return the names of the signs that a sequence shows."""
    return [name for name, shows in SIGNS.items() if shows(text)]
