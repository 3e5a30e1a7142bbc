"""Arrow files, in which Hugging Face `datasets` keeps data sets: a document per row, whose text is a column."""

import struct
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import flatbuffers.number_types as numbers
from flatbuffers.table import Table

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, Unpacked
from bert_jax.readers.formats.arrow_columns import TextColumns
from bert_jax.readers.rows import read_to_end

_MAX_BATCH_BYTES = 256 << 20  # held in memory about three times; `datasets` writes batches of 1,000 rows
_FILE_START = b"ARROW1\0\0"  # of the file format, which holds the same messages between a head and a foot
_CONTINUES = b"\xff\xff\xff\xff"
# Fields of the flatbuffers in Arrow's format/Message.fbs: a message, and a record batch in it.
_HEADER_TYPE, _HEADER = 6, 8
_BODY_LENGTH, _COMPRESSION = 10, 10
_SCHEMA, _RECORD_BATCH = 1, 3
_BROKEN = (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError, OSError)  # of both libraries


class _Message(NamedTuple):
    """A message of the stream, with all its bytes."""

    kind: int
    data: bytes


def read_arrow_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of a column or of a template, batch by batch; dots in the name of a column lead into structs.

    Raises:
        UserError: pyarrow is not installed, the file is broken, batches are compressed or dictionary-encoded, or there
        is no such column with text.
    """
    with needs_packages(name, "pyarrow"):
        import pyarrow
    try:
        yield from _documents(name, stream, options)
    except (pyarrow.ArrowException, *_BROKEN) as error:
        line = str(error).partition("\n")[0]
        raise UserError(f"{name}: cannot be read as Arrow ({line}); write it again, or leave it out") from None


def _documents(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of all batches of a stream as documents."""
    from pyarrow import ipc

    messages = _messages(stream)
    schema = next(messages, None)
    if schema is None or schema.kind != _SCHEMA:
        raise ValueError("no schema")
    texts = TextColumns(name, ipc.open_stream(schema.data).schema, options)
    for message in messages:
        batch: Any = ipc.open_stream(schema.data + message.data).read_next_batch()
        batch.validate(full=True)  # offsets may point anywhere
        yield from texts.documents(batch, Unpacked(len(message.data), options.max_unpacked_bytes))
    if not texts.num_rows:
        yield RawDocument(name=name, rejected="empty")


def _messages(stream: IO[bytes]) -> Iterator[_Message]:
    """Yield the messages of an Arrow stream; ValueError or struct.error for a broken or unsupported message."""
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
        kind = _read_integer_field(message, _HEADER_TYPE, numbers.Uint8Flags)
        length = _read_integer_field(message, _BODY_LENGTH, numbers.Int64Flags)
        if kind not in (_SCHEMA, _RECORD_BATCH):
            raise ValueError("dictionary-encoded columns, which are not read: write it as Parquet")
        if not 0 <= length <= _MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {length:,} bytes: write smaller batches")
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
    read_to_end(stream)  # the foot


def _read_integer_field(table: Table, field: int, flags: Any) -> int:
    offset = table.Offset(field)
    return int(table.Get(flags, table.Pos + offset)) if offset else 0
