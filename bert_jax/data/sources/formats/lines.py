"""Byte streams -> lines; a line that is too long is not held in memory."""

from collections.abc import Iterator
from typing import IO, NamedTuple

from bert_jax.data.sources.documents import MAX_RECORD_BYTES


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
