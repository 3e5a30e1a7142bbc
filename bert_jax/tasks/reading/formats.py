"""Readers of records from the files of a task; each row of `FORMATS` is a format. A broken file raises UserError."""

import functools
import io
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.rows import (
    ABSENT,
    BROKEN_CSV,
    check_json_object,
    look_up_field,
    parse_json,
    read_rows,
    read_text_lines,
)
from bert_jax.tasks.reading.files import absent_column_error, read_task_bytes, read_task_text
from bert_jax.tasks.task import SUFFIXES_OF_TOKENS, Columns, Record

DOCUMENT_MARK = "-DOCSTART-"
CONLL_COMMENT = re.compile(r"# *(sent_id|text|newdoc|newpar|global\.columns)\b", re.ASCII)
UNREAD_COLUMNS = "files without the column of labels have further columns, which are not read"
CONLLU_WIDTH = 10  # number of columns of CoNLL-U
CONLLU_RANGE = re.compile(
    r"\d+[-.]\d+", re.ASCII
)  # in the first column: a multiword token (2-3) or an empty node (8.1)
SEPARATORS = (",", "\t", ";", "|")  # separators of columns, tried in this order
SPREADSHEETS = (".xlsx", ".xls", ".ods")
NAMES_OF_SEPARATORS = {"\t": "tabs"}


def read_delimited(
    path: str,
    columns: Columns,
    optional: Sequence[str],
    skipped: Counter[str] | None = None,
    notes: Counter[str] | None = None,
    *,
    separator: str,
    quoted: bool,
    header: bool = True,
    find_separator: bool = False,
) -> Iterator[Record]:
    """Yield a record for each row of a CSV or TSV file, and skip empty lines.

    Args:
        path: path of the file, plain or .gz.
        columns: for each field, the name of its column in the header or, without a header, the column's number from 0
            on.
        optional: fields whose column may be absent.
        skipped: counter of skipped rows, which have a wrong number of values; None: a wrong number of values is an
            error.
        notes: counter of unusual findings to report to the user, such as a separator other than `separator`.
        separator: character between columns.
        quoted: True if quotes around a value are syntax (RFC 4180), False if they are text.
        header: True if the first row names the columns; white space around the names is ignored.
        find_separator: True to try further separators if splitting the header at `separator` gives no column for a
            required field.

    Raises:
        UserError: a column is missing, a row has a wrong number of values, or a quote does not end; the message names
            file and line.
    """
    data = read_task_text(path).encode()
    usual = separator
    if find_separator:
        required = {name for field, name in columns.items() if field not in optional}
        separator = _find_separator(data, separator, required)
    rows = _read_located_rows(path, data, separator, quoted)
    where, first = next(rows)
    width = len(first)
    names = [name.strip() for name in first] if header else [str(column) for column in range(width)]
    if not header:
        rows = itertools.chain([_LocatedRow(where, first)], rows)
    keys_of_row, indices = _distinct_names(names), {}
    for field, name in columns.items():
        if names.count(name) == 1:
            indices[field] = names.index(name)
        elif name in names:
            raise UserError(f"{where}: two columns are named '{name}'; rename a column")
        elif field not in optional:
            raise _absent_column_error(where, field, columns, names, separator)
    if notes is not None and separator != usual:
        notes[f"columns, separated by {NAMES_OF_SEPARATORS.get(separator, repr(separator))}"] = width
    for where, values in rows:
        if len(values) == width:
            row = dict(zip(keys_of_row, values, strict=True))
            yield Record(where, {field: values[index] for field, index in indices.items()}, row)
        elif skipped is not None:
            skipped["rows with a wrong number of columns are skipped"] += 1
        else:
            raise UserError(
                f"{where}: {len(values)} columns, but the first row has {width}; "
                "fix the row (a separator, a line break or a quote inside a text?)"
            )


