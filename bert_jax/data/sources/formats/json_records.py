"""JSON lines, and files that are one JSON list -> documents; the text is a field of an object."""

import codecs
import io
import json
from collections.abc import Iterator
from typing import IO, Any

from bert_jax import strict_json
from bert_jax.data.sources.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, RejectedError, format_names
from bert_jax.data.sources.formats.lines import read_lines
from bert_jax.errors import UserError

_SPACE = " \t\r\n"


def read_json_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a document per line that is not empty; of a file that starts with '[', one per item of that list.

    A line that is not JSON is a rejected document.

    Raises:
        UserError: a list that is cut short or is not JSON.
    """
    head = io.BufferedReader(stream, 1 << 16)  # type: ignore[type-var]
    try:
        is_list = head.peek(1).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["
        found = False
        for raw in (_read_list if is_list else _read_lines)(name, head):
            found = True
            yield raw
        if not found:
            yield RawDocument(name, rejected="empty")
    finally:
        head.detach()  # otherwise it closes the stream, too


def json_field_text(data: str, options: ReadOptions) -> str:
    """Return the field of the object; dots in its name lead into nested objects.

    Raises:
        RejectedError: 'broken JSON', 'not an object', 'no field', 'not a text', 'binary', or 'invalid UTF-8' for half a
            surrogate pair.
    """
    try:
        record = strict_json.parse(data)
    except ValueError:  # also deep nesting, a key given twice, NaN, and numbers of too many digits
        raise RejectedError("broken JSON") from None
    if not isinstance(record, dict):
        raise RejectedError("not an object")
    value = _look_up(record, options.field)
    if not isinstance(value, str):
        raise RejectedError("not a text")
    if "\0" in value:
        raise RejectedError("binary")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can express surrogates, UTF-8 cannot: "\\ud800"
        if options.encoding_errors == "reject":
            raise RejectedError("invalid UTF-8") from None
        return value.encode("utf-16", "surrogatepass").decode("utf-16", options.encoding_errors)
    return value


def _look_up(record: dict[str, Any], name: str) -> Any:
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            raise RejectedError("no field", format_names(list(record)))
        value = value[key]
    return value


def _read_lines(name: str, stream: IO[bytes]) -> Iterator[RawDocument]:
    for number, data, too_large in read_lines(stream):
        if too_large:
            yield RawDocument(f"{name}:{number}", rejected="too large")
        elif data.strip():
            yield RawDocument(f"{name}:{number}", data, "jsonl")


def _read_list(name: str, stream: IO[bytes]) -> Iterator[RawDocument]:
    items = _Items(name, stream)
    items.expect("[")
    while items.next_character() != "]":
        if items.number:
            items.expect(",")
        yield RawDocument(f"{name}:{items.number + 1}", items.take(), "jsonl")
    items.expect("]")
    items.check_end()


class _Items:
    """The items of a list; no more than one is held in memory."""

    def __init__(self, name: str, stream: IO[bytes]):
        self._name, self._stream = name, stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("surrogateescape").decode
        self._scan = json.JSONDecoder().raw_decode
        self._text, self._at, self._ended = "", 0, False
        self.number = 0

    def _more(self) -> None:
        """Read as much as is held already, so that an item that is scanned repeatedly costs little."""
        data = self._stream.read(max(1 << 16, len(self._text) - self._at))
        self._ended = not data
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0

    def next_character(self) -> str:
        """Return the next character that is not a space; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._more()

    def expect(self, character: str) -> None:
        """Skip the next character; UserError where it is another."""
        if self.next_character() != character:
            raise self._broken(f"'{character}' is missing")
        self._at += 1

    def take(self) -> bytes:
        """Return the next item."""
        self.next_character()
        while True:
            try:
                _, end = self._scan(self._text, self._at)
                if end < len(self._text) or self._ended:  # a number may continue
                    break
                reason = "it does not end"
            except (ValueError, RecursionError) as error:
                reason = str(error)
            if self._ended or len(self._text) - self._at > MAX_RECORD_BYTES:
                raise self._broken(reason)
            self._more()
        data = self._text[self._at : end].encode("utf-8", "surrogateescape")
        self._at = end
        self.number += 1
        return data

    def check_end(self) -> None:
        """Refuse anything after the list."""
        if self.next_character():
            raise self._broken("more after the end of the list")

    def _broken(self, reason: str) -> UserError:
        return UserError(
            f"{self._name}: broken JSON list after item {self.number} ({reason}, or an item of more than "
            f"{MAX_RECORD_BYTES >> 20} MiB); fetch it again, or write one object per line"
        )
