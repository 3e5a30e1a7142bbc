"""CSV and TSV, with a document per row; the text is a column."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from bert_jax.errors import UserError, did_you_mean
from bert_jax.readers.documents import RawDocument, ReadOptions, format_names
from bert_jax.readers.formats.fields import template_parts
from bert_jax.readers.rows import OPEN_QUOTE, Row, read_rows

# Advice for each likely separator of a file in which the requested column is not found.
_SEPARATORS = {
    ",": "its columns may be separated by commas: read it with --format csv",
    "\t": "its columns may be separated by tabs: read it with --format tsv",
    ";": "separate columns by commas (csv) or tabs (tsv), not by ';'",
}


def read_delimited_records(
    name: str, stream: IO[bytes], options: ReadOptions, separator: str, quoted: bool
) -> Iterator[RawDocument]:
    """Yield the text of each row; the first row holds the column names.

    A field may be a template of columns. If the field is a number, it is the number of a column (from 0), and the first
    row is a document instead of a header.

    Raises:
        UserError: there is no such column, or a quote does not end.
    """
    rows = _rows_without_open_quote(name, read_rows(stream, separator, quoted))
    header = next(rows, None)
    if header is None:
        yield RawDocument(name=name, rejected="empty")
        return
    if header.problem:
        raise UserError(f"{name}:{header.first_line}: the row with the column names: {header.problem}; fix it")
    names = [value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in header.values]
    parts = template_parts(options.field)
    if options.field.isdecimal() and int(options.field) < len(names):
        columns = [int(options.field)]
        rows = itertools.chain([header], rows)
    else:
        missing = [part.name for part in parts if part.name and part.name not in names]
        if missing:
            raise _no_column(name, names, missing[0], separator)
        columns = [names.index(part.name) for part in parts if part.name]
    empty = True
    for row in rows:
        empty = False
        where = f"{name}:{row.first_line}"
        if row.problem or len(row.values) != len(names):
            yield RawDocument(name=where, rejected=row.problem or "wrong number of columns")
            continue
        values = (row.values[column] for column in columns)
        text = "".join(part.literal + (next(values) if part.name else "") for part in parts)
        yield RawDocument(name=where, data=text.encode("utf-8", "surrogateescape"), is_field=True)
    if empty:
        yield RawDocument(name=name, rejected="empty")


def _rows_without_open_quote(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows; raise UserError for a quote that does not end, because nothing can be read after it."""
    for row in rows:
        if row.problem == OPEN_QUOTE:
            raise UserError(
                f"{name}:{row.first_line}: {OPEN_QUOTE}; write a quote inside a quoted value twice, or read "
                "the file with --format tsv or text"
            )
        yield row


def _no_column(name: str, names: Sequence[str], field: str, separator: str) -> UserError:
    """Return the error for a missing column, with a hint about the separator or a similar name."""
    header = "".join(names)
    likely = [mark for mark in _SEPARATORS if mark != separator and header.count(mark) > len(names) - 1]
    if likely:
        columns = format_names(separator.join(names).split(likely[0]))
        return UserError(f"{name}: no column '{field}' (there are {columns}); {_SEPARATORS[likely[0]]}")
    near = did_you_mean(field, filter(str.isprintable, names))
    return UserError(
        f"{name}: no column '{field}'{near} (there are {format_names(names)}); "
        "give a column with --field, or its number from 0 if there is no header"
    )
