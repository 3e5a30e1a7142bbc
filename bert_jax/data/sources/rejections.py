"""Documents without text: counted by reason, and how to mend what most of them were left out for."""

import collections
import dataclasses
from collections.abc import Mapping

from bert_jax.data.sources.records import Document, Reading

_JSON = "JSON is read as an object a line, or as a file that is one list of objects; write it so"
HINTS = {
    "invalid UTF-8": "give UTF-8 text, or --encoding_errors replace",
    "binary": "give UTF-8 text",
    "empty": "give files with text in them",
    "no tokens": "the tokenizer knows nothing of this text",
    "broken JSON": _JSON,
    "not an object": _JSON,
    "no field": "a record without '{field}' has {fields}; name the field of the text with --field",
    "not a text": "'{field}' holds no text; name another field with --field",
}


@dataclasses.dataclass
class LeftOut:
    """The account of documents without text.

    Attributes:
        reasons: how many there are for each reason.
        fields: see `earlier`.
    """

    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    fields: str = ""

    def add(self, document: Document) -> None:
        """One more."""
        self.reasons[document.rejected] += 1
        self.fields = earlier(self.fields, document.fields)


def earlier(fields: str, others: str) -> str:
    """Of the fields of two records that have not the wanted one: whichever order they come in, the same are kept."""
    return min(filter(None, (fields, others)), default="")


def describe(reasons: Mapping[str, int]) -> str:
    """`2 binary, 1 empty`, the commonest first."""
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def commonest(reasons: Mapping[str, int]) -> str:
    """The reason that most documents were left out for; '' where there is none."""
    return max(sorted(reasons), key=lambda reason: reasons[reason], default="")


def hint(reasons: Mapping[str, int], fields: str, reading: Reading) -> str:
    """How to mend what most documents were left out for."""
    usual = "look at the input, and say with --format and --field what it is"
    return HINTS.get(commonest(reasons), usual).format(field=reading.field, fields=fields or "none")
