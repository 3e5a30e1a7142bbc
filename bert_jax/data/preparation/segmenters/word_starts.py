"""The words of a text -> which of its tokens begin a word."""

import bisect
from collections.abc import Sequence


def word_starts(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Return for each token of a text whether it begins a word.

    A token belongs to the word in which it begins, even where it reaches into the next; white space belongs to the word
    after it. Between two letters that have a case no word begins: their scripts have spaces, and packages for other
    scripts may cut such words into letters.

    Args:
        text: that was encoded.
        words: of the text, in order. What lies between them belongs to the word before. A word that is not found there,
            since the package changed its characters, begins nowhere.
        offsets: of the tokens: their first character and one past the last.
    """
    begins = list[int]()
    at = 0
    for word in words:
        found = text.find(word, at)
        if found < 0 or not word.strip():
            continue
        at = found + len(word)
        if not (found and _has_case(text[found - 1]) and _has_case(text[found])):
            begins.append(found)
    starts, before = list[bool](), -1
    for first, _ in offsets:
        while first < len(text) and text[first].isspace():
            first += 1
        number = bisect.bisect_right(begins, first)
        starts.append(number != before)
        before = number
    return starts


def _has_case(character: str) -> bool:
    return character.lower() != character.upper()
