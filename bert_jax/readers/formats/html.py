"""The text of HTML: the main text of a page, or all text of a fragment."""

import codecs
import functools
import logging
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from bert_jax.errors import needs_packages
from bert_jax.readers.documents import RawDocument, ReadOptions, RejectedError
from bert_jax.readers.pieces import read_bounded_document

MAX_PAGE_BYTES = 2 << 20  # maximum size of a page, whose tree takes about 20 times the memory, and at worst a minute
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN = 1024  # bytes at the beginning that may declare the encoding, as in the HTML standard
# Codecs of the labels of encodings that Python lacks, or reads otherwise than browsers do (WHATWG, Encoding Standard,
# section 4.2). Python's name of an encoding, or the label without "x-" -> Python's name of the codec.
_HTML_CODECS = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620", "windows-874"), "cp874"),
    "iso-8859-8-i": "iso8859-8",
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    **dict.fromkeys(("shift_jis", "windows-31j"), "cp932"),
    **dict.fromkeys(("euc_kr", "windows-949"), "cp949"),
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),  # the label itself was read, so it is no UTF-16
}
_HIDDEN = {"script", "style", "title"}
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hr html li main menu nav ol option p pre section summary table tbody tfoot "
    "thead tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_SPACES = {"br": "\n", "td": " ", "th": " "}
_FED = 1 << 20  # characters that the parser gets at a time


def read_html(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield an HTML page, converted to UTF-8. A page that is not UTF-8 is decoded with the encoding that it declares.

    Raises:
        UserError: trafilatura is not installed.
    """
    _load_trafilatura(name)
    page = read_bounded_document(name, stream, "html", MAX_PAGE_BYTES)
    page.data = _page_in_utf8(page.data)
    yield page


def html_page_to_main_text(data: str, options: ReadOptions) -> str:
    """Return the main text of a page, without menus, tables and comments; empty lines separate the blocks.

    Raises:
        RejectedError: 'no main text', if the page has no main text.
    """
    text = _load_trafilatura("html").extract(data, include_comments=False, include_tables=False)
    if not text:
        raise RejectedError("no main text")
    return text.replace("\n", "\n\n")


def html_fragment_to_text(data: str, options: ReadOptions) -> str:
    """Return all text of a fragment of HTML or XHTML; empty lines separate the blocks.

    Raises:
        UserError: lxml is not installed.
    """
    with needs_packages("HTML", "lxml"):
        from lxml import etree
    # The parser sends events and builds no tree, so time and memory are linear. The parser of the standard library
    # needs minutes for some inputs of 50 kB.
    parser = etree.HTMLParser(target=_TextCollector(), encoding="utf-8", huge_tree=True)
    for start in range(0, len(data), _FED):
        parser.feed(data[start : start + _FED].encode())
    return parser.close() if data.strip() else ""


@functools.cache
def _load_trafilatura(name: str) -> Any:
    """Return the package trafilatura; raise UserError if it is missing."""
    with needs_packages(f"{name}: HTML", "trafilatura"):
        import trafilatura
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a page without text is counted, not logged
    return trafilatura


def _page_in_utf8(data: bytes) -> bytes:
    """Return a page converted to UTF-8; a page in UTF-8, or with a wrong declared encoding, stays unchanged."""
    try:
        data.decode()
        return data
    except UnicodeDecodeError:
        pass
    declared = _CHARSET.search(data[:_CHARSET_WITHIN])
    try:
        return data.decode(_codec_of_label(declared[1].decode())).encode() if declared else data
    except (LookupError, UnicodeError, ValueError):
        return data


def _codec_of_label(label: str) -> str:
    """Return Python's name of the codec for the label of an encoding; raise LookupError for an unknown label."""
    label = label.lower()
    while label.startswith("x-"):
        label = label.removeprefix("x-")
    if label in _HTML_CODECS:
        return _HTML_CODECS[label]
    name = codecs.lookup(label).name
    return _HTML_CODECS.get(name, name)


class _TextCollector:
    """Collector of the text of each block, from the events of a parser."""

    def __init__(self) -> None:
        self._blocks: list[list[str]] = [[]]
        self._hidden = 0  # number of open elements of _HIDDEN

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._hidden += tag in _HIDDEN
        if tag in _BLOCKS:
            self._blocks.append([])
        elif tag in _SPACES:
            self._blocks[-1].append(_SPACES[tag])

    def end(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN
        if tag in _BLOCKS:
            self._blocks.append([])

    def data(self, data: str) -> None:
        if not self._hidden:
            self._blocks[-1].append(data.replace("\n", " "))

    def close(self) -> str:
        blocks = ("".join(parts).split("\n") for parts in self._blocks)
        texts = ("\n".join(" ".join(line.split()) for line in lines).strip() for lines in blocks)
        return "\n\n".join(filter(None, texts))
