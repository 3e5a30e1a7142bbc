"""Byte streams -> lines, of which none that is too long is held."""

from collections.abc import Iterator
from typing import IO, NamedTuple

from bert_jax.data.sources.records import MAX_RECORD


class Line(NamedTuple):
    """A line with its number, from 1 on."""

    number: int
    data: bytes  # with its end; b"" where it is longer than MAX_RECORD
    too_large: bool = False


def read_lines(stream: IO[bytes]) -> Iterator[Line]:
    """Every line."""
    number = 0
    while data := stream.readline(MAX_RECORD):
        number += 1
        if len(data) < MAX_RECORD or data.endswith(b"\n"):
            yield Line(number, data)
            continue
        while (more := stream.readline(1 << 20)) and not more.endswith(b"\n"):
            pass
        yield Line(number, b"", too_large=True)