def _distinct_names(names: Sequence[str]) -> list[str]:
    """Return a different name for each column: a repeated name gets the number of its column, as in `note_3`."""
    distinct = list[str]()
    for number, name in enumerate(names, 1):
        is_first = bool(name) and name not in names[: number - 1]
        key = name if is_first else f"{name or 'column'}_{number}"
        while key in distinct or (not is_first and key in names):
            key += "_"
        distinct.append(key)
    return distinct


def _find_separator(data: bytes, usual: str, required: Set[str]) -> str:
    """Return the separator that gives the header the most required columns; of equally good separators, prefer `usual`.

    If no column is required, or if every separator leaves a required column missing, the best separator is the
    separator that gives the most columns, so that an error can name the columns.
    """

    def matching_columns(separator: str) -> tuple[int, int]:
        names = next(read_rows(io.BytesIO(data), separator, True, max_bytes=len(data))).values
        num_required = len(required & {name.strip() for name in names})
        return num_required, 0 if required and num_required == len(required) else len(names)

    return max(dict.fromkeys((usual, *SEPARATORS)), key=matching_columns)


def _absent_column_error(where: str, field: str, columns: Columns, names: list[str], separator: str) -> UserError:
    """Return the error for a field whose column is not in the header; the cause may be a wrong separator."""
    if len(names) == 1 and columns[field] in names[0]:
        return UserError(
            f"{where}: the separator {separator!r} splits nothing, so the only column is {names[0]!r:.60}; set "
            "--delimiter (config.task.delimiter) to the character between the columns"
        )
    return absent_column_error(where, "column", field, columns, names)


class _LocatedRow(NamedTuple):
    """A row of a file: its location and its values."""

    where: str
    values: list[str]


def _read_located_rows(path: str, data: bytes, separator: str, quoted: bool) -> Iterator[_LocatedRow]:
    """Yield the location ('PATH:LINE' or 'PATH:FIRST-LAST') and the values of each row."""
    for row in read_rows(io.BytesIO(data), separator, quoted, max_bytes=len(data)):
        where = f"{path}:{row.first_line}"
        if row.problem:
            lines = data.split(b"\n")[row.first_line - 1 : row.last_line]
            if row.problem == BROKEN_CSV and any(b"\r" in line.removesuffix(b"\r") for line in lines):
                raise UserError(
                    f"{where}: a carriage return inside of a row; save the file with line ends LF or CRLF, and put "
                    "texts with line breaks into quotes"
                )
            raise UserError(
                f"{where}: unbalanced quotes in this row; write a quote inside a quoted value twice, "
                "or, where quotes are text, add format=tsv_plain to config.task.columns"
            )
        yield _LocatedRow(where + (f"-{row.last_line}" if row.last_line > row.first_line else ""), row.values)


