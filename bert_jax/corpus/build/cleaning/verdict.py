"""`Removed`, the verdict of a rule about a document that leaves the corpus."""

from typing import NamedTuple


class Removed(NamedTuple):
    """The verdict that a document is removed.

    Attributes:
        evidence: the reason for the removal of a text, in words for the user, such as 'de with a probability of 0.99'.
        group: a kind of evidence that is counted separately, such as a language.
    """

    evidence: str
    group: str = ""
