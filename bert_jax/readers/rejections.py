"""Counts of documents without text by reason, and a hint about the most common reason."""

import collections
import dataclasses
from collections.abc import Mapping

from bert_jax.readers.documents import Document, ReadOptions

_JSON = "write JSON as one object per line, or as a file that is one object or one list of objects"
HINTS = {
    "invalid UTF-8": "give UTF-8 text, name another encoding with --encoding, or give --encoding_errors replace",
    "binary": "give UTF-8 text (save a document of an office program as text)",
    "empty": "give files with text in them",
    "hidden": "unpack the archive, and name the hidden files",
    "no tokens": "give a tokenizer that was trained on such text",
    "broken JSON": _JSON,
    "NaN or Infinity": "JSON has neither NaN nor Infinity; write null in place of such numbers",
    "not an object": _JSON,
    "no main text": "give pages with text, or read all their text as a field with --markup html",
    "no text": "recognize the text of scanned pages with OCR",
    "no field": "a record without '{field}' has {fields}; give the field of the text with --field",
    "not a list": "'{field}' leads through something that is no list; write [] after the names of lists only",
    "not a text": "'{field}' holds no text; give another field with --field",
}


@dataclasses.dataclass
class Rejections:
    """Counts of documents without text.

    Attributes:
        reasons: number of documents for each reason.
        fields: the alphabetically first list of the fields of a rejected document; "" for no list.
    """

    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    fields: str = ""

    def add(self, document: Document) -> None:
        """Count a rejected document."""
        self.reasons[document.rejected] += 1
        self.fields = min(filter(None, (self.fields, document.fields)), default="")


def describe_rejections(reasons: Mapping[str, int]) -> str:
    """Return counts with reasons, such as '2 binary, 1 empty', the most common reason first."""
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def most_common_reason(reasons: Mapping[str, int]) -> str:
    """Return the most common reason for rejections; '' without rejections."""
    return max(sorted(reasons), key=lambda reason: reasons[reason], default="")


def hint_for_most_common_reason(reasons: Mapping[str, int], fields: str, options: ReadOptions) -> str:
    """Return advice about the most common reason for rejections."""
    usual = "look at the input, and describe it with --format and --field"
    return HINTS.get(most_common_reason(reasons), usual).format(field=options.field, fields=fields or "none")
