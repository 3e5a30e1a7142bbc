"""MediaWiki XML dumps (pages-articles) -> the wiki markup of each page, read as a stream."""

import re
from collections.abc import Iterator
from typing import IO
from xml.parsers import expat

from bert_jax.data.sources.records import MAX_RECORD, PIECE, Raw, Reading
from bert_jax.errors import UserError

_ARTICLES = "0"  # namespace
_NO_TEXT = ("-2", "6", "14")  # namespaces of media, files, categories: links there are no text
_MAX_DEPTH = 32  # elements in one another; a dump has five
_MAX_TOKEN = PIECE  # bytes of a tag, comment or the like
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
_GATHERED = {("page", "ns"), ("revision", "model"), ("revision", "text"), ("namespaces", "namespace")}


class _NotADumpError(Exception):
    """The XML is something else."""


def split(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Raw]:
    """A document a <page>; `data` is a line of names of namespaces whose links are no text, then the page's markup.

    Redirects, pages outside of the main namespace and of other models than wikitext are rejected. Of a page with
    several revisions the last is taken. A DOCTYPE, without which no entity can be declared, is in no dump: a file with
    one is not read on.

    Raises:
        UserError: a dump that is cut short or broken; mwparserfromhell is not installed.
    """
    try:
        import mwparserfromhell  # noqa: F401  # missed here, before all the work
    except ImportError:
        raise UserError(
            f"{name}: wiki markup needs the package mwparserfromhell: pip install 'bert-jax[wiki]'"
        ) from None
    pages = _Pages(name)
    size = 0
    try:
        while data := stream.read(1 << 16):
            size += len(data)
            pages.parse(data)
            yield from pages.take()
            if size - pages.parser.CurrentByteIndex > _MAX_TOKEN:
                raise expat.ExpatError("a tag that does not end")
        if size:
            pages.parse(b"", True)
            yield from pages.take()
    except _NotADumpError:
        pages.is_dump = False
    except expat.ExpatError as error:
        if pages.is_dump:
            raise UserError(f"{name}: broken XML ({error}); fetch it again or leave it out") from None
    if not pages.is_dump:
        while stream.read(PIECE):  # so that a broken archive is noticed
            pass
    if not pages.number:
        yield Raw(name, rejected="empty" if pages.is_dump or not size else "not a MediaWiki dump")


class _Pages:
    """What the parser calls; gathers one page after the other."""

    def __init__(self, name: str):
        self.name, self.number, self.is_dump = name, 0, False
        self._ready: list[Raw] = []
        self._path: list[str] = []
        self._namespaces: list[str] = []
        self._parts: list[str] | None = None  # of the element that is gathered; None outside of these
        self._fields: dict[str, str] = {}
        self._too_large = False
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype

    def parse(self, data: bytes, final: bool = False) -> None:
        """Some more of the file; ExpatError where it is broken."""
        try:
            self.parser.Parse(data, final)
        except (LookupError, ValueError) as error:  # an encoding that Python or expat does not know
            raise expat.ExpatError(str(error)) from None

    def take(self) -> list[Raw]:
        """The pages that ended since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def _doctype(self, *_: object) -> None:
        raise _NotADumpError

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path:
            if tag != "mediawiki":
                raise _NotADumpError
            self.is_dump = True
        parent = self._path[-1] if self._path else ""
        self._path.append(tag)
        if len(self._path) > _MAX_DEPTH:
            raise expat.ExpatError(f"more than {_MAX_DEPTH} elements in one another")
        if tag == "page":
            self._fields, self._too_large = {}, False
        elif tag == "redirect":
            self._fields["redirect"] = "yes"
        if (parent, tag) in _GATHERED:
            self._parts, self._size, self._key = [], 0, attributes.get("key", "")

    def _characters(self, data: str) -> None:
        if self._parts is not None:
            self._size += len(data.encode())
            if self._size > MAX_RECORD:
                self._parts = []
            else:
                self._parts.append(data)

    def _end(self, tag: str) -> None:
        self._path.pop()
        if self._parts is not None:
            value, self._parts = "".join(self._parts), None
            if tag != "namespace":
                self._fields[tag] = value
                if tag == "text":
                    self._too_large = self._size > MAX_RECORD
            elif self._key in _NO_TEXT:
                self._namespaces.append(value.lower())
        elif tag == "page":
            self.number += 1
            where = f"{self.name}:{self.number}"
            reason = self._reason()
            header = "|".join(self._namespaces)
            data = b"" if reason else f"{header}\n{self._fields['text']}".encode()
            self._ready.append(Raw(where, data, "mediawiki", reason))

    def _reason(self) -> str:
        markup = self._fields.get("text", "")
        if "redirect" in self._fields or _REDIRECT.match(markup):
            return "redirect"
        if self._fields.get("ns", _ARTICLES) != _ARTICLES or self._fields.get("model", "wikitext") != "wikitext":
            return "not an article"
        if self._too_large:
            return "too large"
        return "" if markup.strip() else "empty"
