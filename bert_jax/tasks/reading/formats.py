"""Files of tasks -> records: a format is a row of `FORMATS`. Broken files are refused, by file and line."""

import functools
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.readers.rows import ABSENT, check_object, look_up, parse_json, read_rows, read_text_lines
from bert_jax.tasks.reading.files import absent_column_error, read_task_text
from bert_jax.tasks.task import Columns, Record

DOCUMENT_MARK = "-DOCSTART-"


def read_delimited(
    path: str,
    columns: Columns,
    optional: Sequence[str],
    skipped: Counter[str] | None = None,
    *,
    separator: str,
    quoted: bool,
    header: bool = True,
) -> Iterator[Record]:
    """Yield a record per row of a file; empty lines are skipped.

    Args:
        path: TSV or CSV, plain or .gz.
        columns: field -> name in the header, or number from 0 without a header.
        optional: fields whose column may be absent.
        skipped: if given, counts rows with a wrong number of values, which are skipped.
        separator: one character.
        quoted: whether quotes around a value are syntax as in RFC 4180, or text.
        header: whether the first row names the columns.

    Raises:
        UserError: by file and line: a missing column, a wrong number of values, a quote that does not end.
    """
    rows = _located_rows(path, separator, quoted)
    where, first = next(rows)
    width = len(first)
    names = first if header else [str(column) for column in range(width)]
    if not header:
        rows = itertools.chain([(where, first)], rows)
    indices = {}
    for field, name in columns.items():
        if names.count(name) == 1:
            indices[field] = names.index(name)
        elif name in names:
            raise UserError(f"{where}: two columns are named '{name}'; rename a column")
        elif field not in optional:
            raise absent_column_error(where, "column", field, columns, names)
    for where, values in rows:
        if len(values) == width:
            yield Record(where, {field: values[index] for field, index in indices.items()})
        elif skipped is not None:
            skipped["rows with a wrong number of columns are skipped"] += 1
        else:
            raise UserError(
                f"{where}: {len(values)} columns where the first row has {width}; "
                "fix the row (a separator, a line break or a quote inside a text?)"
            )


