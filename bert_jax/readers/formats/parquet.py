"""Reader of Parquet: a row is a document, and a column holds its text.

A few bytes of a Parquet file can repeat a value, or the beginning of a value, for any number of rows. To limit memory,
this reader checks the size of every page before the library reads the page. The sizes in the footer do not matter,
because pyarrow allocates memory by the sizes in the page headers. A page header is written in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/data-pages/).
"""

import contextlib
import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.documents import MAX_RATIO, RawDocument, ReadOptions, UnpackedByteCounter
from bert_jax.readers.formats.arrow_columns import TextColumns
from bert_jax.readers.pieces import copy_to_temporary_file

_BATCH_BYTES = 4 << 20  # size of a batch of rows of average length
_MAX_BATCH_BYTES = 64 << 20  # size of a batch of the longest rows that the pages can express
_BATCH_ROWS = 4096
_PAGE_BYTES = 64 << 20  # unpacked size that every page may have; a larger page may have MAX_RATIO times its packed size
_VALUE_BYTES = 4  # size of an index into a dictionary, or of a length
_HEADER_BYTES = (1 << 12, 1 << 24)  # bytes read for a page's header; the larger size if statistics are long
# Types of Thrift's compact protocol.
_BOOLEANS, _INTEGERS = (1, 2), (4, 5, 6)
_BYTE = 3
_DOUBLE = 7
_BINARY = 8
_STRUCT = 12
_MISSING_BYTES = 100  # bytes that early writers may leave out of a chunk's size; pyarrow allows this, too
_PACKED, _UNPACKED = (3,), (2,)  # fields of a PageHeader with numbers of bytes
_NUM_VALUES = ((5, 1), (7, 1), (8, 1))  # field of a data page, a dictionary page, a data page of version 2


def read_parquet_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the text of each row, from a column or a template of columns; dots in a column's name lead into structs.

    A Parquet file is read from its end, so a stream that is not a local file is first copied to a temporary file. A
    batch has so few rows that it stays below _MAX_BATCH_BYTES even if the text of each row fills a page.

    Raises:
        UserError: pyarrow is not installed, the file is broken, the column is missing or has no text, or a column
        unpacks to more than `max_unpacked_bytes` and to more than MAX_RATIO times the size of the file.
    """
    with needs_packages(name, "pyarrow"):
        import pyarrow
        from pyarrow import parquet
    with contextlib.ExitStack() as stack:
        file = stream
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            file = stack.enter_context(copy_to_temporary_file(stream))
        try:
            yield from _read_rows_as_documents(
                name, file, parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20), options
            )
        except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: a page header or a column name
            line = str(error).partition("\n")[0]
            raise UserError(f"{name}: broken Parquet file ({line}); fetch it again or leave it out") from None


def _read_rows_as_documents(name: str, stream: IO[bytes], file: Any, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of an open Parquet file as documents."""
    texts = TextColumns(name, file.schema_arrow, options)
    columns = texts.dotted_paths
    pages, unpacked = (UnpackedByteCounter(stream.seek(0, io.SEEK_END), options.max_unpacked_bytes) for _ in range(2))
    batch_rows = min(_rows_per_batch(file.metadata, column, stream, pages) for column in columns)
    for batch in file.iter_batches(max(1, batch_rows // len(columns)), columns=columns, use_threads=False):
        yield from texts.documents(batch, unpacked)
    if not texts.num_rows:
        yield RawDocument(name=name, rejected="empty")


def _rows_per_batch(metadata: Any, column: str, stream: IO[bytes], unpacked: UnpackedByteCounter) -> int:
    """Return how many rows have about _BATCH_BYTES; add the unpacked size of each page of the column to `unpacked`."""
    usual, largest = 1.0, 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        usual = max(usual, group.total_byte_size / max(1, group.num_rows))
        for chunk in map(group.column, range(group.num_columns)):
            for page in read_page_sizes(stream, chunk) if chunk.path_in_schema == column else ():
                size = page.unpacked_bytes + _VALUE_BYTES * page.num_values
                if size > max(_PAGE_BYTES, MAX_RATIO * page.packed_bytes):
                    raise UserError(f"a page of {page.packed_bytes:,} bytes unpacks to {size:,}; write smaller pages")
                unpacked.add(size)
                largest = max(largest, page.unpacked_bytes)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES // usual, _MAX_BATCH_BYTES // largest)))


class PageSizes(NamedTuple):
    """The sizes in the header of a page."""

    packed_bytes: int
    unpacked_bytes: int
    num_values: int


def read_page_sizes(file: IO[bytes], chunk: Any) -> Iterator[PageSizes]:
    """Yield the sizes of the pages of a `pyarrow.parquet.ColumnChunkMetaData`; raise ValueError if it is damaged."""
    offset, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if chunk.has_dictionary_page and (0 < dictionary < offset or not offset):  # as in pyarrow; offset 0: no values
        offset = dictionary
    end = offset + chunk.total_compressed_size
    while offset < end:
        header = _read_page_header(file, offset)
        offset += header.offset
        packed, unpacked = header.numbers.get(_PACKED, -1), header.numbers.get(_UNPACKED, -1)
        if unpacked < 0 or not 0 <= packed <= end + _MISSING_BYTES - offset:
            raise ValueError("a page of an impossible size")
        yield PageSizes(packed, unpacked, max(header.numbers.get(field, 0) for field in _NUM_VALUES))
        offset += packed


def _read_page_header(file: IO[bytes], offset: int) -> "_ThriftStruct":
    """Return the header of the page at `offset`."""
    for size in _HEADER_BYTES:
        file.seek(offset)
        header = _ThriftStruct(file.read(size))
        try:
            header.read_struct(())
            break
        except _CutShortError:
            if size == _HEADER_BYTES[-1]:
                raise
    return header


class _CutShortError(ValueError):
    """Error for bytes that end inside of a Thrift struct."""


class _ThriftStruct:
    """Reader of the integers of a Thrift struct; an integer is stored under the path of field ids that leads to it."""

    def __init__(self, data: bytes):
        self._data, self.offset = data, 0
        self.numbers = dict[tuple[int, ...], int]()

    def read_struct(self, path: tuple[int, ...]) -> None:
        """Read up to the end of the struct; raise ValueError if it is damaged."""
        if len(path) > 4:
            raise ValueError("a page header that is nested too deeply")
        field = 0
        while head := self._read_byte():
            field = field + (head >> 4) if head >> 4 else self._read_zigzag_varint()
            self._read_value(head & 15, (*path, field))

    def _read_value(self, kind: int, path: tuple[int, ...]) -> None:
        if kind in _INTEGERS:
            self.numbers[path] = self._read_zigzag_varint()
        elif kind == _BYTE:
            self._read_byte()
        elif kind == _DOUBLE:
            self.offset += 8
        elif kind == _BINARY:
            size = self._read_unsigned_varint()
            self.offset += size
        elif kind == _STRUCT:
            self.read_struct(path)
        elif kind not in _BOOLEANS:  # a page header has neither lists nor maps
            raise ValueError("an unknown field in a page header")

    def _read_byte(self) -> int:
        if self.offset >= len(self._data):
            raise _CutShortError("a page header is cut short")
        self.offset += 1
        return self._data[self.offset - 1]

    def _read_unsigned_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _read_zigzag_varint(self) -> int:
        value = self._read_unsigned_varint()
        return value >> 1 ^ -(value & 1)
