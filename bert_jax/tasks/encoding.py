"""Texts -> tokens, in batches, each different text once: questions share contexts, and pairs share sentences."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Encoded = TypeVar("Encoded")
CHUNK = 1_000  # texts that the library is given at once, to bound its memory


def encode_distinct(texts: Iterable[str], encode: Callable[[Sequence[str]], list[Encoded]]) -> dict[str, Encoded]:
    """Text -> what `encode` makes of it in a batch."""
    distinct = list(dict.fromkeys(texts))
    chunks = (distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK))
    return {text: found for chunk in chunks for text, found in zip(chunk, encode(chunk), strict=True)}
