"""Which part of the text of several sources a vocabulary is trained on, and how often.

Shares as in Conneau et al. 2020 (XLM-R): a source of n characters has one in proportion to n ** smoothing, so that the
small ones are heard. A hash of the text decides what is taken: the order and the number of files change nothing.
"""

import collections
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError


class Survey(NamedTuple):
    """What a source holds."""

    characters: int
    counts: Mapping[str, int]  # how often each character is there


def survey(pieces: Iterable[str]) -> Survey:
    """Counts the characters of a text in pieces."""
    counts: collections.Counter[str] = collections.Counter()
    for piece in pieces:
        counts.update(piece)
    return Survey(counts.total(), counts)


def check(sources: int, smoothing: float, weights: Sequence[float], sample_characters: int) -> None:
    """Raises UserError for numbers that `rates` cannot go by."""
    if not 0 <= smoothing <= 1:
        raise UserError(f"--smoothing {smoothing:g}: give 0 (equal shares) to 1 (shares as large as the sources)")
    if weights and len(weights) != sources:
        raise UserError(f"--weights has {len(weights)} numbers for {sources} sources (--input); give one each")
    if weights and smoothing != 1:
        raise UserError("--weights and --smoothing both decide the shares; give one of them")
    if any(not 0 < weight < float("inf") for weight in weights):
        raise UserError(f"--weights {' '.join(f'{weight:g}' for weight in weights)}: each must be above 0")
    if sample_characters < 0:
        raise UserError(
            f"--sample_characters {sample_characters}: give a number of characters, or 0 for all of the text"
        )


def rates(sizes: Sequence[int], smoothing: float, weights: Sequence[float], sample_characters: int) -> list[float]:
    """How often each source's text is to be taken; 1.0 is once.

    Args:
        sizes: characters of each source, none 0.
        smoothing: 1 leaves shares as large as the sources, 0 makes them equal.
        weights: shares in proportion to these instead; empty for none.
        sample_characters: taken in all, but never more than there are; 0 for as many as there are.
    """
    there = sum(sizes)
    total = min(sample_characters or there, there)
    if smoothing == 1 and not weights:
        return [total / there] * len(sizes)
    wanted = weights or [size**smoothing for size in sizes]
    return [total * want / sum(wanted) / size for want, size in zip(wanted, sizes, strict=True)]


def copies(piece: str, rate: float) -> int:
    """How often this piece is taken so that a source is taken `rate` times."""
    whole, part = divmod(rate, 1.0)
    return int(whole) + (part > 0 and fraction(piece) < part)


def fraction(piece: str) -> float:
    """A number in [0, 1) that the text alone decides."""
    digest = hashlib.blake2b(piece.encode(), digest_size=8, person=b"vocabulary").digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53
