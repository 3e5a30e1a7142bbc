"""Decompressed byte streams of files and of the members of tar and zip archives, in bounded memory."""

import bz2
import fnmatch
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from bert_jax.errors import needs_packages
from bert_jax.readers.documents import MAX_UNPACKED_BYTES, UnpackedByteCounter
from bert_jax.readers.storage import is_hidden

# The errors that the libraries raise for a file whose content does not fit its name. gzip and bz2 also raise an OSError
# without an error number. zipfile raises the last two errors of the tuple for features that it does not support and
# for names that are not UTF-8.
BROKEN_ARCHIVE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    UnicodeDecodeError,
)
HIDDEN = "hidden"  # reason of the rejection of members such as `.git/config` and `._text.txt`
_ZIP_HEADER_BYTES = 30  # size of the header before the name of a member
_MEMBER_BYTES = 256  # unpacked bytes that are counted for each member of a zip archive, in addition to its content
_MAX_HEADER = 1 << 20  # bytes of the longest name or metadata in a tar archive; tarfile holds them in memory
_HOLDS_HEADER = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class Member(NamedTuple):
    """The byte stream of a file or of an archive member, or the reason for its rejection."""

    name: str  # file[:member]
    bare_name: str  # file name without the suffix of its compression
    stream: IO[bytes] | None = None
    rejected: str = ""


def uncompressed_name(name: str) -> str:
    """Return a file name without the suffix of its compression; the result for an archive ends in .tar or .zip."""
    bare, suffix = os.path.splitext(name)
    suffix = suffix.lower()
    return bare + ".tar" if suffix in _TAR_SUFFIXES else bare if suffix in _OPENERS else name


def is_archive_name(bare: str) -> bool:
    """Return whether an `uncompressed_name` is the name of a tar or zip archive."""
    return bare.lower().endswith((".tar", ".zip"))


def open_file_or_members(
    path: str, file: IO[bytes], max_unpacked_bytes: int = MAX_UNPACKED_BYTES, pattern: str = "*"
) -> Iterator[Member]:
    """Yield the decompressed streams of an open file: the file itself, or each member of an archive.

    Members whose name does not match `pattern` are skipped, for example the images of a WebDataset. Read each stream
    before you take the next stream. Hidden members, and archives in archives, are rejected. The bytes of all members
    and, if the archive is compressed, the bytes of the decompressed archive count toward the limit on unpacked bytes.

    Raises:
        UserError: the file unpacks to more than `max_unpacked_bytes` and to more than MAX_RATIO times its size.
        an error of BROKEN_ARCHIVE, or an OSError without an error number: an archive or a compressed stream is broken.
    """
    unpacked = UnpackedByteCounter(file.seek(0, os.SEEK_END), max_unpacked_bytes)
    file.seek(0)
    bare, stream = _decompress(path, file, unpacked)
    if bare.lower().endswith(".tar"):
        yield from _tar_members(path, stream, unpacked, pattern)
    elif is_archive_name(bare) and stream is file:
        yield from _zip_members(path, stream, unpacked, pattern)
    else:
        yield Member(path, bare, stream)


def _open_member(path: str, inner: str, stream: IO[bytes], unpacked: UnpackedByteCounter) -> Member:
    """Return the decompressed member `inner` of an archive; a member that is an archive is rejected."""
    bare, content = _decompress(inner, stream, unpacked)
    if is_archive_name(bare):
        return Member(f"{path}:{inner}", bare, rejected="archive in an archive")
    return Member(f"{path}:{inner}", bare, content)


def _tar_members(path: str, stream: IO[bytes], unpacked: UnpackedByteCounter, pattern: str) -> Iterator[Member]:
    """Yield the members of a tar archive whose names match `pattern`."""
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictTarInfo) as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # this list would grow with the archive
            if info.isdir() or not fnmatch.fnmatchcase(info.name, pattern):
                continue
            if is_hidden(info.name):
                yield Member(f"{path}:{info.name}", info.name, rejected=HIDDEN)
            elif info.issparse():
                # The holes of a sparse file are NUL bytes, and a few bytes can claim any number of NUL bytes.
                yield Member(f"{path}:{info.name}", info.name, rejected="binary")
            elif info.isfile():
                content = archive.extractfile(info)
                assert content is not None
                yield _open_member(path, info.name, content, unpacked)
            else:
                yield Member(f"{path}:{info.name}", info.name, rejected="not a file")
        rest: Any = archive.fileobj
        while data := rest.read(1 << 16):  # reading to the end makes gzip and xz compare checksums
            if data.strip(b"\0"):
                raise tarfile.ReadError("more data after the end of the archive")


class _StrictTarInfo(tarfile.TarInfo):
    """A tar header.

    A damaged, missing or huge header raises an error; tarfile would treat such a header as the end of the archive.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_StrictTarInfo":
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HOLDS_HEADER and info.size > _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {info.size:,} bytes")
        return info

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_StrictTarInfo":
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except (tarfile.HeaderError, ValueError) as error:  # wrong numbers in extended headers raise ValueError
            raise tarfile.ReadError(f"a header is damaged: {error}") from None

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, *_: object) -> None:
        """Mark a file as sparse; tarfile would also read the map of holes, and never end if the map is incomplete."""
        member.sparse = [(0, 0)]  # type: ignore[assignment]  # typeshed declares no list


def refuse_overlapping_members(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile if two members share bytes, since a small file could unpack to a huge size (CVE-2019-13232)."""
    end = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise zipfile.BadZipFile(f"{info.filename} shares bytes with another member")
        end = info.header_offset + _ZIP_HEADER_BYTES + info.compress_size


