"""Markdown -> its text: paragraphs, headings, list items and quotations; no code, tables, HTML, pictures, addresses."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.data.records import Reading

# A longer paragraph is taken as it stands: the parser's time may grow with the square of its marks.
_MARKED = 20_000  # characters
_KEPT = {"text": None, "softbreak": " ", "hardbreak": "\n", "code_inline": None}


def text(data: str, reading: Reading) -> str:
    """The text as CommonMark (with tables) has it, its blocks parted by empty lines; a paragraph is one line."""
    return "\n\n".join(block for block in _blocks(_block_parser().parse(data)) if block)


@functools.cache
def _block_parser() -> Any:
    """Finds the blocks, and leaves what is inside of a paragraph as it is."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").disable("inline")


@functools.cache
def _inline_parser() -> Any:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _blocks(tokens: Sequence[Any]) -> Iterator[str]:
    in_table = False
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        elif token.type == "inline" and not in_table:
            yield " ".join(token.content.split()) if len(token.content) > _MARKED else _inline(token.content)


def _inline(content: str) -> str:
    tokens = [one for token in _inline_parser().parseInline(content) for one in token.children]
    parts = (one.content if _KEPT[one.type] is None else _KEPT[one.type] for one in tokens if one.type in _KEPT)
    return "".join(part or "" for part in parts).strip()
