"""Documents from JSON lines, lists and objects; the text is a field of an object."""

import codecs
import functools
import io
import json
from collections.abc import Callable, Iterator
from typing import IO, Any

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_OBJECT_BYTES, MAX_RECORD_BYTES, RawDocument, ReadOptions, RejectedError
from bert_jax.readers.formats.fields import field_leads_into_lists, record_text, texts_in_lists
from bert_jax.readers.rows import discard_rest_of_stream, read_lines

_SPACE = " \t\r\n"
_PEEKED = 1 << 16


def read_json_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the records of a file: the items of a list, objects over several lines, or otherwise the lines.

    A line or an object that is not JSON is a rejected document. If the field is inside of lists, every text in the
    lists is a document.

    Raises:
        UserError: a list is incomplete or not JSON.
    """
    head = io.BufferedReader(stream, _PEEKED)  # type: ignore[type-var]
    try:
        any_record = False
        for raw in _choose_reader(head.peek(1).removeprefix(codecs.BOM_UTF8).lstrip(), options)(name, head):
            any_record = True
            yield from (
                _texts_of_record(raw, options) if field_leads_into_lists(options.field) and not raw.rejected else (raw,)
            )
        if not any_record:
            yield RawDocument(name=name, rejected="empty")
    finally:
        head.detach()  # otherwise the buffer closes the stream, too


def _choose_reader(start: bytes, options: ReadOptions) -> Callable[[str, IO[bytes]], Iterator[RawDocument]]:
    """Return the reader of a JSON file whose first bytes after white space are `start`."""
    if start[:1] == b"[":
        return _read_list
    line, line_end, rest = start.partition(b"\n")
    # The first line of an object over several lines ends inside of the object. If this line is only "{", the next line
    # does not begin with another "{".
    in_lists = field_leads_into_lists(options.field)
    ends_inside = line.rstrip()[-1:] in (b"{", b"[", b",", b":")
    several = line_end and ends_inside and (line.strip(), rest.lstrip()[:1]) != (b"{", b"{")
    if start[:1] == b"{" and (several or (in_lists and not line_end)):
        return functools.partial(_read_objects, max_bytes=MAX_OBJECT_BYTES if in_lists else MAX_RECORD_BYTES)
    return _read_lines


def json_record_to_text(data: str, options: ReadOptions) -> str:
    """Return the text that `fields.record_text` takes from a JSON object.

    Raises:
        RejectedError: 'broken JSON', 'NaN or Infinity', 'not an object', and the reasons of `fields.record_text`.
    """
    return record_text(_parse_record(data), options)


def _parse_record(data: str) -> dict[str, Any]:
    try:
        record = strict_json.parse(data)
    except strict_json.NotFiniteError:
        raise RejectedError("NaN or Infinity") from None
    except ValueError:  # also for deep nesting, repeated keys and too many digits
        raise RejectedError("broken JSON") from None
    if not isinstance(record, dict):
        raise RejectedError("not an object")
    return record


def _texts_of_record(raw: RawDocument, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a document for each text in the lists of a record; a record without texts yields a rejected document."""
    texts: list[str | RejectedError]
    try:
        texts = list(texts_in_lists(_parse_record(raw.data.decode("utf-8-sig", options.decode_errors)), options))
    except UnicodeDecodeError:
        texts = [RejectedError("invalid UTF-8")]
    except RejectedError as error:
        texts = [error]
    for text_number, text in enumerate(texts or [RejectedError("empty")], 1):
        if isinstance(text, RejectedError):
            yield RawDocument(name=f"{raw.name}:{text_number}", rejected=str(text), fields=text.fields)
        elif len(data := text.encode()) > MAX_RECORD_BYTES:
            yield RawDocument(name=f"{raw.name}:{text_number}", rejected="too large")
        else:
            yield RawDocument(name=f"{raw.name}:{text_number}", data=data, is_field=True)


