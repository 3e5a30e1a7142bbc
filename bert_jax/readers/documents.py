"""The types that all readers share: `ReadOptions`, `RawDocument`, `Document`, and the limits on their sizes."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError

DOCUMENT_UNITS = ("auto", "file", "blank-line", "line")
ENCODING_ERRORS = ("reject", "replace")

MAX_UNSPLIT_BYTES = 4 << 20  # of a text in one document; a longer text comes in pieces
MAX_PIECE_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20  # of a record, which is held in memory
MAX_UNPACKED_BYTES = 1 << 30  # of an input, unless a MAX_RATIO-th of that is on disk
MAX_RATIO = 100  # text has 3 to 10, logs up to 30; gzip can express 1,000, bzip2 and zstd much more
MAX_OBJECT_BYTES = 64 << 20  # of a JSON object whose lists hold the texts, which is held in memory

_MAX_NAMES, _MAX_NAME_LENGTH = 5, 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading inputs.

    Attributes:
        documents: unit of text that is a document: 'file' (the default, 'auto'), 'blank-line' (a paragraph) or 'line'.
        format: a row of `formats.table.FORMATS` for all inputs, or 'auto' if the name of each input decides.
        field: field of a record that holds the text. Dots lead into nested objects, `[]` leads into lists, and braces
        make a template of several fields; see `formats/fields.py`.
        encoding_errors: 'reject' rejects a document with bytes that cannot be decoded, 'replace' writes U+FFFD for
        them.
        encoding: encoding of text files; a file with the byte order mark of UTF-16 or UTF-32 does not need it.
        max_unpacked_bytes: limit on the unpacked size of a compressed input, unless MAX_RATIO times its size is more.
        members: pattern of the names of the archive members that are read.
        markup: markup of the text of a field, a row of `formats.table.MARKUPS`; the text is converted to plain text.
        stretch: two fractions of the bytes of an input; only documents that begin between them are read. For each input
        that `inputs.is_divisible`.
    """

    documents: str = "auto"
    format: str = "auto"
    field: str = "text"
    encoding_errors: str = "reject"
    encoding: str = "utf-8"
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES
    markup: str = "none"
    members: str = "*"
    stretch: tuple[float, float] = (0.0, 1.0)

    @property
    def decode_errors(self) -> str:
        """The argument `errors` of `bytes.decode`."""
        return "strict" if self.encoding_errors == "reject" else self.encoding_errors


DEFAULT = ReadOptions()


@dataclasses.dataclass(kw_only=True, slots=True)  # not frozen: `bytes_read` is set level by level, for each document
class RawDocument:
    """The bytes of a document before the extraction of its text, or the reason for its rejection.

    Attributes:
        name: file[:member][:line or number].
        data: b"" if `rejected` is set.
        format: row of `formats.table.FORMATS` that extracts the text.
        rejected: reason of the rejection.
        bytes_read: number of bytes on disk that were read so far, of all inputs.
        piece: index of a piece of a text that is longer than MAX_UNSPLIT_BYTES; the text was checked before piece 0.
        last: False if another piece of the same document follows.
        fields: as in `Document`.
        is_field: True if `data` is the text of a field.
    """

    name: str
    data: bytes = b""
    format: str = "text"
    rejected: str = ""
    bytes_read: int = 0
    piece: int = 0
    last: bool = True
    fields: str = ""
    is_field: bool = False


class Document(NamedTuple):
    """A text with its name, or the reason for its rejection.

    Attributes:
        name: as in `RawDocument`.
        text: "" if `rejected` is set.
        rejected: reason of the rejection.
        fields: names of the fields of a record without the requested field.
    """

    name: str
    text: str
    rejected: str = ""
    fields: str = ""


class Unpacked:
    """Counter of the unpacked bytes of an input, with a limit."""

    def __init__(self, packed_bytes: int, max_bytes: int):
        self._packed_bytes, self._limit = packed_bytes, max(max_bytes, MAX_RATIO * packed_bytes)
        self._count = 0

    def add(self, num_bytes: int) -> None:
        """Count bytes; raise UserError if the sum exceeds the limit."""
        self._count += num_bytes
        if self._count > self._limit:
            raise UserError(
                f"its {self._packed_bytes:,} bytes unpack to more than {self._limit:,}; leave it out if it is not "
                "yours, otherwise give a larger --max_unpacked_bytes"
            )


class RejectedError(Exception):
    """A document without text. The message is the short reason; rejected documents are counted by reason."""

    def __init__(self, reason: str, fields: str = ""):
        super().__init__(reason)
        self.fields = fields


def format_names(names: Sequence[str]) -> str:
    """Return the names of columns or fields for a message: at most five names, and long names are cut."""
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_NAMES]) + rest
