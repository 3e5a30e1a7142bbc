"""Text for a terminal: styles, and lines of limited width."""

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bert_jax.console import terminal_columns
from bert_jax.errors import escaped
from bert_jax.reports.corpus.examples import replace_control_characters

# Style -> parameters of the control sequence that begins it.
STYLES = {
    "text": "",
    "second": "36",  # cyan: the second text of a pair
    "special": "2",  # dim
    "mask": "1;33",  # yellow
    "random": "1;31",  # red
    "kept": "1;32",  # green
    "title": "1",
}
KEPT_SPACE = "\xa0"  # a space at which no line is broken

StyledText = tuple[str, str]  # a text and its style


def paint(text: str, style: str, color: bool) -> str:
    """Return `text` between the control sequences of `style`; if `color` is False, return only the text."""
    text = escaped(text)
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if color and STYLES[style] and text else text


def wrap_paragraphs(paragraphs: Sequence[str], width: int, first_indent: str = "", indent: str = "  ") -> list[str]:
    """Return the lines of all paragraphs, of at most `width` characters, broken at spaces but not at `KEPT_SPACE`."""
    wrapper = textwrap.TextWrapper(width, initial_indent=first_indent, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace(KEPT_SPACE, " ") for paragraph in paragraphs for line in wrapper.wrap(paragraph)]


def styled_lines(spans: Sequence[StyledText], width: int, color: bool) -> list[str]:
    """Return styled texts as lines of at most `width` columns, broken at spaces.

    A word that is wider than a line is broken anywhere, except inside a mark that fits on a line.
    """
    characters = [(character, style) for text, style in spans for character in replace_control_characters(text)]
    mark_ends = dict(_mark_ranges(spans))
    text = "".join(character for character, _ in characters)
    lines: list[list[StyledText]] = [[]]
    used = 0
    for word in re.finditer(r"\S+", text):
        size = terminal_columns(word[0])
        if used and used + 1 + size > width and (size <= width or used + 3 > width):
            lines.append([])
            used = 0
        elif used:
            style = characters[word.start()][1]
            lines[-1].append((" ", style if lines[-1][-1][1] == style else "text"))
            used += 1
        for index in range(word.start(), word.end()):
            size = terminal_columns(text[index])
            unbroken = terminal_columns(text[index : mark_ends.get(index, index + 1)])
            if used and used + (unbroken if unbroken <= width else size) > width:
                lines.append([])
                used = 0
            lines[-1].append(characters[index])
            used += size
    return [_paint_runs(line, color) for line in lines]


class _CharacterRange(NamedTuple):
    """The index of the first character of a range, and the index of its last character + 1."""

    start: int
    end: int


def _mark_ranges(spans: Sequence[StyledText]) -> Iterator[_CharacterRange]:
    """Yield the character indexes of the start and the end of each mark, without the space before the mark."""
    begin = 0
    for text, style in spans:
        if style in ("mask", "random", "kept"):
            yield _CharacterRange(begin + text.startswith(" "), begin + len(text))
        begin += len(text)


def _paint_runs(characters: Sequence[StyledText], color: bool) -> str:
    """Return the joined characters, with control sequences around each run of characters of the same style."""
    runs = itertools.groupby(characters, key=lambda character: character[1])
    return "".join(paint("".join(text for text, _ in run), style, color) for style, run in runs)
