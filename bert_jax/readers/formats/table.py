"""The table of input formats, with file names, reader and extraction of text for each format."""

import dataclasses
import fnmatch
import functools
import os
from collections.abc import Callable, Iterator
from typing import IO

from bert_jax.readers.documents import Document, RawDocument, ReadOptions, RejectedError
from bert_jax.readers.formats import tfrecord
from bert_jax.readers.formats.arrow import read_arrow_records
from bert_jax.readers.formats.delimited import read_delimited_records
from bert_jax.readers.formats.epub import epub_html_to_text, read_epub
from bert_jax.readers.formats.html import html_fragment_to_text, html_page_to_main_text, read_html
from bert_jax.readers.formats.json_records import json_record_to_text, read_json_records
from bert_jax.readers.formats.markdown import markdown_to_text
from bert_jax.readers.formats.parquet import read_parquet_records
from bert_jax.readers.formats.pdf import pdf_to_text, read_pdf
from bert_jax.readers.formats.restructured_text import restructured_text
from bert_jax.readers.formats.wiki_dump import read_wiki_dump
from bert_jax.readers.formats.wiki_extractor import read_wikiextractor, wikiextractor_article_to_text
from bert_jax.readers.formats.wiki_markup import wiki_markup_to_text
from bert_jax.readers.pieces import read_text_documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputFormat:
    """A row of FORMATS.

    Attributes:
        read: function (name, stream, options) -> documents as they are in the file; the function is fast and uses
            bounded memory.
        extract_text: function (data, options) -> text; the function is slow, and may raise RejectedError.
        patterns: patterns of file names for the format 'auto'.
        option: field of `ReadOptions` that defines a document, if any: 'documents' or 'field'.
        has_header: True if the first line of a file shows whether the field exists.
        is_text: True if the bytes of a file are text in the encoding of `ReadOptions`.
        is_stream: True if documents are records that are read in order from the first byte on, and never in pieces.
        extract_from_bytes: function that replaces `extract_text` for documents whose bytes are not text.
    """

    read: Callable[[str, IO[bytes], ReadOptions], Iterator[RawDocument]]
    extract_text: Callable[[str, ReadOptions], str] = lambda data, _: data
    patterns: tuple[str, ...] = ()
    option: str = ""
    has_header: bool = False
    is_text: bool = True
    is_stream: bool = False
    extract_from_bytes: Callable[[bytes, ReadOptions], str] | None = None


def _delimited_format(pattern: str, separator: str, quoted: bool) -> InputFormat:
    read = functools.partial(read_delimited_records, separator=separator, quoted=quoted)
    return InputFormat(read=read, patterns=(pattern,), option="field", has_header=True, is_stream=True)


FORMATS: dict[str, InputFormat] = {
    "text": InputFormat(
        read=functools.partial(read_text_documents, format_name="text"),
        patterns=("*.txt", "*.text"),
        option="documents",
    ),
    "markdown": InputFormat(
        read=functools.partial(read_text_documents, format_name="markdown"),
        extract_text=markdown_to_text,
        patterns=("*.md", "*.markdown"),
        option="documents",
    ),
    "rst": InputFormat(
        read=functools.partial(read_text_documents, format_name="rst", in_pieces=False),
        extract_text=restructured_text,
        patterns=("*.rst", "*.rest"),
        option="documents",
    ),
    "html": InputFormat(read=read_html, extract_text=html_page_to_main_text, patterns=("*.html", "*.htm", "*.xhtml")),
    "epub": InputFormat(read=read_epub, extract_text=epub_html_to_text, patterns=("*.epub",), is_text=False),
    "pdf": InputFormat(read=read_pdf, patterns=("*.pdf",), is_text=False, extract_from_bytes=pdf_to_text),
    "jsonl": InputFormat(
        read=read_json_records,
        extract_text=json_record_to_text,
        patterns=("*.jsonl", "*.ndjson", "*.json-lines", "*.jsonlines", "*.json"),
        option="field",
        is_stream=True,
    ),
    "csv": _delimited_format("*.csv", separator=",", quoted=True),
    "tsv": _delimited_format("*.tsv", separator="\t", quoted=False),
    "parquet": InputFormat(read=read_parquet_records, patterns=("*.parquet",), option="field", is_text=False),
    "arrow": InputFormat(read=read_arrow_records, patterns=("*.arrow", "*.feather"), option="field", is_text=False),
    tfrecord.NAME: InputFormat(
        read=tfrecord.read_tfrecord_examples,
        patterns=("*.tfrecord", "*.tfrecord-[0-9]*-of-[0-9]*"),
        option="field",
        is_text=False,
        is_stream=True,
        extract_from_bytes=tfrecord.tfrecord_example_to_text,
    ),
    "wikiextractor": InputFormat(
        read=read_wikiextractor,
        extract_text=wikiextractor_article_to_text,
        patterns=("wiki_[0-9][0-9]",),
        is_stream=True,
    ),
    # An XML file declares its encoding, so the reader gets the bytes.
    "mediawiki": InputFormat(
        read=read_wiki_dump, extract_text=wiki_markup_to_text, patterns=("*.xml",), is_text=False, is_stream=True
    ),
}

# Markup of the text of a field -> function that returns plain text.
MARKUPS: dict[str, Callable[[str, ReadOptions], str]] = {
    "none": lambda data, _: data,
    "html": html_fragment_to_text,
    "markdown": markdown_to_text,
    "rst": restructured_text,
}
# Files that Hugging Face `datasets` writes into the directory of a data set.
_METADATA_PATTERNS = ("dataset_info.json", "dataset_dict.json", "state.json", "cache-*.arrow")


def file_format_name(name: str, options: ReadOptions) -> str:
    """Return the name of the row of FORMATS that reads a file with this name."""
    return options.format if options.format != "auto" else _format_of_file_name(name) or "text"


def has_known_format(name: str, options: ReadOptions) -> bool:
    """Return whether a file in a directory is read: its name matches a pattern of FORMATS, or has no suffix."""
    if options.format == "auto" and any(
        fnmatch.fnmatchcase(os.path.basename(name), pattern) for pattern in _METADATA_PATTERNS
    ):
        return False
    return options.format != "auto" or "." not in os.path.basename(name) or bool(_format_of_file_name(name))


def _format_of_file_name(name: str) -> str:
    base = os.path.basename(name).lower()
    rows = (key for key, row in FORMATS.items() if any(fnmatch.fnmatchcase(base, pattern) for pattern in row.patterns))
    return next(rows, "")


def to_document(raw: RawDocument, options: ReadOptions) -> Document:
    """Return the text of a document, or the reason for its rejection; a piece of a long document may be blank.

    Line ends become '\\n', and a byte order mark is dropped.
    """
    if raw.rejected:
        return Document(raw.name, "", raw.rejected, raw.fields)
    row = FORMATS[raw.format]
    if not row.extract_from_bytes and b"\0" in raw.data:
        return Document(raw.name, "", "binary")
    try:
        if row.extract_from_bytes:
            text = row.extract_from_bytes(raw.data, options)
        else:
            text = row.extract_text(
                raw.data.decode("utf-8" if raw.piece else "utf-8-sig", options.decode_errors), options
            )
        if raw.is_field or row.option == "field":
            text = MARKUPS[options.markup](text, options)
    except UnicodeDecodeError:
        return Document(raw.name, "", "invalid UTF-8")
    except RejectedError as reason:
        return Document(raw.name, "", str(reason), reason.fields)
    if raw.piece == 0 and raw.last and not text.strip():
        return Document(raw.name, "", "empty")
    return Document(raw.name, text.replace("\r\n", "\n"))
