"""What a head reads: the patterns that Clark et al. 2019 ("What Does BERT Look At?") name, as figures."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NAMED_FROM = 0.5  # of the attention, from which a head has the name of a pattern
BROAD_FROM = 0.8  # of the entropy of reading every token alike

Special = dict[str, int]  # "cls" and "sep" -> ids

# Pattern -> (column of the query, column of the key, id of the key, special ids) -> whether the query reads it so.
PATTERNS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, Special], np.ndarray]] = {
    "next token": lambda query, key, ids, special: key == query + 1,
    "previous token": lambda query, key, ids, special: key == query - 1,
    "itself": lambda query, key, ids, special: key == query,
    "[SEP]": lambda query, key, ids, special: ids == special["sep"],
    "[CLS]": lambda query, key, ids, special: ids == special["cls"],
}


class Reading(NamedTuple):
    """What a head reads in a text: its name, the fraction of each pattern from 0 to 1, and the entropy in nats."""

    name: str
    fractions: dict[str, float]
    entropy: float


def reading_of(weights: np.ndarray, ids: np.ndarray, special: Special, first: int = 0) -> Reading:
    """Return the patterns of one head.

    The fraction of a pattern is the mean, over the queries that have such a key, of the attention on it. The name is
    that of the largest fraction from `NAMED_FROM` on; else "broad" where the entropy is near that of reading all alike;
    else "mixed".

    Args:
        weights: float `[queries, keys]`, rows that sum to 1.
        ids: int `[keys]`.
        special: ids of [CLS] and [SEP].
        first: token that is the first query.
    """
    grid = np.indices(weights.shape)
    query, key = grid[0] + first, grid[1]
    fractions = {}
    for name, pattern in PATTERNS.items():
        chosen = pattern(query, key, ids[key], special)
        has = chosen.any(-1)
        fractions[name] = float((weights * chosen).sum(-1)[has].mean()) if has.any() else 0.0
    positive = np.maximum(weights, 1e-30)
    entropy = float(-(weights * np.log(positive)).sum(-1).mean())
    readable = np.maximum((weights > 0).sum(-1), 2)  # a local head reads a window
    largest = max(fractions, key=lambda name: fractions[name])
    broad = entropy >= BROAD_FROM * float(np.log(readable).mean())
    name = largest if fractions[largest] >= NAMED_FROM else "broad" if broad else "mixed"
    return Reading(name, fractions, entropy)