def read_conll(
    path: str,
    columns: Columns,
    optional: Sequence[str],
    skipped: Any = None,
    notes: Counter[str] | None = None,
    *,
    separator: str = "",
    comment: str = "",
) -> Iterator[Record]:
    """Yield the sentences of a CoNLL file, which has a line of columns per token, and a blank line after each sentence.

    The reader skips lines with a document mark (-DOCSTART-). In a CoNLL-U file, the reader also skips comments (#
    sent_id = 1), empty nodes, and multiword tokens, whose words are on the lines after them. White space at the end of
    a line is ignored. Several spaces between columns are one separator.

    Args:
        path: path of the file, plain or .gz.
        columns: numbers of the columns of 'tokens' and 'labels', counted from 0 or, backwards from the last, from -1.
        optional: ('labels',) if the file may have no column of labels.
        skipped: not used.
        notes: counter of skipped comments, multiword tokens and empty nodes, and of files with columns but no labels.
        separator: character between columns; '': a tab if the first line with a token contains a tab, otherwise a
            space.
        comment: prefix of further lines that are skipped.

    Raises:
        UserError: a line has fewer or more columns than the first line, or a column is missing.
    """
    indices = {}
    for field, name in columns.items():
        try:
            indices[field] = int(name)
        except ValueError:
            raise UserError(
                f"{path}: columns of this format are numbers from 0, not '{name}' for {field}; fix config.task.columns"
            ) from None
    rows: list[list[str]] = []  # the columns of each token of the sentence
    first_line = width = 0
    for line_number, line in enumerate([*read_task_text(path).split("\n"), ""], 1):
        if not line.strip() or line.startswith(DOCUMENT_MARK):
            if rows:
                fields = {field: [row[index] for row in rows] for field, index in indices.items()}
                yield Record(f"{path}:{first_line}", fields)
                rows = []
            continue
        if comment and line.startswith(comment):
            continue
        if not rows and CONLL_COMMENT.match(line):
            if notes is not None:
                notes["comments of CoNLL-U are skipped"] += 1
            continue
        line = line.rstrip(" \t\r")
        separator = separator or ("\t" if "\t" in line else " ")
        values = re.split(" +", line.lstrip(" ")) if separator == " " else line.split(separator)
        where = f"{path}:{line_number}"
        if not width:
            width = len(values)
            indices = _present_columns(where, indices, width, optional)
            if notes is not None and "labels" in columns.keys() - indices and width > 1:
                notes[UNREAD_COLUMNS] += 1
        if len(values) != width:
            raise UserError(f"{where}: {len(values)} columns, but the first token has {width}; fix the line")
        if width == CONLLU_WIDTH and indices.get("tokens", 0) % width and CONLLU_RANGE.fullmatch(values[0]):
            if notes is not None:
                notes["multiword tokens and empty nodes of CoNLL-U are skipped"] += 1
            continue
        if not rows:
            first_line = line_number
        rows.append(values)


def _present_columns(where: str, indices: dict[str, int], width: int, optional: Sequence[str]) -> dict[str, int]:
    """Return a dict from field to index for the columns in a file of `width` columns; raise UserError for other fields.

    Columns of optional fields may be missing.
    """
    present = {}
    for field, index in indices.items():
        # The only column of a file holds the tokens, not their labels.
        if -width <= index < width and not (width == 1 and field == "labels"):
            present[field] = index
        elif field not in optional:
            raise UserError(f"{where}: no column {index} for {field} among {width}; fix config.task.columns")
    return present


def read_json_objects(
    path: str, columns: Columns, optional: Sequence[str], skipped: Any = None, notes: Any = None
) -> Iterator[Record]:
    """Yield the records of a JSON file, which is a list of objects or has one object per line.

    A column is a key of an object or, for objects inside of objects, several keys joined by dots.

    Raises:
        UserError: a line is not JSON or not an object, or a key is missing. The message names the file and the line or,
            in a list, the number of the item.
    """
    for where, value in _read_json_values(path, read_task_text(path)):
        yield _object_record(where, value, columns, optional)


def _object_record(where: str, value: Any, columns: Columns, optional: Sequence[str]) -> Record:
    """Return the record of a JSON value; raise UserError if the value is not an object or lacks a required key."""
    item = check_json_object(where, value)
    fields = {}
    for field, name in columns.items():
        member = look_up_field(item, name)
        if member is not ABSENT:
            fields[field] = member
        elif field not in optional:
            raise absent_column_error(where, "key", field, columns, item)
    return Record(where, fields, item)


def read_parquet(
    path: str, columns: Columns, optional: Sequence[str], skipped: Any = None, notes: Any = None
) -> Iterator[Record]:
    """Yield the rows of a Parquet file, whose columns may hold texts, numbers, lists and structs.

    Raises:
        UserError: pyarrow is not installed, the file is broken, or a column is missing.
    """
    with needs_packages(path, "pyarrow"):
        import pyarrow
        from pyarrow import parquet
    try:
        table = parquet.ParquetFile(io.BytesIO(read_task_bytes(path)))
        names = table.schema_arrow.names
        present = {field: name for field, name in columns.items() if {name, name.partition(".")[0]} & {*names}}
        for field in columns:
            if field not in present and field not in optional:
                raise absent_column_error(path, "column", field, columns, names)
        index = 0
        for batch in table.iter_batches():
            for item in _rows_of_batch(path, batch):
                index += 1
                yield _object_record(f"{path}: row {index}", item, columns, optional)
    except (pyarrow.ArrowException, ValueError) as error:
        line = str(error).partition("\n")[0]
        raise UserError(f"{path}: broken Parquet file ({line}); write it again") from None


