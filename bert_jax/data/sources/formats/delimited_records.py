"""CSV and TSV -> documents, one a row; the text is a column."""

import codecs
import csv
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from bert_jax.data.sources.formats.lines import Line, read_lines
from bert_jax.data.sources.records import MAX_RECORD, Raw, Reading, listed
from bert_jax.errors import UserError, did_you_mean


class _Row(NamedTuple):
    line: int
    values: list[bytes]
    rejected: str = ""


# What may stand between the columns of a file in which one is not found, and what to do about it.
_SEPARATORS = {
    ",": "its columns may be parted by commas: read it with --format csv",
    "\t": "its columns may be parted by tabs: read it with --format tsv",
    ";": "its columns may be parted by ';', which is not read: write it with commas or tabs (--format csv or tsv)",
}


class _TooLargeError(Exception):
    """A line that cannot be held."""


def split_csv(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Raw]:
    """The rows of comma-separated values with quotes as in RFC 4180; the first names the columns.

    A field that is a number is that column, from 0 on, of a file whose first row names nothing and is a document.

    Raises:
        UserError: no such column; a quote that does not end.
    """
    return _split(name, _quoted(name, stream), reading, ",")


def split_tsv(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Raw]:
    """The rows of tab-separated values, in which quotes are text; else as `split_csv`."""
    return _split(name, _plain(stream), reading, "\t")


def _split(name: str, rows: Iterator[_Row], reading: Reading, separator: str) -> Iterator[Raw]:
    first = next(rows, None)
    if first is None:
        yield Raw(name, rejected="empty")
        return
    if first.rejected:
        raise UserError(f"{name}:{first.line}: the row that names the columns: {first.rejected}; mend it")
    names = [value.decode("utf-8", "replace") for value in first.values]
    if reading.field.isdecimal() and int(reading.field) < len(names):
        column, empty = int(reading.field), False
        yield _raw(name, first, column, len(names))
    elif reading.field in names:
        column, empty = names.index(reading.field), True
    else:
        raise _no_column(name, names, reading.field, separator)
    for row in rows:
        empty = False
        yield _raw(name, row, column, len(names))
    if empty:
        yield Raw(name, rejected="empty")


def _no_column(name: str, names: Sequence[str], field: str, separator: str) -> UserError:
    header = "".join(names)
    mend = (hint for other, hint in _SEPARATORS.items() if other != separator and header.count(other) > len(names) - 1)
    if hint := next(mend, ""):
        return UserError(f"{name}: no column '{field}' (there are {listed(names)}); {hint}")
    near = did_you_mean(field, filter(str.isprintable, names))
    return UserError(
        f"{name}: no column '{field}'{near} (there are {listed(names)}); "
        "name one with --field, or by its number from 0 where no row names them"
    )


def _raw(name: str, row: _Row, column: int, width: int) -> Raw:
    where = f"{name}:{row.line}"
    if row.rejected or len(row.values) != width:
        return Raw(where, rejected=row.rejected or "wrong number of columns")
    return Raw(where, row.values[column])


def _plain(stream: IO[bytes]) -> Iterator[_Row]:
    for number, data, too_large in read_lines(stream):
        bare = (data.removeprefix(codecs.BOM_UTF8) if number == 1 else data).rstrip(b"\r\n")
        if too_large:
            yield _Row(number, [], "too large")
        elif bare:
            yield _Row(number, bare.split(b"\t"))


def _quoted(name: str, stream: IO[bytes]) -> Iterator[_Row]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_RECORD))
    lines = _CsvLines(read_lines(stream))
    reader = csv.reader(lines, strict=True)
    while True:
        lines.size, start = 0, lines.number + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except (_TooLargeError, csv.Error) as error:
            if lines.ended or (lines.size > MAX_RECORD and lines.number > start):
                raise UserError(
                    f"{name}:{start}: a quote that does not end; write a quote inside a quoted value twice, or read "
                    "the file with --format tsv or text"
                ) from None
            yield _Row(start, [], "too large" if isinstance(error, _TooLargeError) else "broken CSV")
            continue
        if values:
            yield _Row(start, [value.encode("utf-8", "surrogateescape") for value in values])


class _CsvLines:
    """Lines for the csv module; goes on after an error, as no generator does."""

    def __init__(self, lines: Iterator[Line]):
        self._lines = lines
        self.number = self.size = 0  # of the last line; bytes since the reader of it set this to 0
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
        if line.too_large or self.size > MAX_RECORD:
            raise _TooLargeError
        data = line.data.removeprefix(codecs.BOM_UTF8) if line.number == 1 else line.data
        return data.decode("utf-8", "surrogateescape")
