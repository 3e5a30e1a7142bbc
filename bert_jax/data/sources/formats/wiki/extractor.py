"""WikiExtractor's output -> documents: the text between a line <doc id=...> and a line </doc>."""

import html
import re
from collections.abc import Iterator
from typing import IO

from bert_jax.data.sources.formats.lines import read_lines
from bert_jax.data.sources.records import MAX_RECORD, Raw, Reading
from bert_jax.errors import UserError

_BEGIN = re.compile(rb'<doc id="')
_TITLE = re.compile(r'<doc id="[^\n]* title="([^"\n]*)">')


def split(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Raw]:
    """A document a <doc>; `data` starts with that line. Lines outside, in a row, are one rejected document.

    Raises:
        UserError: a <doc> that does not end.
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
                yield Raw(f"{name}:{number}", rejected="outside of <doc>")
            continue
        elif data.strip() == b"</doc>":
            found = True
            if size > MAX_RECORD:
                yield Raw(where, rejected="too large")
            else:
                yield Raw(where, b"".join(parts), "wikiextractor")
            where = ""
            continue
        size += MAX_RECORD + 1 if too_large else len(data)
        if size > MAX_RECORD:
            parts = []
        else:
            parts.append(data)
    if where:
        raise UserError(f"{where}: <doc> without </doc>; the file is cut short: make it again or leave it out")
    if not found:
        yield Raw(name, rejected="empty")


def text(data: str, reading: Reading) -> str:
    """The text of an article without its title, which is its first line; character references resolved."""
    first, _, body = data.partition("\n")
    title = _TITLE.match(first)
    line, _, rest = body.lstrip("\n").partition("\n")
    if title and html.unescape(line.strip()) == html.unescape(title[1].strip()):
        body = rest
    return html.unescape(body).strip()
