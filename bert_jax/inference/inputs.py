"""The inputs of `embed`, `predict` and `fill-mask`: lines of text or JSON from a file or standard input."""

import codecs
import contextlib
import errno
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar

from bert_jax.errors import UserError, did_you_mean, file_error
from bert_jax.readers.rows import check_json_object, parse_json, read_lines, read_text_lines, utf8_stream
from bert_jax.strict_json import has_surrogate
from bert_jax.tasks.reading.formats import format_of_suffix, read_file_records

STDIN = "-"
TEXT = "text"  # field of the text of an object or a row
OBJECT_LINES, TEXT_LINES = ".jsonl", ".txt"
# Suffixes of files whose lines are no texts.
NOT_LINES = (".csv", ".tsv", ".parquet", ".gz", ".xml", ".html", ".xlsx", ".docx", ".odt", ".pdf")
MAX_LINE_BYTES = 4 << 20  # the tokenizer takes some 80 times the memory of a line

Item = TypeVar("Item")


class Input(NamedTuple):
    """A line of the input."""

    where: str  # place of the line for messages, such as "texts.txt:3"
    line_number: int  # number of the line, counted from 1
    fields: Mapping[str, Any]  # {"text": the line}, the object of a JSON line, or the columns of a row
    has_field_names: bool = False  # whether the keys are certainly names of fields, not of the columns of training


def read_inputs(source: str | os.PathLike[str], name: str | None = None) -> Iterator[Input]:
    """Yield the lines of a file; each line is read only when it is needed. The file `-` is standard input.

    A file with the suffix .jsonl holds one JSON object per line; blank lines are skipped. In a .txt file, every line is
    a text, including an empty line. Any other input holds objects if the first character is `{`, and texts otherwise.
    `name` is the name of the source in messages; None: `source_name(source)`.

    Raises:
        UserError: the file cannot be read or has another format; or a line is too long, not UTF-8 or not an object.
    """
    name = name or source_name(source)
    suffix = pathlib.Path(source).suffix.lower()
    if suffix in NOT_LINES:
        raise _not_line_by_line_error(name)
    with _open_source(source) as stream:
        objects = None
        for line_number, text in read_text_lines(name, stream, MAX_LINE_BYTES):
            where = f"{name}:{line_number}"
            if objects is None:
                objects = _has_json_lines(source, text.startswith("{"))
                if suffix == ".json" and not objects:
                    raise _not_line_by_line_error(name)
            if not objects:
                yield Input(where, line_number, {"text": text}, has_field_names=True)
            elif text.strip():
                yield Input(where, line_number, check_json_object(where, parse_json(where, text)))


def read_texts(source: str | os.PathLike[str], field: str = TEXT, name: str | None = None) -> Iterator[Input]:
    """Yield the texts of a file, each in the field `text` of an input, beside the other fields of its object or row.

    The file holds lines that `read_inputs` reads, or a table: CSV, TSV, Parquet, a JSON list or compressed JSON lines.
    A table is read whole. The text is in the field or column `field`; `name` is as in `read_inputs`.

    Raises:
        UserError: as in `read_inputs`; or an object or a table has no such field, or the lines are texts and have no
            fields.
    """
    path, name = os.fspath(source), name or source_name(source)
    is_table = format_of_suffix(path, {}) is not None and not path.lower().endswith(OBJECT_LINES)
    if not is_table or not os.path.isfile(path):
        for line in read_inputs(source, name):
            if line.has_field_names and field != TEXT:
                raise UserError(f"{name}: its lines are texts without fields; leave out --field {field}")
            yield line._replace(fields=_with_field_as_text(line.where, line.fields, field))
        return
    records = read_file_records(path, "", {}, {}, (), None, Counter[str]())
    for row, record in enumerate(records, 1):
        yield Input(record.where, row, _with_field_as_text(record.where, record.row, field))


