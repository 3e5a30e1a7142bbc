"""Documents of text from byte streams: files, paragraphs or lines. Long documents come in pieces."""

import codecs
import contextlib
import functools
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from bert_jax.errors import writing
from bert_jax.readers.documents import MAX_PIECE_BYTES, MAX_UNSPLIT_BYTES, RawDocument, ReadOptions
from bert_jax.readers.rows import discard_rest_of_stream

_DocumentPart = tuple[str, bytes, bool]  # (':line' where the document begins, next bytes, whether the document ends)

# Patterns of the ends of a piece, the best pattern first. The last match in the second half of the window is used.
_ENDS = (
    re.compile(rb"\n[ \t\r]*\n+"),
    re.compile(rb"\n"),
    re.compile(rb"[.!?][\"')\]]*[ \t]|" + "|".join("。！？।۔").encode()),  # noqa: RUF001
    re.compile(rb"[ \t]"),
)
# The first line of a code block of Markdown, or its last line.
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)


def read_text_documents(
    name: str, stream: IO[bytes], options: ReadOptions, format_name: str, in_pieces: bool = True
) -> Iterator[RawDocument]:
    """Yield the documents of a text stream, in order; an empty stream is a rejected document.

    A document of more than MAX_UNSPLIT_BYTES is written to a temporary file, checked for UTF-8 and NUL, and comes in
    pieces. For formats whose parts cannot be read separately, `in_pieces` is False, and a document of more than
    MAX_UNSPLIT_BYTES is rejected as too large.
    """
    empty = True
    buffer = _DocumentBuffer(format_name, options.decode_errors, in_pieces)
    try:
        for where, data, ends in _DOCUMENT_PARTS[options.documents](stream):
            buffer.add(data)
            if ends:
                empty = False
                yield from buffer.documents(name + where)
                buffer = _DocumentBuffer(format_name, options.decode_errors, in_pieces)
    finally:
        buffer.close()
    if empty:
        yield RawDocument(name=name, rejected="empty")


def read_bounded_document(name: str, stream: IO[bytes], format_name: str, max_bytes: int) -> RawDocument:
    """Return the content of a stream as a document; an empty document, or a document above `max_bytes`, is rejected."""
    data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        discard_rest_of_stream(stream)
        return RawDocument(name=name, rejected="too large")
    if not data.strip():
        return RawDocument(name=name, rejected="empty")
    return RawDocument(name=name, data=data, format=format_name)


class _DocumentBuffer:
    """Buffer of the bytes of a document: in memory, or in a temporary file for a long document."""

    def __init__(self, format_name: str, decode_errors: str, in_pieces: bool):
        self._format, self._errors = format_name, decode_errors
        self._reason_if_long = "" if in_pieces else "too large"
        self._reason = ""
        self._parts: list[bytes] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._blank = True

    def close(self) -> None:
        """Delete the temporary file."""
        if self._file is not None:
            self._file.close()

    def add(self, data: bytes) -> None:
        """Append bytes to the document."""
        self._size += len(data)
        if self._file is None:
            self._parts.append(data)
            if self._size > MAX_UNSPLIT_BYTES:
                self._reason = self._reason_if_long
                with _writing_temporary_file():
                    self._file = tempfile.TemporaryFile()  # noqa: SIM115  # close() is below
                self._decoder = codecs.getincrementaldecoder("utf-8-sig")(self._errors)
                for part in self._parts:
                    self._spool(part)
                self._parts = []
        else:
            self._spool(data)

    def _spool(self, data: bytes) -> None:
        """Append bytes to the temporary file, and check the bytes."""
        if self._reason:
            return
        if b"\0" in data:
            self._reason = "binary"
            return
        self._check_utf8_and_blank(data)
        assert self._file is not None
        with _writing_temporary_file():
            self._file.write(data)

    def _check_utf8_and_blank(self, data: bytes, final: bool = False) -> None:
        """Record whether all bytes so far are UTF-8, and whether all bytes are blank."""
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError:
            self._reason = self._reason or "invalid UTF-8"
        else:
            self._blank = self._blank and (not text or text.isspace())

    def documents(self, name: str) -> Iterator[RawDocument]:
        """Yield the document, in pieces if it is long, and delete the temporary file."""
        if self._file is None:
            yield RawDocument(name=name, data=b"".join(self._parts), format=self._format)
            return
        if not self._reason:
            self._check_utf8_and_blank(b"", final=True)
        reason = self._reason or ("empty" if self._blank else "")
        if reason:
            yield RawDocument(name=name, format=self._format, rejected=reason)
        else:
            yield from self._pieces(name)
        self.close()

    def _pieces(self, name: str) -> Iterator[RawDocument]:
        """Yield the pieces of the document in the temporary file."""
        assert self._file is not None
        with _writing_temporary_file():  # seeking writes the buffered bytes to the file
            self._file.seek(0)
        num_left, window, beginning = self._size, b"", b""
        next_beginning = _NEXT_BEGINNINGS.get(self._format)
        piece = 0
        while num_left:
            window += self._file.read(MAX_PIECE_BYTES - len(window))
            end = len(window) if len(window) == num_left else _piece_end(window)
            num_left -= end
            data = beginning + window[:end]
            yield RawDocument(name=name, data=data, format=self._format, piece=piece, last=not num_left)
            if next_beginning:
                beginning = next_beginning(data.decode("utf-8", "replace")).encode()
            window, piece = window[end:], piece + 1