def _located_rows(path: str, separator: str, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield 'PATH:LINE', or 'PATH:FIRST-LAST', and the values of each row."""
    data = read_task_text(path).encode()
    for row in read_rows(io.BytesIO(data), separator, quoted, max_bytes=len(data)):
        where = f"{path}:{row.first_line}"
        if row.problem:
            raise UserError(
                f"{where}: unbalanced quotes in this row; write a quote inside a quoted value twice, "
                "or, where quotes are text, add format=tsv_plain to config.task.columns"
            )
        yield where + (f"-{row.last_line}" if row.last_line > row.first_line else ""), row.values


def read_tokens(
    path: str, columns: Columns, optional: Sequence[str], skipped: Any = None, *, separator: str = "", comment: str = ""
) -> Iterator[Record]:
    """Yield the sentences of a file: a line for each token with its columns, an empty line after each sentence.

    Lines with a document mark (-DOCSTART-) are skipped.

    Args:
        path: plain or .gz.
        columns: 'tokens' and 'labels' -> number of the column, from 0, or from -1 backwards.
        optional: ('labels',) where the file may have tokens alone.
        skipped: not used.
        separator: one character; '': a tab if it is in the line of the first token, else a space.
        comment: prefix of lines to skip.

    Raises:
        UserError: a line with another number of columns than the first line, or a missing column.
    """
    indices = {}
    for field, name in columns.items():
        try:
            indices[field] = int(name)
        except ValueError:
            raise UserError(
                f"{path}: columns of this format are numbers from 0, not '{name}' for {field}; fix config.task.columns"
            ) from None
    rows: list[list[str]] = []  # of the sentence: the columns of each token
    first_line = width = 0
    for line_number, line in enumerate([*read_task_text(path).split("\n"), ""], 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith(DOCUMENT_MARK):
            if rows:
                fields = {field: [row[index] for row in rows] for field, index in indices.items()}
                yield Record(f"{path}:{first_line}", fields)
                rows = []
            continue
        if comment and line.startswith(comment):
            continue
        separator = separator or ("\t" if "\t" in line else " ")
        values = line.split(separator)
        where = f"{path}:{line_number}"
        if not width:
            width = len(values)
            indices = _present_columns(where, indices, width, optional)
        if len(values) != width:
            raise UserError(f"{where}: {len(values)} columns where the first token has {width}; fix the line")
        if not rows:
            first_line = line_number
        rows.append(values)


def _present_columns(where: str, indices: dict[str, int], width: int, optional: Sequence[str]) -> dict[str, int]:
    """Return the columns that a file of `width` columns has; UserError for a missing required column."""
    present = {}
    for field, index in indices.items():
        # The only column of a file holds the tokens, not their labels.
        if -width <= index < width and not (width == 1 and field == "labels"):
            present[field] = index
        elif field not in optional:
            raise UserError(f"{where}: no column {index} for {field} among {width}; fix config.task.columns")
    return present


def read_objects(path: str, columns: Columns, optional: Sequence[str], skipped: Any = None) -> Iterator[Record]:
    """Yield the records of a file that is a list of objects, or has an object per line.

    A column is a key, or several keys joined by dots for objects inside objects.

    Raises:
        UserError: invalid JSON, not an object, or a missing key, by file and line (in a list: by number).
    """
    for where, value in _json_values(path, read_task_text(path)):
        item = check_object(where, value)
        fields = {}
        for field, name in columns.items():
            member = look_up(item, name)
            if member is not ABSENT:
                fields[field] = member
            elif field not in optional:
                raise absent_column_error(where, "key", field, columns, item)
        yield Record(where, fields)


def _json_values(path: str, text: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list, or the values of lines, with the place of each."""
    first_line, *further_lines = text.strip().split("\n", 1)
    if first_line.startswith("[") and not (further_lines and _parses_as_json(first_line)):  # else a list on each line
        for index, value in enumerate(parse_json(path, text)):
            yield f"{path}: item {index}", value
        return
    data = text.encode()
    for line_number, line in read_text_lines(path, io.BytesIO(data), len(data)):
        if line.strip():
            where = f"{path}:{line_number}"
            yield where, parse_json(where, line)


def _parses_as_json(text: str) -> bool:
    try:
        parse_json("", text)
    except UserError:
        return False
    return True


def read_squad(path: str, columns: Columns, optional: Sequence[str], skipped: Any = None) -> Iterator[Record]:
    """Yield the questions of a file in the layout of SQuAD 1.1 and 2.0; columns are not used.

    Raises:
        UserError: invalid JSON, or a part that is missing or has the wrong type, by its path in the document.
    """
    document = parse_json(path, read_task_text(path))
    for where_article, article in _squad_items(path, document, "data"):
        for where_paragraph, paragraph in _squad_items(where_article, article, "paragraphs"):
            context = _squad_member(where_paragraph, paragraph, "context", str)
            for where, question in _squad_items(where_paragraph, paragraph, "qas"):
                question_id = _squad_member(where, question, "id", str)
                fields = {
                    "id": question_id,
                    "question": _squad_member(where, question, "question", str),
                    "context": context,
                }
                fields |= {key: question[key] for key in ("answers", "is_impossible") if key in question}
                yield Record(f"{path}: question {question_id}", fields)


def _squad_items(where: str, parent: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of the list `key` of a JSON object, with the path of each."""
    for index, item in enumerate(_squad_member(where, parent, key, list)):
        yield f"{where} {key}[{index}]", item


def _squad_member(where: str, parent: Any, key: str, kind: type) -> Any:
    """Return the value of `key` in a JSON object; UserError for another type than `kind`."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, kind):
        wanted = "text" if kind is str else "list"
        raise UserError(f"{where}: no {wanted} '{key}'; the layout is data > paragraphs > context, qas > id, question")
    return value


# Arguments: path, columns, optional fields, counter of skipped rows (None: they are refused).
Format = Callable[..., Iterator[Record]]

FORMATS: dict[str, Format] = {
    "tsv_plain": functools.partial(read_delimited, separator="\t", quoted=False),  # quotes are text, as in GLUE
    "tsv_headless": functools.partial(read_delimited, separator="\t", quoted=False, header=False),
    "tsv": functools.partial(read_delimited, separator="\t", quoted=True),
    "csv": functools.partial(read_delimited, separator=",", quoted=True),
    "json": read_objects,  # a list, or an object per line
    "squad": read_squad,
    "conll": read_tokens,
    "conll_space": functools.partial(read_tokens, separator=" "),
    "conll_tab": functools.partial(read_tokens, separator="\t"),
    "conll_klue": functools.partial(read_tokens, separator="\t", comment="##"),
}
# Formats with a token per line, whose columns are numbers.
TOKEN_PER_LINE = ("conll", "conll_space", "conll_tab", "conll_klue")
# Suffix of a file name, without .gz -> format; a kind may have others (`TaskKind.suffixes`).
SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def format_of_suffix(path: str, suffixes: Mapping[str, str]) -> str | None:
    """Return the format of a file by its suffix, None for an unknown suffix; `suffixes` precede `SUFFIXES`."""
    bare = path.removesuffix(".gz")
    return (SUFFIXES | dict(suffixes)).get(bare[bare.rfind(".") :])


def read_file_records(
    path: str,
    format_name: str,
    suffixes: Mapping[str, str],
    columns: Columns,
    optional: Sequence[str],
    skipped: Counter[str] | None,
) -> Iterator[Record]:
    """Return the records of a file in the format `format_name`; '': the format of its suffix.

    Raises:
        UserError: a suffix without a format, or as the format itself.
    """
    format_name = format_name or format_of_suffix(path, suffixes) or ""
    if not format_name:
        known = ", ".join(SUFFIXES | dict(suffixes))
        raise UserError(f"{path}: unknown format; use one of {known}, or add format=NAME to the columns")
    return FORMATS[format_name](path, columns, optional, skipped)