def _rows_of_batch(path: str, batch: Any) -> list[dict[str, Any]]:
    """Return the rows of an Arrow batch; times and dates are texts, because Python cannot hold all of them."""
    import pyarrow

    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            if pyarrow.types.is_duration(column.type):
                column = column.cast(pyarrow.int64())
            elif pyarrow.types.is_temporal(column.type):
                column = column.cast(pyarrow.string())
            columns[name] = column.to_pylist()
        except (pyarrow.ArrowException, ValueError, OverflowError, LookupError) as error:
            line = str(error).partition("\n")[0]
            raise UserError(f"{path}: the column '{name}' cannot be read ({line}); leave it out of the file") from None
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class _LocatedValue(NamedTuple):
    """A JSON value and its location in a file."""

    where: str
    value: Any


def _read_json_values(path: str, text: str) -> Iterator[_LocatedValue]:
    """Yield the items of a JSON list, or the JSON values of the lines of a file, each with its location."""
    first_line, *further_lines = text.strip().split("\n", 1)
    if first_line.startswith("[") and not (further_lines and _parses_as_json(first_line)):  # else each line is a list
        for index, value in enumerate(parse_json(path, text)):
            yield _LocatedValue(f"{path}: item {index}", value)
        return
    data = text.encode()
    for line_number, line in read_text_lines(path, io.BytesIO(data), len(data)):
        if line.strip():
            where = f"{path}:{line_number}"
            yield _LocatedValue(where, parse_json(where, line))


def _parses_as_json(text: str) -> bool:
    try:
        parse_json("", text)
    except UserError:
        return False
    return True


def read_squad(
    path: str, columns: Columns, optional: Sequence[str], skipped: Any = None, notes: Any = None
) -> Iterator[Record]:
    """Yield the questions of a JSON file in the layout of SQuAD 1.1 and 2.0.

    The columns of a question are `id`, `question`, `context`, and perhaps `answers` and `is_impossible`. If `columns`
    is empty, the fields of a record have these names. A record always has its `id`.

    Raises:
        UserError: the file is not JSON; a part is missing or has a wrong type (the message names the path to the part
            within the JSON document); or a question lacks a column that is not `optional`.
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
                where = f"{path}: question {question_id}"
                for field, column in columns.items():
                    if column not in fields and field not in optional:
                        raise UserError(f"{where}: no '{column}'; a question has {', '.join(fields)}")
                named = {field: fields[column] for field, column in columns.items() if column in fields}
                yield Record(where, {"id": question_id, **named} if columns else fields)


def _squad_items(where: str, parent: Any, key: str) -> Iterator[_LocatedValue]:
    """Yield the items of the list `key` of a JSON object, each with its path in the document."""
    for index, item in enumerate(_squad_member(where, parent, key, list)):
        yield _LocatedValue(f"{where} {key}[{index}]", item)


def _squad_member(where: str, parent: Any, key: str, kind: type) -> Any:
    """Return the value of `key` in a JSON object; raise UserError if its type is not `kind`."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, kind):
        wanted = "text" if kind is str else "list"
        raise UserError(f"{where}: no {wanted} '{key}'; the layout is data > paragraphs > context, qas > id, question")
    return value


# A reader of a file. Its arguments are the path, the columns, the optional fields, the counter of skipped rows (None: a
# row with a wrong number of columns raises UserError) and the counter of oddities.
Format = Callable[..., Iterator[Record]]