def _with_field_as_text(where: str, fields: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """Return the fields of an object or a row with the value of `field` as `text`."""
    if field not in fields:
        hint = did_you_mean(field, fields) or "; name the field of the text with --field"
        raise UserError(f"{where}: no '{field}'{hint} (there are {', '.join(fields)})")
    return {TEXT: fields[field]} | {name: value for name, value in fields.items() if name not in (field, TEXT)}


def _not_line_by_line_error(name: str) -> UserError:
    """Return the error for a file whose lines are not texts."""
    return UserError(
        f"{name}: not read line by line; convert it to {OBJECT_LINES}, an object per line, or to {TEXT_LINES}"
    )


def num_inputs(source: str | os.PathLike[str]) -> int | None:
    """Return the number of lines that `read_inputs` yields, for progress; None for a source that can be read only once.

    The number includes lines for which `read_inputs` raises an error. Raises UserError if the file cannot be read.
    """
    if source == STDIN or not pathlib.Path(source).is_file():
        return None
    with _open_source(source) as stream:
        objects, count = False, 0
        for line in read_lines(stream, MAX_LINE_BYTES):
            data = line.data
            if line.line_number == 1:
                data = data.removeprefix(codecs.BOM_UTF8)
                objects = _has_json_lines(source, data.startswith(b"{"))
            count += bool(data.strip() if objects else data or line.too_large)
        return count


def source_name(source: str | os.PathLike[str]) -> str:
    """Return the name of a source in messages."""
    return "standard input" if source == STDIN else str(source)


def list_items(items: Iterable[Item], name: str) -> list[Item]:
    """Return the texts or examples that a Python user gives as any iterable; `name` names them in messages.

    Raises UserError for a single string, a single example, and a table. Python would iterate over the characters of the
    string, or over the names of the columns.
    """
    if isinstance(items, str):
        raise UserError(f"{name} is one string; give a list of strings")
    if isinstance(items, Mapping) or hasattr(items, "columns"):
        raise UserError(
            f"{name} is one example or a table; give a list of examples, or a column of texts such as table['text']"
        )
    return list(items)


def texts_by_key(line: Input, keys: Sequence[str] = ("text", "text_pair")) -> dict[str, str]:
    """Return the texts of an input by key; raise UserError if the first key is missing or a value is not a text."""
    if keys[0] not in line.fields:
        raise UserError(f"{line.where}: the object has no '{keys[0]}'; add this field")
    texts = {key: line.fields[key] for key in keys if key in line.fields}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise UserError(f"{line.where}: '{key}' is {text!r:.40}; give a text")
        if has_surrogate(text):
            raise UserError(f"{line.where}: '{key}' has half of a surrogate pair, which is no character; remove it")
    return texts


@contextlib.contextmanager
def readable_twice(source: str | os.PathLike[str]) -> Iterator[str | os.PathLike[str]]:
    """Yield a source that can be read repeatedly: for standard input or a pipe, a temporary file with its content."""
    if source != STDIN and not pathlib.Path(source).is_fifo():
        yield source
        return
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory, f"content{pathlib.Path(source).suffix}")
        with _open_source(source) as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield copy


@contextlib.contextmanager
def _open_source(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield standard input or an open file; raise UserError if the file cannot be read.

    Text with the byte order mark of UTF-16 or UTF-32 is converted to UTF-8, like the files of tasks and corpora.
    """
    if source == STDIN:
        yield utf8_stream(sys.stdin.buffer, "utf-8")
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        is_text = error.errno == errno.ENOENT and " " in str(source) and not re.search(r"\.\w+$", str(source))
        advice = "write the text into a file, one text per line, and give the file" if is_text else ""
        raise file_error(error, source, "cannot be read", advice) from None
    with file:
        yield utf8_stream(file, "utf-8")


def _has_json_lines(source: str | os.PathLike[str], starts_with_brace: bool) -> bool:
    """Return whether the lines are JSON objects; the suffix and the first character decide."""
    suffix = pathlib.Path(source).suffix.lower()
    return suffix == OBJECT_LINES or (suffix != TEXT_LINES and starts_with_brace)
