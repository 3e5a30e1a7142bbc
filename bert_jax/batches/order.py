"""Sequence number -> epoch and item: a random order in each epoch, and several sources in given proportions.

An item is a slot or, with packing, a packed sequence. Sequence n is in epoch n // (sequences per epoch). An epoch is a
pseudo-random permutation of its sequences; `num_sequences[k]` of these sequences come from source k. Each source also
has separate epochs, which are permutations of the items of the source. The sequences that come from a source read the
epochs of the source in turn. A source with more sequences per epoch than items therefore repeats items within an epoch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, permuted_indices, random_bits
from bert_jax.corpus.store import running_total


class Order(NamedTuple):
    """The number of items and the number of sequences per epoch of each source, int64 [sources] each.

    The order begins with the sequence `first_sequence`, and its epochs are numbered from `first_sequence` on. An order
    that ends before this sequence has only smaller epoch numbers, because an epoch has at least one sequence. The two
    orders therefore have no equal sequences.
    """

    num_items: np.ndarray
    num_sequences: np.ndarray
    first_sequence: int = 0

    @property
    def num_per_epoch(self) -> int:
        """The number of sequences per epoch of all sources together."""
        return int(self.num_sequences.sum())

    @property
    def passes_per_source(self) -> np.ndarray:
        """The number of times that an epoch reads the text of each source, float64 [sources]."""
        passes: np.ndarray = self.num_sequences / np.maximum(1, self.num_items)
        return passes


def plan_sequences_per_source(
    num_items: np.ndarray,
    weights: Sequence[float] | None = None,
    smoothing: float = 1.0,
    max_epochs: int | None = None,
) -> Order:
    """Return the number of sequences per epoch of each source; `num_items`, int64 [sources], has the items per source.

    The number of sequences of a source is proportional to the weight of the source or, without weights, to the size of
    the source to the power of `smoothing` (Conneau and Lample 2019; multilingual BERT used 0.7). An epoch has as many
    sequences as all sources have items, up to rounding. Every source with items gets at least one sequence. In an
    epoch, the items of a source occur at most `max_epochs` times on average. Sequences above the limit `max_epochs` go
    to the other sources, in proportion to the shares of these sources (UniMax, Chung et al. 2023). If all sources reach
    the limit `max_epochs`, the epoch is shorter.
    """
    if weights is None and smoothing == 1:
        return Order(num_items, num_items)
    wanted = num_items.astype(float) ** smoothing if weights is None else np.array(weights, float)
    wanted = np.where(num_items > 0, wanted, 0.0)
    num_sequences = wanted / wanted.sum() * num_items.sum()
    if max_epochs is not None:
        num_sequences = _cap_sequences_per_source(wanted, num_sequences, (num_items * max_epochs).astype(float))
    num_sequences = np.rint(num_sequences).astype(np.int64)
    return Order(num_items, np.where(wanted > 0, np.maximum(num_sequences, 1), 0))


def _cap_sequences_per_source(wanted: np.ndarray, num_sequences: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Cap the `wanted` numbers of sequences at `limits`; the excess goes to the sources that are below their limits.

    All arrays are float64 [sources]. Sources below their limit keep the proportions of `wanted`.
    """
    capped, free, total = num_sequences.copy(), wanted > 0, num_sequences.sum()
    while (over := free & (capped > limits)).any():
        capped[over], free = limits[over], free & ~over
        capped[free] = wanted[free] / wanted[free].sum() * (total - capped[~free].sum())
    return capped


class SequenceItems(NamedTuple):
    """The source epoch and the item (an index among the items of all sources) of each sequence, int64 [sequences]."""

    epoch: np.ndarray
    item: np.ndarray


def epochs_and_items_of_sequences(order: Order, seed: int, sequence_numbers: np.ndarray) -> SequenceItems:
    """Return the source epoch and the item (an index among the items of all sources) of each sequence.

    All arrays are int64 [sequences].
    """
    source, epoch, index = positions_in_sources(order, seed, sequence_numbers)
    item = permuted_indices(index, order.num_items[source], random_bits(seed, Stream.ORDER, epoch, source))
    return SequenceItems(epoch, running_total(order.num_items)[source] + item)


def sources_of_sequences(order: Order, seed: int, sequence_numbers: np.ndarray) -> np.ndarray:
    """Return the source of each sequence number, int64 [sequences]."""
    return positions_in_sources(order, seed, sequence_numbers).source


class SourcePositions(NamedTuple):
    """The source of each sequence, the epoch of the source, and the position in this epoch; int64 [sequences]."""

    source: np.ndarray
    epoch: np.ndarray
    position: np.ndarray


def positions_in_sources(order: Order, seed: int, numbers: np.ndarray) -> SourcePositions:
    """Return the source of each sequence number, the epoch of the source, and the position in this epoch.

    With a single source, positions ascend with the sequence numbers. `numbers` is int64 [sequences].
    """
    first = order.first_sequence
    epoch, index = np.divmod(numbers - first, order.num_per_epoch)
    if len(order.num_items) == 1:
        return SourcePositions(np.zeros_like(epoch), first + epoch, index)
    index = permuted_indices(index, order.num_per_epoch, random_bits(seed, Stream.MIXTURE, first + epoch))
    starts = running_total(order.num_sequences)
    source = np.searchsorted(starts, index, side="right") - 1
    read_before = epoch * order.num_sequences[source] + index - starts[source]  # earlier sequences of the source
    source_epoch, position = np.divmod(read_before, order.num_items[source])
    return SourcePositions(source, first + source_epoch, position)
