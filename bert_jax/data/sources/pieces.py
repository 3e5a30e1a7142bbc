"""Byte streams -> the documents of a text: files, paragraphs or lines; long ones in pieces, by way of a file."""

import codecs
import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from bert_jax.data.sources.records import LARGE, PIECE, Raw, Reading
from bert_jax.errors import writing

_Stretch = tuple[str, bytes, bool]  # ':line' where its document starts, some of its bytes, whether it ends with them

# Where a piece may end, the best first. The last match in its second half is taken.
_ENDS = (
    re.compile(rb"\n[ \t\r]*\n+"),
    re.compile(rb"\n"),
    re.compile(rb"[.!?][\"')\]]*[ \t]|" + "|".join("。！？।۔").encode()),  # noqa: RUF001
    re.compile(rb"[ \t]"),
)


def split(name: str, stream: IO[bytes], reading: Reading, format_name: str) -> Iterator[Raw]:
    """The documents of a text, in order; a stream without any gives one that is rejected as empty.

    One of more than LARGE bytes is spooled to a temporary file, checked for UTF-8 and NUL, and comes in pieces.
    """
    empty = True
    with contextlib.closing(_Gathered(format_name, reading.encoding_errors)) as document:
        for where, data, ends in _SPLITS[reading.documents](stream):
            document.add(data)
            if ends:
                empty = False
                yield from document.take(name + where)
    if empty:
        yield Raw(name, rejected="empty")


class _Gathered:
    """The bytes of one document after the other: in memory while they are few, else checked and in a file."""

    def __init__(self, format_name: str, encoding_errors: str):
        self._format, self._errors = format_name, "strict" if encoding_errors == "reject" else encoding_errors
        self._file: IO[bytes] | None = None
        self._start()

    def _start(self) -> None:
        self.close()
        self._parts: list[bytes] = []
        self._size = 0
        self._reason = ""
        self._blank = True

    def close(self) -> None:
        """Gives the temporary file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, data: bytes) -> None:
        """Some more of the document."""
        self._size += len(data)
        if self._file is None:
            self._parts.append(data)
            if self._size > LARGE:
                with _making_room():
                    self._file = tempfile.TemporaryFile()  # noqa: SIM115  # close() is below
                self._decoder = codecs.getincrementaldecoder("utf-8-sig")(self._errors)
                for part in self._parts:
                    self._spool(part)
                self._parts = []
        else:
            self._spool(data)

    def _spool(self, data: bytes) -> None:
        if self._reason:
            return
        if b"\0" in data:
            self._reason = "binary"
            return
        self._decode(data)
        assert self._file is not None
        with _making_room():
            self._file.write(data)

    def _decode(self, data: bytes, final: bool = False) -> None:
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._reason = self._reason or "invalid UTF-8"
        else:
            self._blank = self._blank and (not text or text.isspace())

    def take(self, name: str) -> Iterator[Raw]:
        """The document that ends here, and starts the next."""
        if self._file is None:
            yield Raw(name, b"".join(self._parts), self._format)
        else:
            if not self._reason:
                self._decode(b"", final=True)
            reason = self._reason or ("empty" if self._blank else "")
            if reason:
                yield Raw(name, format=self._format, rejected=reason)
            else:
                yield from self._pieces(name)
        self._start()

    def _pieces(self, name: str) -> Iterator[Raw]:
        assert self._file is not None
        with _making_room():  # what is still buffered is written now
            self._file.seek(0)
        left, window, number = self._size, b"", 0
        while left:
            window += self._file.read(PIECE - len(window))
            end = len(window) if len(window) == left else _end(window)
            left -= end
            yield Raw(name, window[:end], self._format, piece=number, last=not left)
            window, number = window[end:], number + 1


def _making_room() -> contextlib.AbstractContextManager[None]:
    return writing(tempfile.gettempdir(), "make room, or set TMPDIR to a place that has as much as the longest text")


def _end(window: bytes) -> int:
    """Where a piece ends that starts with this window of a text: after half of it at least."""
    half = len(window) // 2
    for pattern in _ENDS:
        ends = [match.end() for match in pattern.finditer(window, half)]
        if ends:
            return ends[-1]
    # Between characters: a byte 10xxxxxx goes on with one, and no character has more than four.
    return next((end for end in range(len(window) - 1, len(window) - 5, -1) if window[end] & 0xC0 != 0x80), len(window))


def _whole(stream: IO[bytes]) -> Iterator[_Stretch]:
    while data := stream.read(PIECE):
        yield "", data, False
    yield "", b"", True


def _lines(stream: IO[bytes]) -> Iterator[_Stretch]:
    where, ends = "", True
    for number, data, begins, ends in _numbered(stream):
        if data.strip() or not (begins and ends):
            where = f":{number}"
            yield where, data, ends
    if not ends:
        yield where, b"", True


def _paragraphs(stream: IO[bytes]) -> Iterator[_Stretch]:
    where = ""
    for number, data, begins, ends in _numbered(stream):
        if begins and ends and not data.strip():
            if where:
                yield where, b"", True
            where = ""
        else:
            where = where or f":{number}"
            yield where, data, False
    if where:
        yield where, b"", True


def _numbered(stream: IO[bytes]) -> Iterator[tuple[int, bytes, bool, bool]]:
    """The lines, long ones in parts: line number, bytes, whether the line begins with them, whether it ends."""
    number, begins = 1, True
    while data := stream.readline(PIECE):
        ends = data.endswith(b"\n") or len(data) < PIECE
        yield number, data, begins, ends
        number, begins = number + ends, ends


_SPLITS: dict[str, Callable[[IO[bytes]], Iterator[_Stretch]]] = {
    "auto": _whole,
    "file": _whole,
    "blank-line": _paragraphs,
    "line": _lines,
}
