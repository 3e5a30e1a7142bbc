"""Byte streams -> UTF-8, from any encoding, and -> lines of bounded length."""

import codecs
import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RECORD_BYTES

_BYTES_AT_ONCE = 1 << 16
# The longer ones first: that of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# An undecodable byte becomes one that UTF-8 does not have, so that its document is treated as one of invalid UTF-8.
_INVALID = "bert_jax_invalid"
codecs.register_error(_INVALID, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


def check_encoding(name: str) -> None:
    """Raise UserError for a name that Python knows no text encoding of."""
    try:
        b"a".decode(name, "ignore")
    except (LookupError, ValueError) as error:
        raise UserError(
            f"--encoding '{name}': {error}; give a name such as utf-16, shift_jis, euc_kr, gb18030 or latin-1"
        ) from None


def utf8_stream(stream: IO[bytes], encoding: str) -> IO[bytes]:
    """Return a stream of the same text in UTF-8: itself with 'utf-8', unless it has the mark of UTF-16 or UTF-32."""
    if codecs.lookup(encoding).name == "utf-8":
        stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)  # type: ignore[type-var]
        start = stream.peek(4)[:4]
        encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "")
        if not encoding:
            return stream
    return io.BufferedReader(_Utf8Stream(stream, encoding), _BYTES_AT_ONCE)


class _Utf8Stream(io.RawIOBase):
    """The UTF-8 of an encoded stream."""

    def __init__(self, stream: IO[bytes], encoding: str):
        self._stream, self._encoding, self._ready, self._ended = stream, encoding, b"", False
        self._decode = codecs.getincrementaldecoder(encoding)(_INVALID).decode

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Read as `io.RawIOBase.readinto`."""
        while not self._ready and not self._ended:
            data = self._stream.read(_BYTES_AT_ONCE)
            self._ended = not data
            try:
                self._ready = self._decode(data, self._ended).encode("utf-8", "surrogateescape")
            except UnicodeError as error:  # which the handler of undecodable bytes does not see
                advice = "without a byte order mark give utf-16-le or utf-16-be"
                raise UserError(f"cannot be read as {self._encoding} ({error}); {advice}") from None
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class Line(NamedTuple):
    """A line with its number, from 1."""

    number: int
    data: bytes  # with its line end; b"" where it is longer than MAX_RECORD_BYTES
    too_large: bool = False


def read_lines(stream: IO[bytes]) -> Iterator[Line]:
    """Yield every line."""
    number = 0
    while data := stream.readline(MAX_RECORD_BYTES):
        number += 1
        if len(data) < MAX_RECORD_BYTES or data.endswith(b"\n"):
            yield Line(number, data)
            continue
        while (more := stream.readline(1 << 20)) and not more.endswith(b"\n"):
            pass
        yield Line(number, b"", too_large=True)
