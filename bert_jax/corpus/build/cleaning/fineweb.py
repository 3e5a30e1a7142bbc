"""The filters that FineWeb adds to Gopher's and C4's filters (Penedo et al. 2024, section 3.6), with its thresholds."""

from bert_jax.corpus.build.cleaning.gopher import repeated_fractions
from bert_jax.corpus.build.cleaning.texts import SENTENCE_ENDS, Removed, fraction_of, lines_of

_CLOSING = "\"'\u2019\u201d\u00bb)]}"
_MARKS = tuple(f".!?\u2026\uff0e{SENTENCE_ENDS}")


def finished_lines(text: str, *, min_fraction: float = 0.12) -> str | Removed:
    """Remove a text in which at most `min_fraction` of the lines end in punctuation."""
    fraction = fraction_of(lines_of(text), lambda line: line.rstrip(_CLOSING).endswith(_MARKS))
    return text if fraction > min_fraction else Removed(f"{fraction:.0%} of the lines end in punctuation")


def repeated_characters(text: str, *, max_fraction: float = 0.1) -> str | Removed:
    """Remove a text in which at least `max_fraction` of the characters are in lines that repeat an earlier line."""
    fraction = repeated_fractions(lines_of(text))[1]
    return text if fraction < max_fraction else Removed(f"{fraction:.0%} of the characters are in repeated lines")


def mostly_short_lines(text: str, *, max_characters: int = 30, max_fraction: float = 0.67) -> str | Removed:
    """Remove a text in which at least `max_fraction` of the lines have fewer than `max_characters` characters."""
    fraction = fraction_of(lines_of(text), lambda line: len(line) < max_characters)
    return text if fraction < max_fraction else Removed(f"{fraction:.0%} of the lines are short")
