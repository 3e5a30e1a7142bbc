"""The sample of each source on which a vocabulary is trained: its size and its pieces.

A source of n characters gets a fraction of the sample in proportion to n ** smoothing (Conneau et al. 2020, XLM-R).
With a smoothing below 1, a small source gets more than in proportion to its size. A hash of each piece of text decides
whether the piece is in the sample, so the order and the number of files have no effect.
"""

import collections
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError


class CharacterCounts(NamedTuple):
    """The number of characters of a source, and the count of each character."""

    characters: int
    frequency: Mapping[str, int]  # character -> count


def count_characters(pieces: Iterable[str]) -> CharacterCounts:
    """Count the characters of a text that is given in pieces."""
    frequency: collections.Counter[str] = collections.Counter()
    for piece in pieces:
        frequency.update(piece)
    return CharacterCounts(frequency.total(), frequency)


def check_sampling_arguments(
    num_sources: int, smoothing: float, weights: Sequence[float] | None, sample_characters: int | None
) -> None:
    """Raise UserError for arguments of `num_uses_per_source` that are out of range."""
    if not 0 <= smoothing <= 1:
        raise UserError(f"--smoothing {smoothing:g}: give 0 (equal fractions) to 1 (in proportion to size)")
    if weights is not None and len(weights) != num_sources:
        raise UserError(f"--weights has {len(weights)} numbers for {num_sources} sources (--input); give one each")
    if weights is not None and smoothing != 1:
        raise UserError("--weights and --smoothing both set the fraction of each source; give one of them")
    if num_sources == 1 and smoothing != 1:
        raise UserError("--smoothing has no effect on one source; repeat --input for each language")
    if any(not 0 < weight < float("inf") for weight in weights or ()):
        raise UserError(f"--weights {' '.join(f'{weight:g}' for weight in weights or ())}: each must be above 0")
    if sample_characters is not None and sample_characters < 1:
        raise UserError(
            f"--sample_characters {sample_characters}: give a number of characters; leave it out to train on all"
        )


def num_uses_per_source(
    sizes: Sequence[int],
    smoothing: float = 1.0,
    weights: Sequence[float] | None = None,
    sample_characters: int | None = None,
) -> list[float]:
    """Return how many times the text of each source is used for training; 1.0 means once.

    Args:
        sizes: number of characters of each source, at least 1.
        smoothing: exponent of the sizes; 1 uses each source in proportion to its size, 0 uses all sources equally.
        weights: weight of each source; if given, each source is used in proportion to its weight.
        sample_characters: total number of characters to use, at most the available text; None: the available text.
    """
    available = sum(sizes)
    total = min(available if sample_characters is None else sample_characters, available)
    if smoothing == 1 and not weights:
        return [total / available] * len(sizes)
    wanted = weights or [size**smoothing for size in sizes]
    return [total * want / sum(wanted) / size for want, size in zip(wanted, sizes, strict=True)]


def num_uses_of_piece(piece: str, rate: float) -> int:
    """Return how many times a piece of text is used, so that its source is used `rate` times on average."""
    times, part = divmod(rate, 1.0)
    return int(times) + (part > 0 and hash_fraction(piece) < part)


def hash_fraction(piece: str) -> float:
    """Return a number in [0, 1) that is a hash of a piece of text."""
    digest = hashlib.blake2b(piece.encode(), digest_size=8, person=b"vocabulary").digest()
    return (int.from_bytes(digest, "big") >> 11) * 2.0**-53
