"""Markdown -> its text: paragraphs, headings, list items and quotations; no code, tables, HTML, pictures, addresses."""

import functools
from collections.abc import Iterator
from typing import Any

from bert_jax.data.sources.records import Reading

_STRETCH = 1 << 18  # characters that are parsed at once: what the parser makes of them takes up to 500 times the memory
# A longer paragraph is taken as it stands: the parser's time may grow with the square of its marks.
_MARKED = 20_000  # characters
_KEPT = {"text": None, "code_inline": None, "softbreak": " ", "hardbreak": " "}  # what becomes of a token of a line


def text(data: str, reading: Reading) -> str:
    """The text as CommonMark (with tables) has it, its blocks parted by empty lines; a paragraph is one line."""
    found: list[str] = []
    fence = ""
    for stretch in _stretches(data):
        blocks, fence = _parsed(fence + stretch)
        found += blocks
    return "\n\n".join(found)


def _stretches(data: str) -> Iterator[str]:
    """Parts that end at an empty line, else at a line, else anywhere."""
    start = 0
    while start < len(data):
        end = start + _STRETCH
        if end < len(data):
            ends = (data.rfind("\n\n", start + 1, end), data.rfind("\n", start + 1, end), end)
            end = next(one for one in ends if one > 0)
        yield data[start:end]
        start = end


@functools.cache
def _parser(part: str) -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    return parser.disable("inline") if part == "blocks" else parser


def _parsed(stretch: str) -> tuple[list[str], str]:
    """The blocks of a stretch that have text, and `_open_fence`."""
    links: dict[str, Any] = {}  # [name]: address, which a paragraph may refer to
    tokens = _parser("blocks").parse(stretch, links)
    return [block for block in _blocks(tokens, links) if block], _open_fence(tokens, stretch)


def _blocks(tokens: list[Any], links: dict[str, Any]) -> Iterator[str]:
    in_table = False
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        elif token.type == "inline" and not in_table:
            long = len(token.content) > _MARKED
            yield " ".join(token.content.split()) if long else _inline(token.content, links)


def _open_fence(tokens: list[Any], stretch: str) -> str:
    """The line for the next stretch to begin with where this one ends inside of a code block, else ''."""
    if not tokens or tokens[-1].type != "fence":
        return ""
    markup = tokens[-1].markup
    lines = stretch.rstrip().split("\n")
    closed = len(lines) - 1 > tokens[-1].map[0] and lines[-1].strip().startswith(markup) and not lines[-1].strip(" `~")
    return "" if closed else f"{markup}\n"


def _inline(content: str, links: dict[str, Any]) -> str:
    tokens = [one for token in _parser("inline").parseInline(content, links) for one in token.children]
    return "".join(_KEPT[one.type] or one.content for one in tokens if one.type in _KEPT).strip()
