"""Reader of EPUB: a book is a document, with the HTML of its chapters in reading order."""

import html
import io
import posixpath
import re
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO
from xml.etree import ElementTree

from bert_jax.readers.archives import refuse_overlapping_members
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, RejectedError, UnpackedByteCounter
from bert_jax.readers.formats.html import html_fragment_to_text
from bert_jax.readers.pieces import copy_to_temporary_file

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_MAX_LIST_BYTES = 1 << 20  # size of the largest XML file that describes the contents of a book
_MAX_CHAPTERS = 10_000
_XHTML = "application/xhtml+xml"
_HTML = {_XHTML, "text/html"}
_CHAPTER_END = "\x1e"  # mark after each chapter; XML and HTML forbid this character
# A CDATA section, or a comment, in which a section may seem to start.
_CDATA = re.compile(r"<!--(?:.*?-->|.*)|<!\[CDATA\[(?:(.*?)\]\]>|.*)", re.DOTALL)
# LookupError: an item that is missing, or an unknown encoding.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, LookupError, RuntimeError, ValueError, ElementTree.ParseError)


def read_epub(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the book as a document; reject a book that is broken, encrypted or has over MAX_RECORD_BYTES of HTML.

    Raises:
        UserError: the book unpacks to more than `max_unpacked_bytes` and to more than MAX_RATIO times its size.
    """
    with copy_to_temporary_file(stream) as file:  # a copy, since the stream of an archive member cannot seek
        unpacked = UnpackedByteCounter(file.tell(), options.max_unpacked_bytes)
        try:
            with zipfile.ZipFile(file) as archive:
                refuse_overlapping_members(archive)
                data = b"".join(_read_chapters_as_html(archive, unpacked))
        except RejectedError as error:
            yield RawDocument(name=name, rejected=str(error))
        except _BROKEN:
            yield RawDocument(name=name, rejected="broken EPUB")
        else:
            is_empty = not data.strip()
            yield (
                RawDocument(name=name, rejected="empty")
                if is_empty
                else RawDocument(name=name, data=data, format="epub")
            )


def epub_html_to_text(data: str, options: ReadOptions) -> str:
    """Return the text of all chapters; each chapter is parsed separately, so an unclosed element ends with its chapter.

    Raises:
        UserError: lxml is not installed.
    """
    texts = (html_fragment_to_text(chapter, options) for chapter in data.split(_CHAPTER_END))
    return "\n\n".join(filter(None, texts))


def _read_chapters_as_html(archive: zipfile.ZipFile, unpacked: UnpackedByteCounter) -> Iterator[bytes]:
    """Yield the HTML of each chapter in UTF-8 and in reading order, with _CHAPTER_END at its end."""
    root = _read_xml(archive, _CONTAINER, unpacked).find(".//{*}rootfile")
    contents = "" if root is None else root.get("full-path", "")
    package = _read_xml(archive, contents, unpacked)
    items = {item.get("id"): item for item in package.iterfind("{*}manifest/{*}item")}
    encrypted = set[str]()
    if _ENCRYPTION in archive.namelist():
        references = _read_xml(archive, _ENCRYPTION, unpacked).iterfind(".//{*}CipherReference")
        encrypted = {urllib.parse.unquote(cipher.get("URI", "")) for cipher in references}
    size = 0
    for chapter, reference in enumerate(package.iterfind("{*}spine/{*}itemref")):
        item = items[reference.get("idref")]
        if item.get("media-type") not in _HTML or reference.get("linear") == "no":
            continue
        path = posixpath.normpath(
            posixpath.join(posixpath.dirname(contents), urllib.parse.unquote(item.get("href", "")))
        )
        if path in encrypted:
            raise RejectedError("encrypted")
        data = _read_member(archive, path, MAX_RECORD_BYTES, unpacked)
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig").replace(
            _CHAPTER_END, " "
        )
        if item.get("media-type") == _XHTML:
            text = _CDATA.sub(_cdata_to_html_text, text)
        data = text.encode()
        size += len(data)
        if size > MAX_RECORD_BYTES or chapter >= _MAX_CHAPTERS:
            raise RejectedError("too large")
        yield data + _CHAPTER_END.encode()


def _cdata_to_html_text(match: re.Match[str]) -> str:
    """Return the text of a CDATA section as HTML text; an HTML parser would treat the section as a comment."""
    return match[0] if match[1] is None else html.escape(match[1], quote=False)


def _read_xml(archive: zipfile.ZipFile, path: str, unpacked: UnpackedByteCounter) -> ElementTree.Element:
    """Return the root of an XML file in the archive; raise RejectedError if it declares entities."""
    data = _read_member(archive, path, _MAX_LIST_BYTES, unpacked)
    if b"<!ENTITY" in data:
        raise RejectedError("broken EPUB")
    return ElementTree.fromstring(data)


def _read_member(archive: zipfile.ZipFile, path: str, max_bytes: int, unpacked: UnpackedByteCounter) -> bytes:
    """Return the content of a file in the archive; raise RejectedError if it is too large or encrypted."""
    info = archive.getinfo(path)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise RejectedError("encrypted" if info.flag_bits & 1 else "unknown compression")
    with archive.open(info) as file:
        data = io.BytesIO()
        while part := file.read(1 << 16):
            unpacked.add(len(part))
            if data.tell() + len(part) > max_bytes:
                raise RejectedError("too large")
            data.write(part)
    return data.getvalue()
