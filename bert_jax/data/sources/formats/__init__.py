"""Formats of inputs: one row each says by which names it is known, how it is split, and how its text is found."""

import fnmatch
import functools
import os
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from bert_jax.data.sources import pieces
from bert_jax.data.sources.formats import delimited_records, json_records, markdown, parquet_records
from bert_jax.data.sources.formats.wiki import dump as wiki_dump
from bert_jax.data.sources.formats.wiki import extractor as wiki_extractor
from bert_jax.data.sources.formats.wiki import markup as wiki_markup
from bert_jax.data.sources.records import Document, Raw, Reading, RejectedError


class Format(NamedTuple):
    """A row of FORMATS."""

    split: Callable[[str, IO[bytes], Reading], Iterator[Raw]]  # cheap: name, stream -> documents as they lie there
    text: Callable[[str, Reading], str] = lambda data, _: data  # the costly part; may raise RejectedError
    patterns: tuple[str, ...] = ()  # of file names, for the format 'auto'
    option: str = ""  # the one of Reading, if any, that says what a document of it is: 'documents' or 'field'
    header: bool = False  # whether its first line tells if the field is there


FORMATS: dict[str, Format] = {
    "text": Format(functools.partial(pieces.split, format_name="text"), option="documents"),
    "markdown": Format(
        functools.partial(pieces.split, format_name="markdown"), markdown.text, ("*.md", "*.markdown"), "documents"
    ),
    "jsonl": Format(
        json_records.split, json_records.text, ("*.jsonl", "*.ndjson", "*.json-lines", "*.jsonlines", "*.json"), "field"
    ),
    "csv": Format(delimited_records.split_csv, patterns=("*.csv",), option="field", header=True),
    "tsv": Format(delimited_records.split_tsv, patterns=("*.tsv",), option="field", header=True),
    "parquet": Format(parquet_records.split, patterns=("*.parquet",), option="field"),
    "wikiextractor": Format(wiki_extractor.split, wiki_extractor.text, ("wiki_[0-9][0-9]",)),
    "mediawiki": Format(wiki_dump.split, wiki_markup.text, ("*.xml",)),
}


def format_of(name: str, reading: Reading) -> str:
    """The row of FORMATS that reads a file of this name."""
    if reading.format != "auto":
        return reading.format
    base = os.path.basename(name).lower()
    rows = (key for key, row in FORMATS.items() if any(fnmatch.fnmatchcase(base, one) for one in row.patterns))
    return next(rows, "text")


def convert(raw: Raw, reading: Reading) -> Document:
    """The text of a document, or why it has none; a piece of one that was checked as a whole always has one.

    Line ends become '\\n', a byte order mark is dropped.
    """
    if raw.rejected:
        return Document(raw.name, "", raw.rejected)
    if b"\0" in raw.data:
        return Document(raw.name, "", "binary")
    errors = "strict" if reading.encoding_errors == "reject" else reading.encoding_errors
    try:
        text = raw.data.decode("utf-8" if raw.piece else "utf-8-sig", errors)
        text = FORMATS[raw.format].text(text, reading)
    except UnicodeDecodeError:
        return Document(raw.name, "", "invalid UTF-8")
    except RejectedError as reason:
        return Document(raw.name, "", str(reason), reason.fields)
    if raw.piece == 0 and raw.last and not text.strip():
        return Document(raw.name, "", "empty")
    return Document(raw.name, text.replace("\r\n", "\n"))
