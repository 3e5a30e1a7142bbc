"""CSV and TSV -> documents, one per row; the text is a column."""

import codecs
import csv
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from bert_jax.errors import UserError, did_you_mean
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, format_names
from bert_jax.readers.formats.fields import Part, template_parts
from bert_jax.readers.formats.streams import Line, read_lines


class _Row(NamedTuple):
    line: int
    values: list[bytes]
    rejected: str = ""


# What may separate the columns of a file in which the requested one is not found, and how to fix it.
_SEPARATORS = {
    ",": "its columns may be separated by commas: read it with --format csv",
    "\t": "its columns may be separated by tabs: read it with --format tsv",
    ";": "its columns may be separated by ';', which is not read: write it with commas or tabs (--format csv or tsv)",
}


class _TooLargeError(Exception):
    """A line is too long to hold in memory."""


def read_csv_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of comma-separated values with quotes as in RFC 4180; the first holds the column names.

    A field may be a template of columns. One that is a number is that column, from 0, of a file whose first row is a
    document, not a header.

    Raises:
        UserError: no such column; an unterminated quote.
    """
    return _read_column(name, _quoted_rows(name, stream), options, ",")


def read_tsv_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of tab-separated values, in which quotes are text; otherwise as `read_csv_records`."""
    return _read_column(name, _unquoted_rows(stream), options, "\t")


def _read_column(name: str, rows: Iterator[_Row], options: ReadOptions, separator: str) -> Iterator[RawDocument]:
    first = next(rows, None)
    if first is None:
        yield RawDocument(name, rejected="empty")
        return
    if first.rejected:
        raise UserError(f"{name}:{first.line}: the row with the column names: {first.rejected}; fix it")
    names = [value.decode("utf-8", "replace") for value in first.values]
    parts = template_parts(options.field)
    if options.field.isdecimal() and int(options.field) < len(names):
        columns, empty = [int(options.field)], False
        yield _raw_document(name, first, parts, columns, len(names))
    else:
        missing = [part.name for part in parts if part.name and part.name not in names]
        if missing:
            raise _no_column(name, names, missing[0], separator)
        columns, empty = [names.index(part.name) for part in parts if part.name], True
    for row in rows:
        empty = False
        yield _raw_document(name, row, parts, columns, len(names))
    if empty:
        yield RawDocument(name, rejected="empty")


def _no_column(name: str, names: Sequence[str], field: str, separator: str) -> UserError:
    header = "".join(names)
    hints = (hint for other, hint in _SEPARATORS.items() if other != separator and header.count(other) > len(names) - 1)
    if hint := next(hints, ""):
        return UserError(f"{name}: no column '{field}' (there are {format_names(names)}); {hint}")
    near = did_you_mean(field, filter(str.isprintable, names))
    return UserError(
        f"{name}: no column '{field}'{near} (there are {format_names(names)}); "
        "give one with --field, or its number from 0 where there is no header"
    )


def _raw_document(name: str, row: _Row, parts: Sequence[Part], columns: Sequence[int], width: int) -> RawDocument:
    where = f"{name}:{row.line}"
    if row.rejected or len(row.values) != width:
        return RawDocument(where, rejected=row.rejected or "wrong number of columns")
    values = (row.values[column] for column in columns)
    text = b"".join(part.literal.encode() + (next(values) if part.name else b"") for part in parts)
    return RawDocument(where, text, is_field=True)


def _unquoted_rows(stream: IO[bytes]) -> Iterator[_Row]:
    for number, data, too_large in read_lines(stream):
        bare = (data.removeprefix(codecs.BOM_UTF8) if number == 1 else data).rstrip(b"\r\n")
        if too_large:
            yield _Row(number, [], "too large")
        elif bare:
            yield _Row(number, bare.split(b"\t"))


def _quoted_rows(name: str, stream: IO[bytes]) -> Iterator[_Row]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD_BYTES))
    lines = _CsvLines(read_lines(stream))
    reader = csv.reader(lines, strict=True)
    while True:
        lines.size, start = 0, lines.number + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except (_TooLargeError, csv.Error) as error:
            if lines.ended or (lines.size > MAX_RECORD_BYTES and lines.number > start):
                raise UserError(
                    f"{name}:{start}: an unterminated quote; write a quote inside a quoted value twice, or read "
                    "the file with --format tsv or text"
                ) from None
            yield _Row(start, [], "too large" if isinstance(error, _TooLargeError) else "broken CSV")
            continue
        if values:
            yield _Row(start, [value.encode("utf-8", "surrogateescape") for value in values])


class _CsvLines:
    """Lines for the csv module; unlike a generator it continues after an error."""

    def __init__(self, lines: Iterator[Line]):
        self._lines = lines
        self.number = self.size = 0  # number of the last line; bytes since `_quoted_rows` set this to 0
        self.ended = False

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self.number = line.number
        self.size += len(line.data)
        if line.too_large or self.size > MAX_RECORD_BYTES:
            raise _TooLargeError
        data = line.data.removeprefix(codecs.BOM_UTF8) if line.number == 1 else line.data
        return data.decode("utf-8", "surrogateescape")
