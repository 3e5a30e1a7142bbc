"""Files -> byte streams: decompressed, and of tar and zip archives each member; in bounded memory."""

import bz2
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

from bert_jax.errors import UserError

# What the libraries raise for a file that is not what its name says. An OSError without a number is of gzip or bz2;
# zipfile knows features that it does not read, and decodes names that are no UTF-8.
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    UnicodeDecodeError,
)
_MAX_HEADER = 1 << 20  # bytes of a name or of other words about a member of a tar archive, which tarfile holds whole
_HOLDS_HEADER = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class Member(NamedTuple):
    """A byte stream of a file, or the reason why it is none."""

    name: str  # file[:member]
    bare: str  # the name without the suffix of its compression
    stream: IO[bytes] | None = None
    rejected: str = ""


def bare_name(name: str) -> str:
    """The name of a file without the suffix of its compression; an archive's ends in .tar or .zip."""
    bare, suffix = os.path.splitext(name)
    return bare + ".tar" if suffix in _TAR_SUFFIXES else bare if suffix in _OPENERS else name


def members(path: str, file: IO[bytes]) -> Iterator[Member]:
    """The streams of an open file: itself, decompressed, or each member of an archive, itself decompressed.

    A stream has to be read before the next is asked for. Archives in archives are rejected.

    Raises:
        one of BROKEN, or an OSError without a number: a broken archive or compressed stream.
    """
    bare, stream = _decompressed(path, file)
    if bare.endswith(".tar"):
        yield from _tar(path, stream)
    elif bare.endswith(".zip") and stream is file:
        yield from _zip(path, stream)
    else:
        yield Member(path, bare, stream)


def _member(path: str, inner: str, stream: IO[bytes]) -> Member:
    bare, content = _decompressed(inner, stream)
    if bare.endswith((".tar", ".zip")):
        return Member(f"{path}:{inner}", bare, rejected="archive in an archive")
    return Member(f"{path}:{inner}", bare, content)


def _tar(path: str, stream: IO[bytes]) -> Iterator[Member]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictTarInfo) as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # which would grow with the archive
            if info.issparse():
                # Its holes are NULs, in a few bytes as many as are claimed.
                yield Member(f"{path}:{info.name}", info.name, rejected="binary")
            elif info.isfile():
                content = archive.extractfile(info)
                assert content is not None
                yield _member(path, info.name, content)
            elif not info.isdir():
                yield Member(f"{path}:{info.name}", info.name, rejected="not a file")
        rest: Any = archive.fileobj
        while data := rest.read(1 << 16):  # also lets gzip and xz check their sums
            if data.strip(b"\0"):
                raise tarfile.ReadError("more data after the end of the archive")


class _StrictTarInfo(tarfile.TarInfo):
    """A damaged or missing header is an error, which tarfile takes for the end of the archive; so is a huge one."""

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
        except (tarfile.HeaderError, ValueError) as error:  # a ValueError is of the numbers in extended headers
            raise tarfile.ReadError(f"a header is damaged: {error}") from None

    def _proc_gnusparse_10(self, member: tarfile.TarInfo, *_: object) -> None:
        """Marks a sparse file; tarfile would read the map of its holes, for ever if that is cut short."""
        member.sparse = [(0, 0)]  # type: ignore[assignment]  # typeshed knows no list


def _zip(path: str, stream: IO[bytes]) -> Iterator[Member]:
    with zipfile.ZipFile(stream) as archive:
        for info in archive.infolist():
            name = f"{path}:{info.filename}"
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                yield Member(name, info.filename, rejected="not a file")
            elif info.flag_bits & 1:
                yield Member(name, info.filename, rejected="encrypted")
            # zipfile unpacks the other kinds without a bound on memory.
            elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                yield Member(name, info.filename, rejected="unknown compression")
            else:
                with archive.open(info) as content:
                    yield _member(path, info.filename, content)


def _decompressed(name: str, stream: IO[bytes]) -> tuple[str, IO[bytes]]:
    """The `bare_name`, and the stream of what was compressed."""
    suffix = os.path.splitext(name)[1]
    opener = _OPENERS.get(_TAR_SUFFIXES.get(suffix, suffix))
    return bare_name(name), opener(stream) if opener else stream


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise UserError("reading .zst needs the package zstandard: pip install 'bert-jax[zstd]'") from None
    # Few bytes at once: four may stand for 128 KiB, and all that they stand for comes at once.
    return io.BufferedReader(_Unpacked(stream, lambda: _ZstdFrame(zstandard), 1 << 10), _UNPACKED)


class _ZstdFrame:
    """A frame, by the interface of the standard library's decompressors."""

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


class _Unpacked(io.RawIOBase):
    """The bytes of compressed streams, one after the other, and an error where one ends too early or is none.

    The libraries' own files end without a word at what is no stream if it comes after one.
    """

    def __init__(self, stream: IO[bytes], new: Callable[[], Any], at_once: int = 1 << 14):
        self._stream, self._new, self._at_once = stream, new, at_once
        self._decompressor: Any = None  # of the stream that has begun and not ended
        self._left = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, target: Any) -> int:
        """As in io.RawIOBase."""
        while not self._ready:
            data = b""
            if self._decompressor is None or self._decompressor.needs_input:
                data, self._left = self._left or self._stream.read(self._at_once), b""
                if not data and self._decompressor is not None:
                    raise EOFError("the compressed stream ends too early")
                if not data:
                    return 0
            if self._decompressor is None:
                data = data.lstrip(b"\0")  # between streams xz allows zeros
                if not data:
                    continue
                self._decompressor = self._new()
            self._ready = memoryview(self._decompressor.decompress(data, _UNPACKED))
            if self._decompressor.eof:
                self._left, self._decompressor = self._decompressor.unused_data, None
        size = min(len(target), len(self._ready))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


_UNPACKED = 1 << 16  # bytes at once
_XZ_MEMORY = 256 << 20  # bytes; `xz -9` wants 65 MiB, a header may ask for 4 GiB
_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".xz": lambda stream: io.BufferedReader(
        _Unpacked(stream, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)), _UNPACKED
    ),
    ".bz2": lambda stream: io.BufferedReader(_Unpacked(stream, bz2.BZ2Decompressor), _UNPACKED),
    ".zst": _open_zstd,
}
_TAR_SUFFIXES = {".tgz": ".gz", ".txz": ".xz", ".tbz2": ".bz2", ".tzst": ".zst"}
