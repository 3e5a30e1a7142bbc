"""The pages of a Parquet column: how much each takes in memory, before the library reads it.

The sizes in the footer are only claims. Those in the header of a page, in Thrift's compact protocol, are what pyarrow
allocates: https://parquet.apache.org/docs/file-format/data-pages/.

Parquet -> documents, one per row; the text is a column.
"""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

from bert_jax.errors import UserError, did_you_mean, writing
from bert_jax.readers.documents import MAX_RATIO, MAX_RECORD_BYTES, RawDocument, ReadOptions, Unpacked, format_names
from bert_jax.readers.formats.fields import Part, template_parts

_HEADER_BYTES = (1 << 12, 1 << 24)  # read for a page's header; more only where its statistics are long
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_MISSING_BYTES = 100  # of a chunk that an early writer may have left out of its size, as pyarrow knows
_PACKED, _UNPACKED = (3,), (2,)  # fields of a PageHeader: bytes
_NUM_VALUES = ((5, 1), (7, 1), (8, 1))  # of a data page, a dictionary page, a data page of version 2


class Page(NamedTuple):
    """What the header of a page says."""

    packed_bytes: int
    unpacked_bytes: int
    num_values: int


def read_pages(file: IO[bytes], chunk: Any) -> Iterator[Page]:
    """Yield the pages of a `pyarrow.parquet.ColumnChunkMetaData`; ValueError where their headers are damaged."""
    place, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if chunk.has_dictionary_page and (0 < dictionary < place or not place):  # as pyarrow; 0: there are no values
        place = dictionary
    end = place + chunk.total_compressed_size
    while place < end:
        header = _read_header(file, place)
        place += header.place
        packed, unpacked = header.numbers.get(_PACKED, -1), header.numbers.get(_UNPACKED, -1)
        if unpacked < 0 or not 0 <= packed <= end + _MISSING_BYTES - place:
            raise ValueError("a page of an impossible size")
        yield Page(packed, unpacked, max(header.numbers.get(field, 0) for field in _NUM_VALUES))
        place += packed


def _read_header(file: IO[bytes], place: int) -> "_Thrift":
    for size in _HEADER_BYTES:
        file.seek(place)
        header = _Thrift(file.read(size))
        try:
            header.read_struct(())
            break
        except _CutShortError:
            if size == _HEADER_BYTES[-1]:
                raise
    return header


class _CutShortError(ValueError):
    """The bytes end inside of the struct."""


class _Thrift:
    """The numbers of a struct, by the path of field ids that leads to each."""

    def __init__(self, data: bytes):
        self._data, self.place, self.numbers = data, 0, dict[tuple[int, ...], int]()

    def read_struct(self, path: tuple[int, ...]) -> None:
        """Read up to the end of the struct; ValueError where it is damaged."""
        if len(path) > 4:
            raise ValueError("a page header that is nested too deeply")
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            self._read(head & 15, (*path, field))

    def _read(self, kind: int, path: tuple[int, ...]) -> None:
        if kind in _INTEGERS:
            self.numbers[path] = self._integer()
        elif kind == _BYTE:
            self._byte()
        elif kind == _DOUBLE:
            self.place += 8
        elif kind == _BINARY:
            size = self._unsigned()
            self.place += size
        elif kind == _STRUCT:
            self.read_struct(path)
        elif kind not in _BOOLEANS:  # a page header has neither lists nor maps
            raise ValueError("an unknown field in a page header")

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise _CutShortError("a page header is cut short")
        self.place += 1
        return self._data[self.place - 1]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    def _integer(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


_BATCH_BYTES = 4 << 20  # of rows of the usual length
_MAX_BATCH_BYTES = 64 << 20  # of the longest rows that the pages can express
_BATCH_ROWS = 4096
_PAGE_BYTES = 64 << 20  # that every page may unpack to; more only with a MAX_RATIO-th of them in the file
_VALUE_BYTES = 4  # of a place in a dictionary, or of a length
_ROW_BYTES = 256  # that a row counts beside its text: a few bytes can express any number of empty ones


def read_parquet_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of a column, whose name may lead into structs by dots, or of a template, in batches of a few MiB.

    A stream that is not a local file is copied to a temporary one first, since the format is read from its end. A few
    bytes can repeat a value, or the beginning of a value, for any number of rows. So every page is measured before it
    is read, and no batch has more rows than a page's worth of text each would fill _MAX_BATCH_BYTES with.

    Raises:
        UserError: pyarrow is not installed, a broken file, no such column, one that holds no text, or one that unpacks
            to more than `max_unpacked_bytes` and MAX_RATIO times the file.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{name}: needs the package pyarrow: pip install pyarrow") from None
    with contextlib.ExitStack() as stack:
        file = stream
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            with writing(tempfile.gettempdir(), "make room, or set TMPDIR to a larger directory"):
                file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, file, 1 << 20)
        try:
            yield from _rows(name, file, parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20), options)
        except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: headers, names of columns
            line = str(error).partition("\n")[0]
            raise UserError(f"{name}: broken Parquet file ({line}); fetch it again or leave it out") from None


