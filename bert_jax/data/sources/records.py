"""What the readers of sources share: how inputs are read, a document as it lies there, its text, why there is none."""

from collections.abc import Sequence
from typing import NamedTuple

UNITS = ("auto", "file", "blank-line", "line")
ENCODING_ERRORS = ("reject", "replace")

LARGE = 4 << 20  # bytes; a text that is longer comes in pieces
PIECE = 1 << 20  # bytes of a piece at most
MAX_RECORD = 16 << 20  # bytes of a record, which has to be held whole

_LISTED, _LISTED_CHARACTERS = 5, 40


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
    fields: str = ""  # that its record has, where it has not the one that was asked for


class RejectedError(Exception):
    """Why a document has no text: one of few short reasons, by which they are counted; the fields of its record."""

    def __init__(self, reason: str, fields: str = ""):
        super().__init__(reason)
        self.fields = fields


def listed(names: Sequence[str]) -> str:
    """The names of columns or fields, as a message may show them: few of many, and long ones cut."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(repr(name[:_LISTED_CHARACTERS]) for name in names[:_LISTED]) + more
