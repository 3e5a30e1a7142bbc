"""TSV and CSV files as records."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence

from bert_jax.errors import UserError
from bert_jax.tasks.reading.columns import absent_column
from bert_jax.tasks.reading.files import read_text
from bert_jax.tasks.task import Columns, Record

csv.field_size_limit(1 << 30)  # the module's own limit is 131,072 characters

_Row = tuple[str, list[str]]  # 'file:line', values


def read_delimited(
    path: str,
    columns: Columns,
    optional: Sequence[str],
    tally: Counter[str] | None = None,
    *,
    separator: str,
    quoted: bool,
    header: bool = True,
) -> Iterator[Record]:
    """Yield the records of a file, one per row; empty lines are skipped.

    Args:
        path: TSV or CSV, plain or .gz.
        columns: field -> name in the header, or number from 0 without a header.
        optional: fields whose column may be absent.
        tally: if given, counts rows with a wrong number of values, which are skipped.
        separator: one character.
        quoted: whether quotes around a value are syntax as in RFC 4180, or text.
        header: whether the first row names the columns.

    Raises:
        UserError: by file and line: a missing column, a wrong number of values, a quote that does not end.
    """
    lines = read_text(path).split("\n")
    rows = _quoted(path, lines, separator) if quoted else _plain(path, lines, separator)
    where, first = next(rows)
    if header:
        names, width = first, len(first)
    else:
        names, width = [str(number) for number in range(len(first))], len(first)
        rows = _chain((where, first), rows)
    indices = _indices(where, names, columns, optional)
    for place, values in rows:
        if len(values) == width:
            yield Record(place, {field: values[index] for field, index in indices.items()})
        elif tally is not None:
            tally["rows with a wrong number of columns are skipped"] += 1
        else:
            raise UserError(
                f"{place}: {len(values)} columns where the first row has {width}; "
                "fix the row (a separator, a line break or a quote inside a text?)"
            )


def _chain(first: _Row, rest: Iterator[_Row]) -> Iterator[_Row]:
    yield first
    yield from rest


def _indices(where: str, names: list[str], columns: Columns, optional: Sequence[str]) -> dict[str, int]:
    indices = {}
    for field, name in columns.items():
        if names.count(name) == 1:
            indices[field] = names.index(name)
        elif name in names:
            raise UserError(f"{where}: two columns are named '{name}'; rename one")
        elif field not in optional:
            raise absent_column(where, "column", field, columns, names)
    return indices


def _plain(path: str, lines: list[str], separator: str) -> Iterator[_Row]:
    for number, line in enumerate(lines, 1):
        bare = line.removesuffix("\r")
        if bare:
            yield f"{path}:{number}", bare.split(separator)


def _quoted(path: str, lines: list[str], separator: str) -> Iterator[_Row]:
    reader = csv.reader([f"{line}\n" for line in lines[:-1]] + lines[-1:], delimiter=separator, strict=True)
    before = 0
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"{path}:{before + 1}: unbalanced quotes ({error}); write a quote inside a quoted value twice, "
                "or, where quotes are text, add format=tsv_plain to config.task.columns"
            ) from None
        first, before = before + 1, reader.line_num
        if values:
            yield f"{path}:{first}" + (f"-{before}" if before > first else ""), values
