"""Lines and pages as in C4 (Raffel et al. 2020, section 2.2), with the thresholds of its published code.

The rules fit web pages, where a paragraph is a line: text that is wrapped at a column loses most of its lines.
"""

import re
from collections.abc import Sequence

from bert_jax.corpus.build.cleaning.texts import ELLIPSES, SENTENCE_ENDS, Removed, keep_lines

# Possessive and from the first mark on, so that the time is linear in a text of marks alone.
_SENTENCE_END = re.compile(rf"(?<![.!?])[.!?]++[\"'\u2019\u201d)\]]*+(?=\s|$)|[{SENTENCE_ENDS}]")
_POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def unfinished_lines(
    text: str, *, marks: Sequence[str] = (".", "!", "?", '"', "\u201d", "\u3002", "\uff01", "\uff1f")
) -> str | Removed:
    """Remove the lines that end in none of the marks, or in an ellipsis."""
    ends = tuple(marks)
    return keep_lines(text, lambda line: line.endswith(ends) and not line.endswith(ELLIPSES))


def short_lines(text: str, *, min_words: int = 5) -> str | Removed:
    """Remove the lines of fewer than `min_words` words."""
    return keep_lines(text, lambda line: len(line.split(None, min_words)) >= min_words)


def javascript_lines(text: str) -> str | Removed:
    """Remove the lines with the word Javascript."""
    return keep_lines(text, lambda line: "javascript" not in line.lower()) if "avascript" in text.lower() else text


def policy_lines(text: str, *, phrases: Sequence[str] = _POLICIES) -> str | Removed:
    """Remove the lines with a phrase such as 'privacy policy' or 'uses cookies', in any case."""
    lower, wanted = text.lower(), [phrase.lower() for phrase in phrases]
    if not any(phrase in lower for phrase in wanted):
        return text
    return keep_lines(text, lambda line: not any(phrase in line.lower() for phrase in wanted))


def sentence_count(text: str, *, min_sentences: int = 3) -> str | Removed:
    """Remove a text of fewer sentences: marks at the end of a word, with or without quotes and brackets after them."""
    num_sentences = sum(1 for _ in _SENTENCE_END.finditer(text))
    return text if num_sentences >= min_sentences else Removed(f"{num_sentences} sentences")


def lorem_ipsum(text: str) -> str | Removed:
    """Remove a text with the placeholder 'lorem ipsum'."""
    return Removed("lorem ipsum") if "lorem ipsum" in text.lower() else text


def curly_brackets(text: str) -> str | Removed:
    """Remove a text with a curly bracket, as most programs have."""
    return Removed("a curly bracket") if "{" in text or "}" in text else text