def _read_lines(name: str, stream: IO[bytes]) -> Iterator[RawDocument]:
    """Yield the lines of a file as documents."""
    for line_number, data, too_large in read_lines(stream):
        if too_large:
            yield RawDocument(name=f"{name}:{line_number}", rejected="too large")
        elif data.strip():
            yield RawDocument(name=f"{name}:{line_number}", data=data, format="jsonl")


def _read_list(name: str, stream: IO[bytes]) -> Iterator[RawDocument]:
    """Yield the items of a JSON list as documents."""
    items = _ItemReader(name, stream)
    items.expect("[")
    while items.skip_space_and_peek() != "]":
        if items.num_taken:
            items.expect(",")
        yield RawDocument(name=f"{name}:{items.num_taken + 1}", data=items.take_item(), format="jsonl")
    items.expect("]")
    items.check_end()


def _read_objects(name: str, stream: IO[bytes], max_bytes: int) -> Iterator[RawDocument]:
    """Yield consecutive JSON objects of several lines as documents."""
    items = _ItemReader(name, stream, max_bytes)
    try:
        while items.skip_space_and_peek():
            yield RawDocument(name=f"{name}:{items.num_taken + 1}", data=items.take_item(), format="jsonl")
    except _BrokenJsonError as error:
        if items.num_taken or items.has_another_object_at_line_start():
            raise
        yield RawDocument(name=name, rejected=error.reason)
        discard_rest_of_stream(stream)


class _BrokenJsonError(UserError):
    """Error for an item of a file that is not JSON or is too large."""

    def __init__(self, message: str, reason: str):
        super().__init__(message)
        self.reason = reason


class _ItemReader:
    """Reader of the items of a JSON list, or of consecutive objects; it holds a single item in memory."""

    def __init__(self, name: str, stream: IO[bytes], max_bytes: int = MAX_RECORD_BYTES):
        self._name, self._stream = name, stream
        self._max_bytes = max_bytes
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._ended = "", False
        self._at = 0  # position in `_text` of the next character
        self.num_taken = 0

    def _read_next_block(self) -> None:
        """Read more text: double the text in memory, so that a long item is scanned only a few times."""
        data = self._stream.read(max(1 << 16, len(self._text) - self._at))
        self._ended = not data
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0

    def skip_space_and_peek(self) -> str:
        """Skip white space, and return the next character without taking it; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_next_block()

    def expect(self, character: str) -> None:
        """Take the next character; raise UserError if it is not `character`."""
        if self.skip_space_and_peek() != character:
            raise self._broken_json_error(f"'{character}' is missing")
        self._at += 1

    def take_item(self) -> bytes:
        """Return the bytes of the next item, and move to its end."""
        self.skip_space_and_peek()
        while True:
            try:
                _, end = self._scan(self._text, self._at)
                if end < len(self._text) or self._ended:  # a number at the end may continue in the next block
                    break
                reason = "it does not end"
            except (ValueError, RecursionError) as error:
                reason = str(error)
            if self._ended or len(self._text) - self._at > self._max_bytes:
                raise self._broken_json_error(reason)
            self._read_next_block()
        data = self._text[self._at : end].encode("utf-8", "surrogateescape")
        self._at = end
        self.num_taken += 1
        return data

    def has_another_object_at_line_start(self) -> bool:
        """Return whether the text in memory has a further JSON object that begins at the start of a line."""
        return "\n{" in self._text[self._at :]

    def check_end(self) -> None:
        """Raise UserError for anything after the list."""
        if self.skip_space_and_peek():
            raise self._broken_json_error("more after the end of the list")

    def _broken_json_error(self, reason: str) -> "_BrokenJsonError":
        too_large = not self._ended and len(self._text) - self._at > self._max_bytes
        return _BrokenJsonError(
            f"{self._name}: broken JSON after item {self.num_taken} ({reason}, or an item of more than "
            f"{self._max_bytes >> 20} MiB); fetch it again, or write one object per line",
            "too large" if too_large else "broken JSON",
        )
