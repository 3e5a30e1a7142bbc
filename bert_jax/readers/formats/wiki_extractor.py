"""The output of WikiExtractor -> documents: the text between a line <doc id=...> and a line </doc>."""

import html
import re
from collections.abc import Iterator
from typing import IO

from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions
from bert_jax.readers.formats.streams import read_lines

_BEGIN = re.compile(rb'<doc id="')
_TITLE = re.compile(r'<doc id="[^\n]* title="([^"\n]*)">')


def read_wikiextractor(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a document per <doc>, with that line; consecutive lines outside are one rejected document.

    Raises:
        UserError: an unterminated <doc>.
    """
    where, size, outside, found = "", 0, False, False
    parts: list[bytes] = []
    for number, data, too_large in read_lines(stream):
        if _BEGIN.match(data):
            if where:
                break
            where, parts, size, outside = f"{name}:{number}", [], 0, False
        elif not where:
            if (data.strip() or too_large) and not outside:
                outside = found = True
                yield RawDocument(f"{name}:{number}", rejected="outside of <doc>")
            continue
        elif data.strip() == b"</doc>":
            found = True
            if size > MAX_RECORD_BYTES:
                yield RawDocument(where, rejected="too large")
            else:
                yield RawDocument(where, b"".join(parts), "wikiextractor")
            where = ""
            continue
        size += MAX_RECORD_BYTES + 1 if too_large else len(data)
        if size > MAX_RECORD_BYTES:
            parts = []
        else:
            parts.append(data)
    if where:
        raise UserError(f"{where}: <doc> without </doc>; the file is cut short: make it again or leave it out")
    if not found:
        yield RawDocument(name, rejected="empty")


def wikiextractor_text(data: str, options: ReadOptions) -> str:
    """Return the text of an article without its title, the first line; character references are resolved."""
    first, _, body = data.partition("\n")
    title = _TITLE.match(first)
    line, _, rest = body.lstrip("\n").partition("\n")
    if title and html.unescape(line.strip()) == html.unescape(title[1].strip()):
        body = rest
    return html.unescape(body).strip()
