"""Documents of a corpus that another corpus has, too: by the signatures of both, so their tokenizers may differ."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.data.preparation.duplicates import decisions
from bert_jax.data.preparation.duplicates.signatures import Signatures
from bert_jax.data.preparation.growing.signatures import named_signatures


class Comparison(NamedTuple):
    """Of `documents` of a corpus so many are exact and near copies of documents of another.

    `near` is None where one of them was not prepared with `--deduplicate near`, so that near copies are not known.
    """

    documents: int
    exact: int
    near: int | None


def compare_corpora(corpus: str, other: str) -> Comparison:
    """Count the documents of a corpus that repeat a document of another one.

    Args:
        corpus, other: directories, each with @ and the beginning of a fingerprint for another snapshot than the newest.

    Raises:
        UserError: as `read_manifest` and `stored_signatures`.
    """
    own, others = named_signatures(corpus).signatures, named_signatures(other).signatures
    near = _has_bands(own) and _has_bands(others)
    found = decisions.decide(own, [0] * len(own), near, {other: decisions.Stored(others, 0)})
    first = int(found.partitions[0])
    copy_of, exact = found.copy_of[first:], found.exact[first:]
    repeats = (copy_of >= 0) & (copy_of < first)
    return Comparison(len(copy_of), int((repeats & exact).sum()), int((repeats & ~exact).sum()) if near else None)


def format_comparison(found: Comparison, corpus: str, other: str) -> str:
    """Return a line about a comparison."""
    near = "near copies are not known, as one was not prepared with --deduplicate near"
    if found.near is not None:
        near = f"{found.near:,} are near copies ({found.near / max(1, found.documents):.2%})"
    return (
        f"{corpus}: of {found.documents:,} documents {found.exact:,} are exact copies of documents of {other} "
        f"({found.exact / max(1, found.documents):.2%}); {near}"
    )


def _has_bands(signatures: Sequence[Signatures]) -> bool:
    return any(one.rows["bands"].any() for one in signatures)