def _zip_members(path: str, stream: IO[bytes], unpacked: UnpackedByteCounter, pattern: str) -> Iterator[Member]:
    """Yield the members of a zip archive whose names match `pattern`."""
    with zipfile.ZipFile(stream) as archive:
        refuse_overlapping_members(archive)
        for info in archive.infolist():
            unpacked.add(_MEMBER_BYTES)
            name = f"{path}:{info.filename}"
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir() or not fnmatch.fnmatchcase(info.filename, pattern):
                continue
            if is_hidden(info.filename):
                yield Member(name, info.filename, rejected=HIDDEN)
            elif kind not in (0, stat.S_IFREG):
                yield Member(name, info.filename, rejected="not a file")
            elif info.flag_bits & 1:
                yield Member(name, info.filename, rejected="encrypted")
            # zipfile needs unbounded memory for the other compression methods.
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                yield Member(name, info.filename, rejected="unknown compression")
            else:
                with archive.open(info) as content:
                    yield _open_member(path, info.filename, _byte_counting_stream(content, unpacked), unpacked)


class _Decompressed(NamedTuple):
    """The name of a file without its compression suffix, and the decompressed stream of the file."""

    name: str
    stream: IO[bytes]


def _decompress(name: str, stream: IO[bytes], unpacked: UnpackedByteCounter) -> _Decompressed:
    """Return the `uncompressed_name` of a file, and its decompressed stream."""
    suffix = os.path.splitext(name)[1].lower()
    opener = _OPENERS.get(_TAR_SUFFIXES.get(suffix, suffix))
    return _Decompressed(uncompressed_name(name), _byte_counting_stream(opener(stream), unpacked) if opener else stream)


def _byte_counting_stream(stream: Any, unpacked: UnpackedByteCounter) -> IO[bytes]:
    """Return a buffered stream that counts the bytes it reads in `unpacked`."""
    return io.BufferedReader(_CountedStream(stream, unpacked), _DECOMPRESSED_BYTES)


class _CountedStream(io.RawIOBase):
    """A stream whose bytes are counted as they are read."""

    def __init__(self, stream: Any, unpacked: UnpackedByteCounter):
        self._stream, self._unpacked = stream, unpacked

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` with bytes of the stream, and return the number of these bytes."""
        size: int = self._stream.readinto(target)
        self._unpacked.add(size)
        return size


def _open_zstd(stream: IO[bytes]) -> io.RawIOBase:
    """Return the decompressed stream of a .zst file; raise UserError if the package is missing."""
    with needs_packages("reading .zst", "zstandard"):
        import zstandard
    # The stream reads few compressed bytes at a time, because four bytes may expand to 128 KiB in one call.
    return _DecompressedStream(stream, lambda: _ZstdFrame(zstandard), 1 << 10)


class _ZstdFrame:
    """A zstd frame, with the interface of the standard library's decompressors."""

    needs_input = True

    def __init__(self, zstandard: Any):
        self._inner, self._error = zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError

    def decompress(self, data: bytes, _: int) -> bytes:
        try:
            return bytes(self._inner.decompress(data))
        except self._error as error:
            raise EOFError(str(error)) from None

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)


class _DecompressedStream(io.RawIOBase):
    """A stream that decompresses concatenated compressed streams; it raises EOFError if a stream ends too early.

    The file classes of the compression libraries would silently stop where other data follows a compressed stream.
    """

    def __init__(self, stream: IO[bytes], new_decompressor: Callable[[], Any], bytes_per_read: int = 1 << 14):
        self._stream, self._bytes_per_read = stream, bytes_per_read
        self._new_decompressor = new_decompressor
        self._decompressor: Any = None  # decompressor of the compressed stream that is being read
        self._left = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill `target` with decompressed bytes, and return the number of these bytes."""
        while not self._ready:
            data = b""
            if self._decompressor is None or self._decompressor.needs_input:
                data, self._left = self._left or self._stream.read(self._bytes_per_read), b""
                if not data and self._decompressor is not None:
                    raise EOFError("the compressed stream ends too early")
                if not data:
                    return 0
            if self._decompressor is None:
                data = data.lstrip(b"\0")  # xz allows zeros between streams
                if not data:
                    continue
                self._decompressor = self._new_decompressor()
            self._ready = memoryview(self._decompressor.decompress(data, _DECOMPRESSED_BYTES))
            if self._decompressor.eof:
                self._left, self._decompressor = self._decompressor.unused_data, None
        size = min(len(target), len(self._ready))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


_DECOMPRESSED_BYTES = 1 << 16  # bytes that a call of a decompressor returns at most
_XZ_MEMORY = 256 << 20  # memory limit in bytes; `xz -9` needs 65 MiB, but the header of a file may demand 4 GiB
_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".xz": lambda stream: _DecompressedStream(stream, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
    ".bz2": lambda stream: _DecompressedStream(stream, bz2.BZ2Decompressor),
    ".zst": _open_zstd,
}
_TAR_SUFFIXES = {".tgz": ".gz", ".txz": ".xz", ".tbz2": ".bz2", ".tzst": ".zst"}
