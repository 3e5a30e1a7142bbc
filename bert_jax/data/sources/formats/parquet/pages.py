"""The pages of a Parquet column: how much each takes in memory, before the library reads it.

The sizes in the footer are only claims. Those in the header of a page, in Thrift's compact protocol, are what pyarrow
allocates: https://parquet.apache.org/docs/file-format/data-pages/.
"""

from collections.abc import Iterator
from typing import IO, Any, NamedTuple

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