FORMATS: dict[str, Format] = {
    "tsv_plain": functools.partial(read_delimited, separator="\t", quoted=False),  # quotes are text, as in GLUE
    "tsv_headless": functools.partial(read_delimited, separator="\t", quoted=False, header=False),
    "tsv": functools.partial(read_delimited, separator="\t", quoted=True, find_separator=True),
    "csv": functools.partial(read_delimited, separator=",", quoted=True, find_separator=True),
    "json": read_json_objects,  # a list, or an object per line
    "parquet": read_parquet,
    "squad": read_squad,
    "conll": read_conll,
    "conll_space": functools.partial(read_conll, separator=" "),
    "conll_tab": functools.partial(read_conll, separator="\t"),
    "conll_klue": functools.partial(read_conll, separator="\t", comment="##"),
}
# Formats with one token per line; their columns have numbers instead of names.
TOKEN_PER_LINE = ("conll", "conll_space", "conll_tab", "conll_klue")
# Suffix of a file name, without .gz -> format; `TaskKind.suffixes` may replace the format of a suffix.
SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
FORMATS_OF_A_SUFFIX = (("tsv", "tsv_plain", "tsv_headless"), TOKEN_PER_LINE)  # files of these formats share suffixes
DELIMITED = ("tsv_plain", "tsv_headless", "tsv", "csv")


def format_of_suffix(path: str, suffixes: Mapping[str, str]) -> str | None:
    """Return the name of the format for the suffix of a path; None for an unknown suffix.

    The formats in `suffixes` override the formats in `SUFFIXES`. Upper case does not matter: .CSV is .csv.
    """
    bare = path.lower().removesuffix(".gz")
    return (SUFFIXES | dict(suffixes)).get(bare[bare.rfind(".") :])


def check_not_spreadsheet(path: str) -> None:
    """Raise UserError if a path has the suffix of a spreadsheet program."""
    if path.lower().endswith(SPREADSHEETS):
        raise UserError(f"{path}: tables of Excel are not read; save the sheet as CSV in UTF-8, and give that file")


def read_file_records(
    path: str,
    format_name: str,
    suffixes: Mapping[str, str],
    columns: Columns,
    optional: Sequence[str],
    skipped: Counter[str] | None,
    notes: Counter[str],
    delimiter: str | None = None,
    may_have_other_delimiter: bool = False,
) -> Iterator[Record]:
    """Yield the records of a file in the format `format_name`; with '', the suffix of the file determines the format.

    Args:
        path: path of the file.
        format_name: name of a row of `FORMATS`, or ''.
        suffixes: file suffix -> format, for suffixes whose format is not the format in `SUFFIXES`.
        columns: field -> column of the file.
        optional: fields whose column may be absent.
        skipped: counter of skipped rows, which have a wrong number of columns; None: a wrong number is an error.
        notes: counter of oddities to report to the user.
        delimiter: character between the columns of CSV and TSV; None: the reader detects the delimiter.
        may_have_other_delimiter: True to detect the delimiter if splitting the header at `delimiter` gives no column
            for a required field.

    Raises:
        UserError: the suffix has no known format, a delimiter is given for a format without delimiters, or the file has
            an error.
    """
    format_name = format_name or format_of_suffix(path, suffixes) or ""
    check_not_spreadsheet(path)
    if not format_name and format_of_suffix(path, SUFFIXES_OF_TOKENS):
        raise UserError(
            f"{path}: a file with a token per line needs --kind token_classification (config.task.kind), and columns "
            "by number, as in --text 0 --label 1"
        )
    if not format_name:
        known = ", ".join(SUFFIXES | dict(suffixes))
        raise UserError(f"{path}: unknown format; use one of {known}, or add format=NAME to the columns")
    if delimiter is None:
        return FORMATS[format_name](path, columns, optional, skipped, notes)
    if format_name not in DELIMITED or len(delimiter) != 1:
        raise UserError(
            f"{path}: config.task.delimiter={delimiter!r}: a delimiter is one character, for CSV and TSV only; leave "
            "it out"
        )
    read = functools.partial(FORMATS[format_name], separator=delimiter)
    if not may_have_other_delimiter:
        read = functools.partial(read, find_separator=False)
    return read(path, columns, optional, skipped, notes)
