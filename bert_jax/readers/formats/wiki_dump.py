"""The wiki markup of each page of a MediaWiki XML dump (pages-articles), as a stream."""

import re
from collections.abc import Iterator
from typing import IO
from xml.parsers import expat

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.documents import MAX_PIECE_BYTES, MAX_RECORD_BYTES, RawDocument, ReadOptions
from bert_jax.readers.rows import discard_rest_of_stream

_ARTICLES = "0"  # number of the namespace of articles
_NO_TEXT = ("-2", "6", "14")  # numbers of the namespaces of media, files and categories; their links are not text
_MAX_DEPTH = 32  # maximum depth of nested elements; a dump has five levels
_MAX_TOKEN = MAX_PIECE_BYTES  # maximum bytes of a tag, a comment and so on
_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)
_COLLECTED = {("page", "ns"), ("revision", "model"), ("revision", "text"), ("namespaces", "namespace")}


class _NotADumpError(Exception):
    """Error for XML that is not a MediaWiki dump."""


def read_wiki_dump(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a document per <page>: a line with the namespaces whose links are not text, then the page's markup.

    Redirects, pages outside of the main namespace, and pages whose content model is not wikitext are rejected. If a
    page has several revisions, the last revision is used. The reader stops at a DOCTYPE, which could declare entities;
    real dumps have no DOCTYPE.

    Raises:
        UserError: the dump is incomplete or broken, or mwparserfromhell is not installed.
    """
    with needs_packages(f"{name}: wiki markup", "mwparserfromhell"):
        import mwparserfromhell  # noqa: F401  # raises before any page is read
    pages = _PageCollector(name)
    size = 0
    try:
        while data := stream.read(1 << 16):
            size += len(data)
            pages.parse(data)
            yield from pages.take_finished_pages()
            if size - pages.parser.CurrentByteIndex > _MAX_TOKEN:
                raise expat.ExpatError("an unterminated tag")
        if size:
            pages.parse(b"", True)
            yield from pages.take_finished_pages()
    except _NotADumpError:
        pages.is_dump = False
    except expat.ExpatError as error:
        if pages.is_dump:
            raise UserError(f"{name}: broken XML ({error}); fetch it again or leave it out") from None
    if not pages.is_dump:
        discard_rest_of_stream(stream)
    if not pages.num_pages:
        yield RawDocument(name=name, rejected="empty" if pages.is_dump or not size else "not a MediaWiki dump")


class _PageCollector:
    """Collector of the pages of a dump, fed with the events of an XML parser."""

    def __init__(self, name: str):
        self.name, self.is_dump = name, False
        self.num_pages = 0
        self._ready: list[RawDocument] = []
        self._path: list[str] = []
        self._namespaces: list[str] = []
        self._parts: list[str] | None = None  # text of the open element of _COLLECTED, or None
        self._fields: dict[str, str] = {}
        self._too_large = False
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._on_element_start
        self.parser.EndElementHandler = self._on_element_end
        self.parser.CharacterDataHandler = self._on_characters
        self.parser.StartDoctypeDeclHandler = self._on_doctype

    def parse(self, data: bytes, final: bool = False) -> None:
        """Parse the next bytes of the dump; raise ExpatError for broken XML."""
        try:
            self.parser.Parse(data, final)
        except (LookupError, ValueError) as error:  # an unknown encoding
            raise expat.ExpatError(str(error)) from None

    def take_finished_pages(self) -> list[RawDocument]:
        """Return the pages that ended since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def _on_doctype(self, *_: object) -> None:
        raise _NotADumpError

    def _on_element_start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path:
            if tag != "mediawiki":
                raise _NotADumpError
            self.is_dump = True
        parent = self._path[-1] if self._path else ""
        self._path.append(tag)
        if len(self._path) > _MAX_DEPTH:
            raise expat.ExpatError(f"more than {_MAX_DEPTH} nested elements")
        if tag == "page":
            self._fields, self._too_large = {}, False
        elif tag == "redirect":
            self._fields["redirect"] = "yes"
        if (parent, tag) in _COLLECTED:
            self._parts, self._size = [], 0
            self._key = attributes.get("key", "")

    def _on_characters(self, data: str) -> None:
        if self._parts is not None:
            self._size += len(data.encode())
            if self._size > MAX_RECORD_BYTES:
                self._parts = []
            else:
                self._parts.append(data)

    def _on_element_end(self, tag: str) -> None:
        self._path.pop()
        if self._parts is not None:
            value, self._parts = "".join(self._parts), None
            if tag != "namespace":
                self._fields[tag] = value
                if tag == "text":
                    self._too_large = self._size > MAX_RECORD_BYTES
            elif self._key in _NO_TEXT:
                self._namespaces.append(value.lower())
        elif tag == "page":
            self.num_pages += 1
            where = f"{self.name}:{self.num_pages}"
            reason = self._rejection_reason()
            header = "|".join(self._namespaces)
            data = b"" if reason else f"{header}\n{self._fields['text']}".encode()
            self._ready.append(RawDocument(name=where, data=data, format="mediawiki", rejected=reason))

    def _rejection_reason(self) -> str:
        """Return the reason for the rejection of the current page; '' for an article."""
        markup = self._fields.get("text", "")
        if "redirect" in self._fields or _REDIRECT.match(markup):
            return "redirect"
        if self._fields.get("ns", _ARTICLES) != _ARTICLES or self._fields.get("model", "wikitext") != "wikitext":
            return "not an article"
        if self._too_large:
            return "too large"
        return "" if markup.strip() else "empty"
