"""Documents from the output of WikiExtractor: the text between a line <doc id=...> and a line </doc>."""

import html
import re
from collections.abc import Iterator
from typing import IO

from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions
from bert_jax.readers.rows import read_lines

_BEGIN = re.compile(rb'<doc id="')
_TITLE = re.compile(r'<doc id="[^\n]* title="([^"\n]*)">')


def read_wikiextractor(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a document per <doc>, with the line <doc ...>; consecutive lines outside of <doc> are a rejected document.

    Raises:
        UserError: a <doc> does not end.
    """
    where = ""  # name of the document that has begun; '' outside of <doc>
    parts: list[bytes] = []
    size = 0
    outside = any_document = False
    for line_number, data, too_large in read_lines(stream):
        if _BEGIN.match(data):
            if where:
                break
            where = f"{name}:{line_number}"
            parts, size = [], 0
            outside = False
        elif not where:
            if (data.strip() or too_large) and not outside:
                outside = any_document = True
                yield RawDocument(name=f"{name}:{line_number}", rejected="outside of <doc>")
            continue
        elif data.strip() == b"</doc>":
            any_document = True
            if size > MAX_RECORD_BYTES:
                yield RawDocument(name=where, rejected="too large")
            else:
                yield RawDocument(name=where, data=b"".join(parts), format="wikiextractor")
            where = ""
            continue
        size += MAX_RECORD_BYTES + 1 if too_large else len(data)
        if size > MAX_RECORD_BYTES:
            parts = []
        else:
            parts.append(data)
    if where:
        raise UserError(f"{where}: <doc> without </doc>; the file is cut short: make it again or leave it out")
    if not any_document:
        yield RawDocument(name=name, rejected="empty")


def wikiextractor_article_to_text(data: str, options: ReadOptions) -> str:
    """Return the text of an article without its title in the first line, and with character references resolved."""
    head, _, body = data.partition("\n")
    title = _TITLE.match(head)
    first_line, _, rest = body.lstrip("\n").partition("\n")
    if title and html.unescape(first_line.strip()) == html.unescape(title[1].strip()):
        body = rest
    return html.unescape(body).strip()
