"""Arrow files, as Hugging Face `datasets` keeps data sets on disk -> documents, one per row; the text is a column."""

import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import flatbuffers.number_types as numbers
from flatbuffers.table import Table

from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, Unpacked
from bert_jax.readers.formats.fields import template_parts
from bert_jax.readers.formats.parquet import column_path, column_values, row_document

_MAX_BATCH_BYTES = 256 << 20  # which is held in memory, some three times; `datasets` writes 1,000 rows at once
_FILE_START = b"ARROW1\0\0"  # of the file format, which holds the same messages between a head and a foot
_CONTINUES = b"\xff\xff\xff\xff"
# Fields of the flatbuffers in Arrow's format/Message.fbs: a message, and a record batch in it.
_HEADER_TYPE, _HEADER, _BODY_LENGTH, _COMPRESSION = 6, 8, 10, 10
_SCHEMA, _RECORD_BATCH = 1, 3
_BROKEN = (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError, OSError)  # of both libraries


class _Message(NamedTuple):
    """A message of the stream, with all its bytes."""

    kind: int
    data: bytes


def read_arrow_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of a column, whose name may lead into structs by dots, or of a template, batch by batch.

    Raises:
        UserError: pyarrow is not installed, a broken file, one with compressed or dictionary-encoded batches, no such
            column, or one that holds no text.
    """
    try:
        import pyarrow
    except ImportError:
        raise UserError(f"{name}: needs the package pyarrow: pip install pyarrow") from None
    try:
        yield from _rows(name, stream, options)
    except (pyarrow.ArrowException, *_BROKEN) as error:
        line = str(error).partition("\n")[0]
        raise UserError(f"{name}: cannot be read as Arrow ({line}); write it again, or leave it out") from None


def _rows(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    from pyarrow import ipc

    messages = _messages(stream)
    schema = next(messages, None)
    if schema is None or schema.kind != _SCHEMA:
        raise ValueError("no schema")
    parts = template_parts(options.field)
    columns = ipc.open_stream(schema.data).schema
    paths = {part.name: column_path(name, columns, part.name) for part in parts if part.name}
    number = 0
    for message in messages:
        texts = Unpacked(len(message.data), options.max_unpacked_bytes)
        batch: Any = ipc.open_stream(schema.data + message.data).read_next_batch()
        batch.validate(full=True)  # offsets may point anywhere
        found = {key: column_values(batch.column(path[0]), path[1:]) for key, path in paths.items()}
        for row in range(batch.num_rows):
            number += 1
            yield row_document(f"{name}:{number}", parts, {key: own[row] for key, own in found.items()}, texts)
    if not number:
        yield RawDocument(name, rejected="empty")


def _messages(stream: IO[bytes]) -> Iterator[_Message]:
    """Yield the messages of the stream; ValueError or struct.error where one is cut short or may not be read."""
    begin = stream.read(len(_FILE_START))
    if begin == _FILE_START:
        begin = stream.read(8)
    while len(begin) == 8 and begin[4:] != bytes(4):
        if not begin.startswith(_CONTINUES):
            raise ValueError("no message where one should begin")
        (size,) = struct.unpack("<i", begin[4:])
        if not 0 < size <= MAX_RECORD_BYTES:
            raise ValueError(f"a header of {size:,} bytes")
        header = stream.read(size)
        message = Table(header, struct.unpack_from("<I", header)[0])
        kind = _number(message, _HEADER_TYPE, numbers.Uint8Flags)
        length = _number(message, _BODY_LENGTH, numbers.Int64Flags)
        if kind not in (_SCHEMA, _RECORD_BATCH):
            raise ValueError("dictionary-encoded columns, which are not read: write it as Parquet")
        if not 0 <= length <= _MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {length:,} bytes: write it in smaller ones")
        inner = Table(header, message.Indirect(message.Pos + message.Offset(_HEADER)))
        if kind == _RECORD_BATCH and inner.Offset(_COMPRESSION):
            raise ValueError("compressed batches, which are not read: write it without compression, or as Parquet")
        body = stream.read(length)
        if len(header) < size or len(body) < length:
            raise ValueError("it is cut short")
        yield _Message(kind, begin + header + body)
        begin = stream.read(8)
    if 0 < len(begin) < 8:
        raise ValueError("it is cut short")
    while stream.read(1 << 20):  # the foot; also to notice a broken archive
        pass


def _number(table: Table, field: int, flags: Any) -> int:
    place = table.Offset(field)
    return int(table.Get(flags, table.Pos + place)) if place else 0
