"""The text of Markdown: paragraphs, headings, list items and quotations; no code, tables, HTML, images or URLs."""

import functools
import re
from collections.abc import Iterator
from typing import Any

from bert_jax.readers.documents import ReadOptions
from bert_jax.readers.pieces import fence_of_unfinished_code

_SECTION = 1 << 18  # characters per call of the parser, whose result takes up to 500 times the memory of the text
# A longer paragraph keeps its markup, because the time of the parser may grow with the square of the number of marks.
_MAX_PARAGRAPH = 20_000  # characters
_TEXT_OF_TOKEN = {
    "text": None,
    "code_inline": None,
    "softbreak": " ",
    "hardbreak": " ",
}  # token type -> text; None: the content of the token

# Metadata before the text, of YAML (lines of `key: value`, indented, listed, commented or empty) or of TOML. Each line
# matches in one way only, so that the time is linear. Prose between two horizontal rules may also have a colon ("Note:
# ..."). The first key of YAML must therefore be lowercase, or a usual word.
_FRONT_MATTER = re.compile(
    r"---[ \t\r]*\n(?=(?:[a-z_][\w.-]*|Title|Subtitle|Date|Authors?|Layout|Slug|Tags|Category|Categories|Summary|"
    r"Description|Status|Template|Lang|Language):(?:[ \t\r]|$))"
    r"(?:(?:\w[\w.-]*:(?:[ \t\r].*)?|[ \t#-].*|\r?)\n)*?(?:---|\.\.\.)[ \t\r]*(?:\n|\Z)|"
    r"\+\+\+[ \t\r]*\n(?:(?:[\w.\"'-]+[ \t]*=.*|[\[\]}\"' \t#].*|\r?)\n)*?\+\+\+[ \t\r]*(?:\n|\Z)",
    re.MULTILINE,
)


def markdown_to_text(data: str, options: ReadOptions) -> str:
    """Return the plain text of CommonMark; a paragraph becomes one line, and empty lines separate the blocks.

    Front matter and tables are left out.
    """
    if metadata := _FRONT_MATTER.match(data):
        data = data[metadata.end() :]
    texts: list[str] = []
    fence = ""
    for section in _split_into_sections(data):
        section = fence + section
        links: dict[str, Any] = {}  # definitions `[name]: URL`, to which a paragraph may refer
        tokens = _markdown_parser("blocks").parse(section, links)
        texts += [block for block in _block_texts(tokens, links) if block]
        fence = fence_of_unfinished_code(section)
    return "\n\n".join(texts)


def _split_into_sections(data: str) -> Iterator[str]:
    """Yield parts of a text; a part ends at an empty line if possible, otherwise at a line end, otherwise anywhere."""
    start = 0
    while start < len(data):
        end = start + _SECTION
        if end < len(data):
            ends = (data.rfind("\n\n", start + 1, end), data.rfind("\n", start + 1, end), end)
            end = next(position for position in ends if position > 0)
        yield data[start:end]
        start = end


@functools.cache
def _markdown_parser(part: str) -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    return parser.disable("inline") if part == "blocks" else parser


def _block_texts(tokens: list[Any], links: dict[str, Any]) -> Iterator[str]:
    """Yield the text of each block outside tables."""
    in_table = False
    for token in tokens:
        if token.type in ("table_open", "table_close"):
            in_table = token.type == "table_open"
        elif token.type == "inline" and not in_table:
            long = len(token.content) > _MAX_PARAGRAPH
            yield " ".join(token.content.split()) if long else _inline_text(token.content, links)


def _inline_text(content: str, links: dict[str, Any]) -> str:
    """Return the text of a paragraph without its inline markup."""
    tokens = [child for token in _markdown_parser("inline").parseInline(content, links) for child in token.children]
    return "".join(
        _TEXT_OF_TOKEN[child.type] or child.content for child in tokens if child.type in _TEXT_OF_TOKEN
    ).strip()
