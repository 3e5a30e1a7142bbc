"""The types that all readers share: `ReadOptions`, `RawDocument`, `Document`, and the limits on their sizes."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError

DOCUMENT_UNITS = ("auto", "file", "blank-line", "line")
ENCODING_ERRORS = ("reject", "replace")

MAX_UNSPLIT_BYTES = 4 << 20  # size of the longest document that is not split into pieces
MAX_PIECE_BYTES = 1 << 20
MAX_RECORD_BYTES = 16 << 20  # size of the largest record; a record is held in memory
MAX_UNPACKED_BYTES = 1 << 30  # unpacked size that each input may have; see `ReadOptions.max_unpacked_bytes`
# Limit on the ratio of unpacked to packed size. The ratio of text is 3 to 10, and of logs up to 30. gzip can reach
# 1,000, and bzip2 and zstd more than 1,000.
MAX_RATIO = 100
MAX_OBJECT_BYTES = 64 << 20  # size of the largest JSON object with texts in lists; the object is held in memory

_MAX_NAMES, _MAX_NAME_LENGTH = 5, 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading inputs.

    Attributes:
        documents: unit of text that becomes a document: 'file', 'blank-line' (a paragraph) or 'line'; the default,
            'auto', means 'file'.
        format: a key of `formats.table.FORMATS` for all inputs; with 'auto', the name of each input decides the format
            of the input.
        field: field of a record that holds the text. Dots lead into nested objects, `[]` leads into lists, and braces
        make a template of several fields; see `formats/fields.py`.
        encoding_errors: for bytes that cannot be decoded, 'reject' rejects the document, and 'replace' writes U+FFFD.
        encoding: encoding of text files; a file with the byte order mark of UTF-16 or UTF-32 does not need this option.
        max_unpacked_bytes: limit on the unpacked size of a compressed input; an input may always unpack to MAX_RATIO
        times its packed size.
        members: pattern of the names of the archive members that are read.
        markup: markup of the text of a field, a row of `formats.table.MARKUPS`; the text is converted to plain text.
        stretch: beginning and end of a byte range, as fractions of an input; only documents that begin in the range are
        read. The option `stretch` applies to inputs for which `inputs.is_divisible` is True.
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


@dataclasses.dataclass(kw_only=True, slots=True)  # not frozen, because several readers set `bytes_read` of a document
class RawDocument:
    """The bytes of a document before the extraction of its text, or the reason for its rejection.

    Attributes:
        name: file[:member][:line or number], for messages.
        data: bytes of the document; b"" if `rejected` is set.
        format: row of `formats.table.FORMATS` that extracts the text.
        rejected: reason of the rejection.
        bytes_read: number of bytes on disk that were read so far from all inputs.
        piece: index of this piece, if the document is longer than MAX_UNSPLIT_BYTES and is read in pieces; else 0. A
            document in pieces is completely checked for UTF-8 and NUL before its first piece is read.
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
        text: text of the document; "" if `rejected` is set.
        rejected: reason of the rejection.
        fields: if the record lacks the requested field, the names of the fields that the record has.
    """

    name: str
    text: str
    rejected: str = ""
    fields: str = ""


class UnpackedByteCounter:
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
    """The rejection of a document. The message is a short reason, and rejected documents are counted by reason."""

    def __init__(self, reason: str, fields: str = ""):
        super().__init__(reason)
        self.fields = fields


def describe_field_names(names: Sequence[str]) -> str:
    """Return the names of columns or fields for a message: at most five names, and long names are cut."""
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_NAMES]) + rest
