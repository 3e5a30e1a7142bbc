"""Arrow files, in which Hugging Face `datasets` keeps data sets: a row is a document, and a column holds its text."""

import io
import struct
from collections.abc import Iterator
from typing import IO, Any

from flatbuffers.table import Table

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.documents import RawDocument, ReadOptions, UnpackedByteCounter
from bert_jax.readers.formats.arrow_columns import TextColumns
from bert_jax.readers.rows import discard_rest_of_stream

_MAX_BATCH_BYTES = 256 << 20  # a batch takes three times this memory; `datasets` writes batches of 1,000 rows
_FILE_START = b"ARROW1\0\0"  # first bytes of a file, whose messages lie between a head and a foot
_HEADER, _COMPRESSION = 8, 10  # offsets of the fields in Message and RecordBatch (Arrow's Message.fbs)
# Errors of pyarrow and flatbuffers for a broken file.
_BROKEN = (struct.error, IndexError, ValueError, TypeError, OverflowError, MemoryError, OSError)


def read_arrow_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the text of each row, from a column or a template of columns; dots in a column's name lead into structs.

    Raises:
        UserError: pyarrow is not installed, the file is broken, batches are compressed or dictionary-encoded, or the
        column is missing or has no text.
    """
    with needs_packages(name, "pyarrow"):
        import pyarrow
    try:
        yield from _read_rows_as_documents(name, stream, options)
    except (pyarrow.ArrowException, *_BROKEN) as error:
        line = str(error).partition("\n")[0]
        raise UserError(f"{name}: cannot be read as Arrow ({line}); write it again, or leave it out") from None


def _read_rows_as_documents(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of all batches of a stream as documents."""
    from pyarrow import ipc

    messages = iter(ipc.MessageReader.open_stream(_BoundedStream(stream)))
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise ValueError("no schema")
    schema = ipc.read_schema(first)
    texts = TextColumns(name, schema, options)
    for message in messages:
        _check_uncompressed_record_batch(message)
        batch: Any = ipc.read_record_batch(message, schema)
        batch.validate(full=True)  # offsets of a damaged batch may point anywhere
        size = message.metadata.size + message.body.size
        yield from texts.documents(batch, UnpackedByteCounter(size, options.max_unpacked_bytes))
    discard_rest_of_stream(stream)  # the foot of an Arrow file
    if not texts.num_rows:
        yield RawDocument(name=name, rejected="empty")


def _check_uncompressed_record_batch(message: Any) -> None:
    """Raise ValueError for a message that is no record batch, and for a compressed batch, whose size is unknown."""
    if message.type != "record batch":
        raise ValueError("dictionary-encoded columns, which are not read: write it as Parquet")
    data = message.metadata.to_pybytes()
    table = Table(data, struct.unpack_from("<I", data)[0])
    batch = Table(data, table.Indirect(table.Pos + table.Offset(_HEADER)))
    if batch.Offset(_COMPRESSION):
        raise ValueError("compressed batches, which are not read: write it without compression, or as Parquet")


class _BoundedStream(io.RawIOBase):
    """A stream of the messages of an Arrow stream or file, without the file's head; it limits the bytes per read."""

    def __init__(self, stream: IO[bytes]):
        super().__init__()
        self._stream = stream
        begin = stream.read(len(_FILE_START))
        self._begin = b"" if begin == _FILE_START else begin

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes; raise ValueError if `size` exceeds the limit of a batch."""
        if not 0 <= size <= _MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {size:,} bytes: write smaller batches")
        begin, self._begin = self._begin[:size], self._begin[size:]
        return begin + self._stream.read(size - len(begin))
