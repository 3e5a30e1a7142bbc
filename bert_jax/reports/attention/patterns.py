"""The attention patterns of Clark et al. 2019, and the fraction of each pattern in the attention of a head."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NAMED_FROM = 0.5  # a pattern names the head if it has at least this fraction of the attention
BROAD_FROM = 0.8  # a head is broad if its entropy is at least this fraction of the entropy of equal weights

Special = dict[str, int]  # "cls" and "sep" -> ids

# Pattern -> function (query positions, key positions, key ids, special ids) -> True for the pairs of the pattern.
PATTERNS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, Special], np.ndarray]] = {
    "next token": lambda query, key, ids, special: key == query + 1,
    "previous token": lambda query, key, ids, special: key == query - 1,
    "itself": lambda query, key, ids, special: key == query,
    "[SEP]": lambda query, key, ids, special: ids == special["sep"],
    "[CLS]": lambda query, key, ids, special: ids == special["cls"],
}


class HeadPattern(NamedTuple):
    """The name of a head's pattern in a text, the fraction of each pattern (0 to 1), and the head's entropy in nats."""

    name: str
    fractions: dict[str, float]
    entropy: float


def head_pattern(weights: np.ndarray, ids: np.ndarray, special: Special, first: int = 0) -> HeadPattern:
    """Return the pattern of a head in a text.

    The fraction of a pattern is the attention to the keys of the pattern, averaged over the queries for which the
    pattern has a key. The name of the head is the pattern with the largest fraction, if this fraction is at least
    `NAMED_FROM`. Otherwise the name is "broad" if the entropy is close to the entropy of equal weights, else "mixed".

    Args:
        weights: float `[queries, keys]`; each row sums to 1.
        ids: token ids of the keys, int `[keys]`.
        special: ids of [CLS] and [SEP].
        first: index of the first query among the tokens.
    """
    grid = np.indices(weights.shape)
    query, key = grid[0] + first, grid[1]
    fractions = {}
    for name, pattern in PATTERNS.items():
        matches = pattern(query, key, ids[key], special)
        has_match = matches.any(-1)
        fractions[name] = float((weights * matches).sum(-1)[has_match].mean()) if has_match.any() else 0.0
    positive = np.maximum(weights, 1e-30)
    entropy = float(-(weights * np.log(positive)).sum(-1).mean())
    num_keys = np.maximum((weights > 0).sum(-1), 2)  # a local head reads only a window
    largest = max(fractions, key=lambda name: fractions[name])
    broad = entropy >= BROAD_FROM * float(np.log(num_keys).mean())
    name = largest if fractions[largest] >= NAMED_FROM else "broad" if broad else "mixed"
    return HeadPattern(name, fractions, entropy)