def _rows(name: str, stream: IO[bytes], file: Any, options: ReadOptions) -> Iterator[RawDocument]:
    parts = template_parts(options.field)
    paths = {part.name: column_path(name, file.schema_arrow, part.name) for part in parts if part.name}
    pages, texts = (Unpacked(stream.seek(0, io.SEEK_END), options.max_unpacked_bytes) for _ in range(2))
    columns = [".".join(path) for path in paths.values()]
    number, batch_rows = 0, min(_batch_rows(file.metadata, column, stream, pages) for column in columns)
    for batch in file.iter_batches(max(1, batch_rows // len(columns)), columns=columns, use_threads=False):
        found = {key: column_values(batch.column(path[0]), path[1:]) for key, path in paths.items()}
        for row in range(batch.num_rows):
            number += 1
            yield row_document(f"{name}:{number}", parts, {key: own[row] for key, own in found.items()}, texts)
    if not number:
        yield RawDocument(name, rejected="empty")


def row_document(where: str, parts: Sequence[Part], row: dict[str, bytes | None], texts: Unpacked) -> RawDocument:
    """Return the document of a row, whose bytes are counted; `row` has the text of each field of the template."""
    texts.add(_ROW_BYTES + sum(len(value or b"") for value in row.values()))
    values = [part.literal.encode() + (row[part.name] or b"" if part.name else b"") for part in parts]
    if None in row.values():
        return RawDocument(where, rejected="not a text")
    if sum(map(len, values)) > MAX_RECORD_BYTES:
        return RawDocument(where, rejected="too large")
    return RawDocument(where, b"".join(values), is_field=True)


def column_path(name: str, schema: Any, field: str) -> list[str]:
    """Return the names of the structs around the column of this name, and its own.

    Raises:
        UserError: there is none, or more than one, or it holds no text.
    """
    import pyarrow.types as kinds

    path = [field] if field in schema.names else field.split(".")
    inside: Any = schema
    for key in path:
        names = [one.name for one in inside]
        if key not in names:
            raise UserError(
                f"{name}: no column '{field}'{did_you_mean(key, names)} (there are {format_names(names)}); "
                "give one with --field"
            )
        if names.count(key) > 1:
            raise UserError(f"{name}: {names.count(key)} columns are named '{key}'; write it with different names")
        found = inside.field(key).type
        inside = found if kinds.is_struct(found) else []
    if kinds.is_dictionary(found):
        found = found.value_type
    if not any(is_kind(found) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)):
        raise UserError(f"{name}: the column '{field}' holds {found}, not text; give another with --field")
    return path


def column_values(column: Any, inner: list[str]) -> list[bytes | None]:
    """Return the UTF-8 of each row of a column, or of a field inside of its structs."""
    import pyarrow
    from pyarrow import compute

    for key in inner:
        column = compute.struct_field(column, key)
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def _batch_rows(metadata: Any, column: str, stream: IO[bytes], unpacked: Unpacked) -> int:
    """Return a number of rows of about _BATCH_BYTES, and of at most _MAX_BATCH_BYTES, or 1; count all pages."""
    usual, largest = 1.0, 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        usual = max(usual, group.total_byte_size / max(1, group.num_rows))
        for chunk in map(group.column, range(group.num_columns)):
            for page in read_pages(stream, chunk) if chunk.path_in_schema == column else ():
                size = page.unpacked_bytes + _VALUE_BYTES * page.num_values
                if size > max(_PAGE_BYTES, MAX_RATIO * page.packed_bytes):
                    raise UserError(f"a page of {page.packed_bytes:,} bytes unpacks to {size:,}; write smaller pages")
                unpacked.add(size)
                largest = max(largest, page.unpacked_bytes)
    return int(max(1, min(_BATCH_ROWS, _BATCH_BYTES // usual, _MAX_BATCH_BYTES // largest)))