def fence_of_unfinished_code(text: str) -> str:
    """Return the line to put before the text that follows if Markdown ends inside a code block, else ''."""
    fence = ""
    for match in _FENCE.finditer(text):
        marks, rest = match.groups()
        if not fence:
            fence = "" if marks[0] == "`" and "`" in rest else marks
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{fence}\n" if fence else ""


# Format -> function from the text of a piece to the text that the next piece needs before it.
_NEXT_BEGINNINGS: dict[str, Callable[[str], str]] = {"markdown": fence_of_unfinished_code}


def copy_to_temporary_file(stream: IO[bytes]) -> IO[bytes]:
    """Return a temporary file with the rest of a stream, for a reader that must seek; the caller closes the file.

    Raises:
        UserError: the directory of temporary files cannot be written. Errors of reading the stream pass unchanged.
    """
    with _writing_temporary_file():
        file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes the file
    try:
        while data := stream.read(1 << 20):
            with _writing_temporary_file():
                file.write(data)
        with _writing_temporary_file():
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _writing_temporary_file() -> contextlib.AbstractContextManager[None]:
    return writing(tempfile.gettempdir(), "make room, or set TMPDIR to a directory with room for the longest text")


def _piece_end(window: bytes) -> int:
    """Return the index in the window at which the next piece ends; the index is in the second half of the window."""
    half = len(window) // 2
    for pattern in _ENDS:
        ends = [match.end() for match in pattern.finditer(window, half)]
        if ends:
            return ends[-1]
    # The end is between characters: a byte 10xxxxxx continues a character, and no character has more than four bytes.
    return next((end for end in range(len(window) - 1, len(window) - 5, -1) if window[end] & 0xC0 != 0x80), len(window))


def _split_whole_file(stream: IO[bytes]) -> Iterator[_DocumentPart]:
    """Yield the parts of a stream that is a single document."""
    while data := stream.read(MAX_PIECE_BYTES):
        yield "", data, False
    yield "", b"", True


def _split_at_lines(stream: IO[bytes]) -> Iterator[_DocumentPart]:
    """Yield the parts of the documents of a stream; each line is a document."""
    where, ends = "", True
    for line_number, data, begins, ends in _numbered_line_parts(stream):
        if data.strip() or not (begins and ends):
            where = f":{line_number}"
            yield where, data, ends
    if not ends:
        yield where, b"", True


def _split_at_blank_lines(stream: IO[bytes]) -> Iterator[_DocumentPart]:
    """Yield the parts of the documents of a stream; each paragraph is a document, and empty lines end a paragraph."""
    where = ""
    for line_number, data, begins, ends in _numbered_line_parts(stream):
        if begins and ends and not data.strip():
            if where:
                yield where, b"", True
            where = ""
        else:
            where = where or f":{line_number}"
            yield where, data, False
    if where:
        yield where, b"", True


class _LinePart(NamedTuple):
    """A line, or a part of a long line."""

    line_number: int
    data: bytes
    begins_line: bool
    ends_line: bool


def _numbered_line_parts(stream: IO[bytes]) -> Iterator[_LinePart]:
    """Yield the lines of a stream with their numbers; a long line comes in several parts."""
    make: Callable[[tuple[int, bytes, bool, bool]], _LinePart] = functools.partial(tuple.__new__, _LinePart)
    line_number, begins = 1, True
    while data := stream.readline(MAX_PIECE_BYTES):
        ends = data.endswith(b"\n") or len(data) < MAX_PIECE_BYTES
        yield make((line_number, data, begins, ends))  # faster than a call of the class, and texts have many lines
        line_number, begins = line_number + ends, ends


_DOCUMENT_PARTS: dict[str, Callable[[IO[bytes]], Iterator[_DocumentPart]]] = {
    "auto": _split_whole_file,
    "file": _split_whole_file,
    "blank-line": _split_at_blank_lines,
    "line": _split_at_lines,
}
