"""Lines, rows of CSV and TSV, and JSON values from text in any encoding, for all packages.

A line or row that cannot be read has the name of its problem in place of its content, and the caller decides how to
react. The preparation of a corpus counts and skips a line that cannot be read. Tasks and inference raise an error with
the number of the line.
"""

import codecs
import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RECORD_BYTES

# Values of `Row.problem`.
TOO_LARGE = "too large"
BROKEN_CSV = "broken CSV"
OPEN_QUOTE = "an unterminated quote"

ABSENT: Any = object()  # result of `look_up_field` for a missing field
_BYTES_AT_ONCE = 1 << 16
# UTF-32 precedes UTF-16, because the byte order mark of UTF-32 begins with the mark of UTF-16.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# An undecodable byte becomes a byte that never occurs in UTF-8, so that its document counts as invalid UTF-8.
_INVALID = "bert_jax_invalid"
codecs.register_error(_INVALID, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


def decode_with_byte_order_mark(data: bytes) -> str:
    """Decode bytes in UTF-8, or in the encoding that a byte order mark names; return the text without the mark.

    Raises:
        UnicodeDecodeError: the bytes are not text in this encoding.
    """
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8-sig")
    return data.decode(encoding)


def check_encoding(name: str) -> None:
    """Raise UserError for a name that is not a text encoding of Python."""
    try:
        b"a".decode(name, "ignore")
    except (LookupError, ValueError) as error:
        raise UserError(
            f"--encoding '{name}': {error}; give a name such as utf-16, shift_jis, euc_kr, gb18030 or latin-1"
        ) from None


def utf8_stream(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Return a stream that converts `stream` to UTF-8, or `stream` itself if it is UTF-8 already."""
    if codecs.lookup(encoding).name == "utf-8":
        stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]
        start = stream.peek(4)[:4]
        encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), "")
        if not encoding:
            return stream
    return io.BufferedReader(_Utf8Stream(stream, encoding), _BYTES_AT_ONCE)


class _Utf8Stream(io.RawIOBase):
    """A stream that converts an encoded stream to UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str):
        self._stream, self._encoding = stream, encoding
        self._decode = codecs.getincrementaldecoder(encoding)(_INVALID).decode
        self._ready, self._ended = b"", False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` with bytes in UTF-8, and return the number of these bytes."""
        while not self._ready and not self._ended:
            data = self._stream.read(_BYTES_AT_ONCE)
            self._ended = not data
            try:
                self._ready = self._decode(data, self._ended).encode("utf-8", "surrogateescape")
            except UnicodeError as error:  # the handler of undecodable bytes does not get this error
                advice = "without a byte order mark give utf-16-le or utf-16-be"
                raise UserError(f"cannot be read as {self._encoding} ({error}); {advice}") from None
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class Line(NamedTuple):
    """A line with its line number, from 1."""

    line_number: int
    data: bytes  # the line with its line end; b"" if the line is too large
    too_large: bool = False


def read_lines(stream: IO[bytes], max_bytes: int = MAX_RECORD_BYTES, ends_at_too_large: bool = False) -> Iterator[Line]:
    """Yield every line of a stream, and hold at most `max_bytes` of a line in memory.

    With `ends_at_too_large`, reading stops at a line of more than `max_bytes`, because the line of a device such as
    /dev/zero never ends.
    """
    line_number = 0
    while data := stream.readline(max_bytes + 1):
        line_number += 1
        if len(data) <= max_bytes:
            yield Line(line_number, data)
            continue
        while not ends_at_too_large and not data.endswith(b"\n") and (data := stream.readline(1 << 20)):
            pass
        yield Line(line_number, b"", too_large=True)
        if ends_at_too_large:
            return


class NumberedLine(NamedTuple):
    """A line, with its number in the file."""

    line_number: int
    text: str


def read_text_lines(name: str, stream: IO[bytes], max_bytes: int) -> Iterator[NumberedLine]:
    """Yield the line number and the text of each line, without line ends and without a byte order mark.

    Raises:
        UserError: a line has more than `max_bytes` or is not UTF-8.
    """
    for line_number, data, too_large in read_lines(stream, max_bytes, ends_at_too_large=True):
        where = f"{name}:{line_number}"
        if too_large:
            raise UserError(f"{where}: a line of more than {max_bytes >> 20} MiB; split it")
        data = data.removeprefix(codecs.BOM_UTF8) if line_number == 1 else data
        try:
            text = data.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            raise UserError(f"{where}: not UTF-8 ({error.reason} at byte {error.start}); convert it") from None
        if data:
            yield NumberedLine(line_number, text)


def discard_rest_of_stream(stream: IO[bytes]) -> None:
    """Read and drop the rest of a stream, so that an error is raised if the archive around the stream is broken."""
    while stream.read(1 << 20):
        pass


class Row(NamedTuple):
    """A row of CSV or TSV; in its values, bytes that are not UTF-8 are surrogates ('surrogateescape')."""

    first_line: int
    last_line: int
    values: list[str]  # [] if the row has a problem
    problem: str = ""  # TOO_LARGE, BROKEN_CSV or OPEN_QUOTE; no row follows a row with OPEN_QUOTE


def read_rows(stream: IO[bytes], separator: str, quoted: bool, max_bytes: int = MAX_RECORD_BYTES) -> Iterator[Row]:
    """Yield the non-empty rows of CSV or TSV.

    Args:
        stream: a stream in UTF-8.
        separator: one character.
        quoted: True if quotes around a value are syntax (RFC 4180), False if quotes are text.
        max_bytes: maximum size of a row.
    """
    return rows_of_lines(read_lines(stream, max_bytes), separator, quoted, max_bytes)


def rows_of_lines(
    lines: Iterator[Line], separator: str, quoted: bool, max_bytes: int = MAX_RECORD_BYTES
) -> Iterator[Row]:
    """Yield the non-empty rows of lines, as `read_rows` does for a stream."""
    return _quoted_rows(lines, separator, max_bytes) if quoted else _unquoted_rows(lines, separator)


def _unquoted_rows(lines: Iterator[Line], separator: str) -> Iterator[Row]:
    """Yield a row for each line; quotes are ordinary text."""
    for line in lines:
        text = _line_text(line).rstrip("\r\n")
        if line.too_large:
            yield Row(line.line_number, line.line_number, [], TOO_LARGE)
        elif text:
            yield Row(line.line_number, line.line_number, text.split(separator))


def _quoted_rows(lines: Iterator[Line], separator: str, max_bytes: int) -> Iterator[Row]:
    """Yield the rows of lines with quoted values, as in RFC 4180."""
    csv.field_size_limit(max(csv.field_size_limit(), max_bytes))
    row_lines = _LinesOfRow(lines, max_bytes)
    reader = csv.reader(row_lines, delimiter=separator, strict=True)
    while True:
        row_lines.num_bytes, first_line = 0, row_lines.line_number + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except (_TooLargeError, csv.Error) as error:
            problem = TOO_LARGE if isinstance(error, _TooLargeError) else BROKEN_CSV
            if row_lines.ended or (row_lines.num_bytes > max_bytes and row_lines.line_number > first_line):
                problem = OPEN_QUOTE
            yield Row(first_line, row_lines.line_number, [], problem)
            continue
        if values:
            yield Row(first_line, row_lines.line_number, values)


class _TooLargeError(Exception):
    """A row that is too large to hold in memory."""


class _LinesOfRow:
    """An iterator over lines for the csv module; unlike a generator, it continues after an error."""

    def __init__(self, lines: Iterator[Line], max_bytes: int):
        self._lines, self._max_bytes = lines, max_bytes
        self.line_number = 0
        self.num_bytes = 0  # bytes of the lines since `_quoted_rows` set this count to 0
        self.ended = False

    def __iter__(self) -> "_LinesOfRow":
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self.line_number = line.line_number
        self.num_bytes += len(line.data)
        if line.too_large or self.num_bytes > self._max_bytes:
            raise _TooLargeError
        return _line_text(line)


def _line_text(line: Line) -> str:
    data = line.data.removeprefix(codecs.BOM_UTF8) if line.line_number == 1 else line.data
    return data.decode("utf-8", "surrogateescape")


def parse_json(where: str, text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        UserError: the text is not JSON; the message names `where`, and the line and the column of the error.
    """
    try:
        return strict_json.parse(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.rstrip("\n") else ""
        raise UserError(f"{where}: invalid JSON ({error.msg}, {line}column {error.colno}); fix it") from None
    except ValueError as error:  # nesting that is too deep, a repeated key, or a number with too many digits
        raise UserError(f"{where}: invalid JSON ({error}); fix it") from None


def check_json_object(where: str, value: Any) -> dict[str, Any]:
    """Return a JSON value that is an object; raise UserError for any other value."""
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object; write one {{...}} for each example")
    return value


def look_up_field(record: Mapping[str, Any], name: str) -> Any:
    """Return the value of the field `name` of a record, or ABSENT if there is no such field.

    A dot in the name leads into an object, unless the dot is part of a key.
    """
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return ABSENT
        value = value[key]
    return value
