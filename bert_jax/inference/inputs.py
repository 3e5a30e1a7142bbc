"""The inputs of `embed`, `predict` and `fill-mask`: text lines or JSON lines, from a file or standard input."""

import codecs
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.readers.json_lines import parse_json

STDIN = "-"
OBJECTS, TEXT, LIST = ".jsonl", ".txt", ".json"
NOT_LINES = (".csv", ".tsv", ".parquet", ".gz", ".xml", ".html")  # whose lines are no texts
MAX_LINE_BYTES = 4 << 20  # tokenizing takes some 80 times as much memory


class Input(NamedTuple):
    """One line."""

    where: str  # "texts.txt:3", for messages
    number: int  # of the line, from 1
    fields: Mapping[str, Any]  # {"text": the line}, or the object of a JSON line


def read_inputs(source: str | os.PathLike[str], name: str | None = None) -> Iterator[Input]:
    """Yield the lines of a file, as they are asked for; `-` is standard input.

    A file with the suffix .jsonl holds a JSON object per line, and blank lines between them are left out. In a .txt
    file every line is a text, an empty one too. Any other input holds objects if its first character is `{`, otherwise
    texts. `name` stands for the source in messages; None: `name_of` it.

    Raises:
        UserError: the file cannot be read or has another format, or a line is too long, not UTF-8 or not an object.
    """
    name = name or name_of(source)
    with _opened(source) as stream:
        lines = _lines(name, stream)
        first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
        objects, suffix = _holds_objects(source, first), pathlib.Path(source).suffix.lower()
        if suffix in NOT_LINES or (suffix == LIST and not objects):
            raise UserError(f"{name}: not read line by line; convert it to {OBJECTS}, an object per line, or to {TEXT}")
        for number, line in enumerate(_chain(first, lines), 1):
            where = f"{name}:{number}"
            try:
                text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                raise UserError(f"{where}: not UTF-8 ({error.reason} at byte {error.start}); convert it") from None
            if not objects:
                yield Input(where, number, {"text": text})
            elif text.strip():
                yield Input(where, number, _object(where, text))


def num_inputs(source: str | os.PathLike[str]) -> int | None:
    """Return how many lines `read_inputs` yields, for progress; None for what can be read only once.

    A line that `read_inputs` refuses counts as well. Raises UserError where the file cannot be read.
    """
    if source == STDIN or not pathlib.Path(source).is_file():
        return None
    with _opened(source) as stream:
        lines = iter(lambda: stream.readline(MAX_LINE_BYTES), b"")
        first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
        objects = _holds_objects(source, first)
        return sum(not objects or bool(line.strip()) for line in _chain(first, lines))


def name_of(source: str | os.PathLike[str]) -> str:
    """Return what messages call a source."""
    return "standard input" if source == STDIN else str(source)


def texts_of(one: Input, keys: Sequence[str] = ("text", "text_pair")) -> dict[str, str]:
    """Return the texts of an input by key, the first of `keys` always; UserError where it is missing or no text."""
    if keys[0] not in one.fields:
        raise UserError(f"{one.where}: the object has no '{keys[0]}'; give it one")
    texts = {key: one.fields[key] for key in keys if key in one.fields}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise UserError(f"{one.where}: '{key}' is {text!r:.40}; give a text")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UserError(f"{one.where}: '{key}' has half of a surrogate pair, which is no character; remove it")
    return texts


@contextlib.contextmanager
def readable_twice(source: str | os.PathLike[str]) -> Iterator[str | os.PathLike[str]]:
    """Yield a source that can be read more than once: standard input is copied to a temporary file."""
    if source != STDIN:
        yield source
        return
    with tempfile.TemporaryDirectory() as directory:
        copy = pathlib.Path(directory) / "standard input"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield copy


@contextlib.contextmanager
def _opened(source: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    if source == STDIN:
        yield sys.stdin.buffer
        return
    try:
        file = open(source, "rb")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise UserError(f"{source}: cannot be read ({error.strerror or error})") from None
    with file:
        yield file


def _holds_objects(source: str | os.PathLike[str], first: bytes) -> bool:
    """Whether the lines are JSON objects, by the suffix and the first line."""
    suffix = pathlib.Path(source).suffix
    return suffix == OBJECTS or (suffix != TEXT and first.startswith(b"{"))


def _lines(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"{name}:{number}: a line of more than {MAX_LINE_BYTES >> 20} MiB; split it")
        yield line


def _chain(first: bytes, rest: Iterable[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _object(where: str, text: str) -> dict[str, Any]:
    found = parse_json(where, text)
    if not isinstance(found, dict):
        raise UserError(f"{where}: not a JSON object; write one object per line")
    return found
