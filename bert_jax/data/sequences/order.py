"""Row number -> epoch and place: a random order of each epoch, and of several sources each in its share.

Row r is in epoch e = r // rows of an epoch. An epoch is a pseudo-random permutation of its rows, of which source k has
`rows[k]`. Those of source k, counted on through all epochs, run through epochs of its own, each a permutation of what
the source has; so a source that is asked for more often than its size allows returns to its beginning sooner.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.hashing import Stream, permute, random_bits
from bert_jax.data.sequences.layout import running_total


class Order(NamedTuple):
    """`sizes` and `rows` int64 [sources]: the places that a source has, and its rows in an epoch."""

    sizes: np.ndarray
    rows: np.ndarray

    @property
    def per_epoch(self) -> int:
        """Rows in an epoch."""
        return int(self.rows.sum())


def make_order(sizes: np.ndarray, weights: Sequence[float] = (), smoothing: float = 1.0) -> Order:
    """The order over sources of `sizes` int64 [sources] places.

    Each source's share of the rows is its weight's, or without weights that of its size to the power of `smoothing`
    (Conneau and Lample 2019; multilingual BERT took 0.7). An epoch has as many rows as there are places, or a few
    more, since every source that has places gets one row at least.
    """
    wanted = np.array(weights, float) if len(weights) else sizes.astype(float) ** smoothing
    if not len(weights) and smoothing == 1:
        return Order(sizes, sizes)
    wanted = np.where(sizes > 0, wanted, 0.0)
    rows = np.rint(wanted / wanted.sum() * sizes.sum()).astype(np.int64)
    return Order(sizes, np.where(wanted > 0, np.maximum(rows, 1), 0))


def locate(order: Order, seed: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Epoch of its source, and place counted through all sources, of each row; int64 [rows] all."""
    epoch, row = np.divmod(rows, order.per_epoch)
    if len(order.sizes) == 1:
        return epoch, permute(row, order.sizes[0], random_bits(seed, Stream.ORDER, epoch, 0))
    row = permute(row, order.per_epoch, random_bits(seed, Stream.MIXTURE, epoch))
    source = np.searchsorted(running_total(order.rows), row, side="right") - 1
    row += epoch * order.rows[source] - running_total(order.rows)[source]
    epoch, row = np.divmod(row, order.sizes[source])
    place = permute(row, order.sizes[source], random_bits(seed, Stream.ORDER, epoch, source))
    return epoch, running_total(order.sizes)[source] + place
