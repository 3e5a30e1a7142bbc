"""Reader of CSV and TSV: a row is a document, and a column holds its text."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from bert_jax.errors import UserError, did_you_mean
from bert_jax.readers.documents import RawDocument, ReadOptions, describe_field_names
from bert_jax.readers.formats.fields import FieldTemplatePart, parse_field_template
from bert_jax.readers.rows import OPEN_QUOTE, Line, Row, read_lines, rows_of_lines

# Advice for each likely separator of a file in which the requested column is not found.
_SEPARATORS = {
    ",": "its columns may be separated by commas: read it with --format csv",
    "\t": "its columns may be separated by tabs: read it with --format tsv",
    ";": "its columns may be separated by semicolons: read it with --format csv",
}
_SEMICOLON = ";"  # separator of CSV from spreadsheets in languages with a decimal comma


def read_delimited_records(
    name: str, stream: IO[bytes], options: ReadOptions, separator: str, quoted: bool
) -> Iterator[RawDocument]:
    """Yield the text of each row of a CSV or TSV file; the first row holds the column names.

    `options.field` is the name of a column, or a template of columns. If `options.field` is the number of a column
    (from 0), the first row is a document instead of a header. A CSV file may have semicolons in place of commas.
    Semicolons separate the columns if the first line has more columns with semicolons than with commas, and lacks a
    wanted column with commas.

    Raises:
        UserError: there is no such column, or several columns have the name, or a quote does not end.
    """
    parts = parse_field_template(options.field)
    lines = read_lines(stream)
    first = list(itertools.islice(lines, 1))
    if quoted and first and _is_separated_by_semicolons(first[0], separator, options.field, parts):
        separator = _SEMICOLON
    rows = _refuse_open_quote(name, rows_of_lines(itertools.chain(first, lines), separator, quoted))
    header = next(rows, None)
    if header is None:
        yield RawDocument(name=name, rejected="empty")
        return
    if header.problem:
        raise UserError(f"{name}:{header.first_line}: the row with the column names: {header.problem}; fix it")
    names = [value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for value in header.values]
    if options.field.isdecimal() and int(options.field) < len(names):
        columns = [int(options.field)]
        rows = itertools.chain([header], rows)
    else:
        missing = [part.name for part in parts if part.name and part.name not in names]
        if missing:
            raise _missing_column_error(name, names, missing[0], separator)
        for part in parts:
            if part.name and names.count(part.name) > 1:
                count = names.count(part.name)
                raise UserError(f"{name}: {count} columns are named '{part.name}'; write it with different names")
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


def _is_separated_by_semicolons(line: Line, usual: str, field: str, parts: Sequence[FieldTemplatePart]) -> bool:
    """Return whether a first line, split at `usual`, lacks a wanted column, and has more columns if split at ';'."""
    rows = [next(rows_of_lines(iter([line]), separator, quoted=True), None) for separator in (usual, _SEMICOLON)]
    names, others = (row.values if row else [] for row in rows)
    has_columns = (field.isdecimal() and int(field) < len(names)) or all(
        not part.name or part.name in names for part in parts
    )
    return not has_columns and len(others) > len(names)


def _refuse_open_quote(name: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows; raise UserError for a quote that does not end, because no row after the quote can be read."""
    for row in rows:
        if row.problem == OPEN_QUOTE:
            raise UserError(
                f"{name}:{row.first_line}: {OPEN_QUOTE}; write a quote inside a quoted value twice, or read "
                "the file with --format tsv or text"
            )
        yield row


def _missing_column_error(name: str, names: Sequence[str], field: str, separator: str) -> UserError:
    """Return the error for a missing column, with a hint about the separator or a similar name."""
    header = "".join(names)
    likely = [mark for mark in _SEPARATORS if mark != separator and header.count(mark) > len(names) - 1]
    if likely:
        columns = describe_field_names(separator.join(names).split(likely[0]))
        return UserError(f"{name}: no column '{field}' (there are {columns}); {_SEPARATORS[likely[0]]}")
    near = did_you_mean(field, filter(str.isprintable, names))
    return UserError(
        f"{name}: no column '{field}'{near} (there are {describe_field_names(names)}); "
        "give a column with --field, or its number from 0 if there is no header"
    )
