"""What the readers of sources share: how inputs are read, a document as it lies there, its text, why there is none."""

from typing import NamedTuple

UNITS = ("auto", "file", "blank-line", "line")
ENCODING_ERRORS = ("reject", "replace")

LARGE = 4 << 20  # bytes; a text that is longer comes in pieces
PIECE = 1 << 20  # bytes of a piece at most
MAX_RECORD = 16 << 20  # bytes of a record, which has to be held whole


class Reading(NamedTuple):
    """How inputs are read."""

    documents: str = "auto"  # what a document of a text is: 'file' (as 'auto'), 'blank-line' or 'line'
    format: str = "auto"  # a row of `formats.FORMATS` for all inputs, or 'auto': each by its name
    field: str = "text"  # of records; dots go into objects that lie in objects
    encoding_errors: str = "reject"  # bytes that are not UTF-8 'reject' the document, or are 'replace'd by U+FFFD


DEFAULT = Reading()


class Raw(NamedTuple):
    """A document as it lies in the input, or the reason why it is none."""

    name: str  # file[:member][:line or number]
    data: bytes = b""
    format: str = "text"  # row of `formats.FORMATS` that converts it
    rejected: str = ""  # `data` is then b""
    bytes_read: int = 0  # of the inputs as they lie on disk, from the first on
    piece: int = 0  # of a text longer than LARGE, which was checked as a whole before its first piece
    last: bool = True  # False: another piece of the same document follows


class Document(NamedTuple):
    """A text with its name, or the reason why there is none."""

    name: str
    text: str
    rejected: str = ""


class RejectedError(Exception):
    """Why a document has no text: one of few short reasons, by which they are counted."""
