"""Files, directories, globs, archives and `python-docs` -> documents, one at a time."""

import bz2
import contextlib
import glob
import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from bert_jax.data import python_docs
from bert_jax.errors import UserError

PYTHON_DOCS = "python-docs"
UNITS = ("file", "blank-line", "line")
ENCODING_ERRORS = ("reject", "replace")


class Document(NamedTuple):
    """A text with its name, or the reason why there is none."""

    name: str
    text: str
    rejected: str = ""  # 'binary', 'invalid UTF-8', 'empty' or 'not a file'; `text` is then empty
    bytes_read: int = 0  # of the inputs as they lie on disk, from the first on


def documents(inputs: Sequence[str], unit: str = "file", encoding_errors: str = "reject") -> Iterator[Document]:
    """Every document of the inputs, in a fixed order; rejected ones too, with their reason.

    Args:
        inputs: files, directories (all files below, sorted), globs, or 'python-docs'. A file may be compressed
            (.gz, .xz, .bz2, .zst) or a tar archive, itself and its members compressed or not. A file that is
            named twice is read once.
        unit: what a document is: a 'file', the text between empty lines ('blank-line'), or a 'line'. The last two
            take the memory of one document.
        encoding_errors: bytes that are not UTF-8 'reject' the document, or are 'replace'd by U+FFFD.

    Raises:
        UserError: an input that matches nothing, cannot be read, or is a broken archive.
    """
    for name, choices in ((unit, UNITS), (encoding_errors, ENCODING_ERRORS)):
        if name not in choices:
            raise UserError(f"'{name}' is none of {', '.join(choices)}")
    return _documents(find_files(inputs), unit, encoding_errors)


def find_files(inputs: Sequence[str]) -> list[str]:
    """The files that the inputs name, in order, each once; 'python-docs' stands for itself.

    Raises:
        UserError: an input that matches nothing.
    """
    found: dict[str, str] = {}
    for item in inputs:
        for path in [item] if item == PYTHON_DOCS else _expand(item):
            found.setdefault(os.path.realpath(path), path)
    if not found:
        raise UserError("no input: name files, directories, globs or python-docs with --input")
    return list(found.values())


def total_bytes(files: Iterable[str]) -> int:
    """Size on disk of what `find_files` found; 'python-docs' counts nothing."""
    return sum(os.path.getsize(path) for path in files if path != PYTHON_DOCS)


def _documents(files: Sequence[str], unit: str, encoding_errors: str) -> Iterator[Document]:
    before = 0
    for path in files:
        if path == PYTHON_DOCS:
            for name, text in python_docs.documents():
                for document in _split(name, io.BytesIO(text.encode()), unit, encoding_errors):
                    yield document._replace(bytes_read=before)
            continue
        with _naming(path), open(path, "rb") as raw:
            for name, stream in _members(path, raw):
                if stream is None:
                    yield Document(name, "", "not a file", before + raw.tell())
                    continue
                for document in _split(name, stream, unit, encoding_errors):
                    yield document._replace(bytes_read=before + raw.tell())
            before += raw.seek(0, io.SEEK_END)


def _expand(item: str) -> list[str]:
    """The regular files of a file name, directory or glob, sorted."""
    places = [item] if os.path.exists(item) else sorted(glob.glob(item, recursive=True))
    if not places:
        kind = "no file matches this pattern" if glob.has_magic(item) else "no such file or directory"
        raise UserError(f"{item}: {kind}; check --input (quote patterns, or let the shell expand them)")
    files = []
    for place in places:
        if os.path.isdir(place):
            below = [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names]
            files += sorted(path for path in below if os.path.isfile(path))
        elif os.path.isfile(place):
            files.append(place)
        else:
            raise UserError(f"{place}: not a regular file; give files or directories")
    if not files:
        raise UserError(f"{item}: holds no file")
    return files


def _members(path: str, raw: IO[bytes]) -> Iterator[tuple[str, IO[bytes] | None]]:
    """The byte streams of a file: itself decompressed, or each member of an archive; None for a link or device."""
    bare, stream = _decompressed(path, raw)
    if not bare.endswith(".tar"):
        yield path, stream
        return
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = f"{path}:{member.name}"
            if member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                yield name, _decompressed(member.name, content)[1]
            elif not member.isdir():
                yield name, None


def _decompressed(name: str, stream: IO[bytes]) -> tuple[str, IO[bytes]]:
    """The name without the suffix of its compression, and the stream of what was compressed."""
    bare, suffix = os.path.splitext(name)
    if suffix == ".tgz":
        return bare + ".tar", _OPENERS[".gz"](stream)
    if suffix in _OPENERS:
        return bare, _OPENERS[suffix](stream)
    return name, stream


def _open_zstd(stream: IO[bytes]) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise UserError("reading .zst needs the package zstandard: pip install 'bert-jax[zstd]'") from None
    return io.BufferedReader(_Zstd(stream, zstandard.ZstdDecompressor().decompressobj))


class _Zstd(io.RawIOBase):
    """Decompressed bytes, and an EOFError where the file ends too early, which zstandard's own reader keeps quiet."""

    def __init__(self, stream: IO[bytes], new_frame: Callable):
        self._stream, self._new_frame = stream, new_frame
        self._frame: Any = None
        self._left = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, target: Any) -> int:
        """As in io.RawIOBase."""
        while not self._ready:
            data = self._left or self._stream.read(1 << 16)
            self._left = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("the compressed stream ends too early")
                return 0
            self._frame = self._frame or self._new_frame()
            self._ready = memoryview(self._frame.decompress(data))
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        size = min(len(target), len(self._ready))
        target[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".zst": _open_zstd,
}


def _split(name: str, stream: IO[bytes], unit: str, encoding_errors: str) -> Iterator[Document]:
    """The documents of one byte stream; a stream without any gives one that is rejected as empty."""
    empty = True
    for where, data in _UNITS[unit](stream):
        empty = False
        yield _decode(name + where, data, encoding_errors)
    if empty:
        yield Document(name, "", "empty")


def _whole(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    yield "", stream.read()


def _paragraphs(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    lines: list[bytes] = []
    start = 1
    for number, line in enumerate(stream, 1):
        if line.strip():
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield f":{start}", b"".join(lines)
            lines = []
    if lines:
        yield f":{start}", b"".join(lines)


def _lines(stream: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    return ((f":{number}", line) for number, line in enumerate(stream, 1) if line.strip())


_UNITS = {"file": _whole, "blank-line": _paragraphs, "line": _lines}


def _decode(name: str, data: bytes, encoding_errors: str) -> Document:
    if b"\0" in data:
        return Document(name, "", "binary")
    try:
        text = data.decode("utf-8-sig", "strict" if encoding_errors == "reject" else "replace")
    except UnicodeDecodeError:
        return Document(name, "", "invalid UTF-8")
    if not text.strip():
        return Document(name, "", "empty")
    return Document(name, text.replace("\r\n", "\n"))


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Says in one line which file cannot be read."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"{path}: cannot be read ({error.strerror}); mend it or leave it out") from None
        # An OSError without a number is from gzip or bz2; zstandard is optional, so its error is known by name.
        known = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)
        if not isinstance(error, known) and type(error).__name__ != "ZstdError":
            raise
        raise UserError(f"{path}: broken archive ({error}); fetch it again or leave it out") from None
