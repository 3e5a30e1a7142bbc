"""Batches of inputs for predictions and vectors: inputs of similar length share rows of a limited number of tokens.

The shape of a batch is the length to which sequences are padded after the encoder, the length and the number of rows,
and the number of inputs. Each of the numbers in the shape is from a short fixed list. Therefore only a few programs are
compiled, and later runs find them in the persistent cache.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from bert_jax.tasks.batching import Feed, PlannedBatch, plan_feature_batches
from bert_jax.tasks.features import Features
from bert_jax.tasks.late_interaction import UNREAD
from bert_jax.tasks.rows import RowLimits, RowShape, batches_of_similar_length, num_rows_needed

ROW_FACTORS = (1, 2, 4)  # lengths of rows to try, as multiples of the padded length
MAX_INPUTS_FACTOR = 4  # maximum inputs per batch divided by the batch size, to limit the padding after the encoder
# The cost of compiling a further program, in tokens. A forward pass compiles in one to two seconds, in which a CPU
# computes about ten thousand tokens of a small model.
PROGRAM_TOKENS = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Group:
    """A group of inputs whose batches all have the same shape."""

    indices: np.ndarray  # indices of the inputs, int64 [inputs]
    length: int  # length of a padded sequence
    row_length: int
    num_rows: int  # number of rows of a batch
    num_batches: int  # minimum number of batches
    cost: float  # cost of the group in tokens


def plan_prediction_batches(
    feed: Feed, features: Sequence[Features], limits: RowLimits | None, max_dense_length: float = math.inf
) -> list[PlannedBatch]:
    """Return the batches of all inputs, the shortest inputs first.

    A batch has as many tokens as `feed.batch_size` padded inputs, or at most a quarter as many if there are few inputs.
    Inputs are divided by length into groups, so that the total cost of computed tokens and compiled programs is lowest.
    Each group needs one compiled program. Pairs of tokens of different sequences make long rows more expensive, unless
    the attention kernel skips these pairs.

    Args:
        feed: lengths to which sequences are padded, and the batch size.
        features: the inputs; all have the same number of sequences.
        limits: limits of the rows that the model can read; None: sequences are padded, not packed in rows.
        max_dense_length: length above which attention is block-sparse. Batches of shorter inputs are not padded above
            this length, so that the outputs do not depend on the other inputs of a batch.
    """
    longest = np.array([feature.length for feature in features], np.int64)
    if limits is None or (features and UNREAD in features[0].targets):
        is_dense, dense_buckets = longest <= max_dense_length, [n for n in feed.buckets if n < max_dense_length]
        if len(dense_buckets) < len(feed.buckets):
            dense_buckets.append(int(max_dense_length))
        return [
            planned._replace(indices=indices[planned.indices])
            for indices, buckets in (
                (np.flatnonzero(is_dense), dense_buckets),
                (np.flatnonzero(~is_dense), feed.buckets),
            )
            for planned in plan_feature_batches(
                longest[indices], buckets, feed.batch_size, seed=0, epoch=0, shuffle=False
            )
        ]
    if not features:
        return []
    lengths = np.array([[len(ids) for ids, _ in feature.sequences] for feature in features], np.int64)
    order = np.argsort(longest, kind="stable")
    ends = np.searchsorted(longest[order], feed.buckets, side="right")
    return [
        batch
        for group in _cheapest_groups(feed, lengths, order, ends, limits)
        for batch in _batches_of_group(feed, lengths, group, limits.num_devices)
    ]


def _cheapest_groups(
    feed: Feed, lengths: np.ndarray, order: np.ndarray, ends: np.ndarray, limits: RowLimits
) -> list[_Group]:
    """Return the cheapest division of inputs into groups, by dynamic programming over the padded lengths.

    Args:
        feed: lengths to which sequences are padded, and the batch size.
        lengths: number of tokens of each sequence, int64 `[inputs, sequences of an input]`.
        order: indices of the inputs, the shortest first.
        ends: number of inputs that fit into each length of `feed.buckets`.
        limits: limits of the rows that the model can read.
    """
    best: list[list[_Group]] = [[]]  # the groups of the inputs that fit into the first n lengths
    for last, end in enumerate(ends):
        divisions = []
        for first, groups in enumerate(best):
            begin = ends[first - 1] if first else 0
            if begin == end:
                divisions.append(groups)
            elif last == first or ends[last - 1] < end:  # a group does not pad to a longer length than it needs
                indices, length = order[begin:end], feed.buckets[last]
                candidates = [
                    _group_with_estimated_cost(feed, lengths, indices, length, factor * length, limits)
                    for factor in ROW_FACTORS
                    if factor == 1 or factor * length <= limits.max_length
                ]
                divisions.append([*groups, min(candidates, key=lambda group: group.cost)])
        best.append(min(divisions, key=lambda groups: sum(group.cost for group in groups)))
    return best[-1]


def _group_with_estimated_cost(
    feed: Feed, lengths: np.ndarray, indices: np.ndarray, length: int, row_length: int, limits: RowLimits
) -> _Group:
    """Return a group of inputs with its cost, estimated from a lower bound of the number of rows.

    Best-fit packing needs hardly more rows than the lower bound.
    """
    sizes, num_rows = lengths[indices], max(1, feed.batch_size * length // row_length)
    # A row has room for at most n sequences above 1 / (n + 1) of its length.
    bounds = [-(-int(np.count_nonzero((n + 1) * sizes > row_length)) // n) for n in range(1, 5)]
    needed = max(-(-int(sizes.sum()) // row_length), *bounds)
    while num_rows >= 4 * needed:
        num_rows //= 4
    num_rows = _round_up_to_multiple(num_rows, limits.num_devices)
    num_batches = max(-(-needed // num_rows), -(-len(indices) // (MAX_INPUTS_FACTOR * feed.batch_size)))
    cost = num_batches * num_rows * row_length * (1 + limits.pair_cost * row_length) + PROGRAM_TOKENS
    return _Group(
        indices=indices, length=length, row_length=row_length, num_rows=num_rows, num_batches=num_batches, cost=cost
    )


def _batches_of_group(feed: Feed, lengths: np.ndarray, group: _Group, num_devices: int) -> list[PlannedBatch]:
    """Return the batches of a group: as few as possible, with nearly equal numbers of tokens."""
    shape = RowShape(group.row_length, group.num_rows, num_devices)
    tokens, num_batches = lengths[group.indices].sum(1), group.num_batches
    while True:
        size = -(-len(tokens) // num_batches)
        batches = [
            group.indices[batch] for batch in batches_of_similar_length(tokens, size, shape, 0, 0, shuffle=False)
        ]
        if size == 1 or all(num_rows_needed(lengths[batch], shape) <= shape.num_rows for batch in batches):
            break
        num_batches += 1
    usual = int(shape.length * shape.num_rows / tokens.mean())  # inputs of a full batch
    batch_size = _round_up_to_multiple(
        max(size, min(1 << usual.bit_length(), MAX_INPUTS_FACTOR * feed.batch_size)), num_devices
    )
    return [PlannedBatch(batch, group.length, batch_size, shape) for batch in batches]


def _round_up_to_multiple(count: int, divisor: int) -> int:
    """Return `count`, rounded up to a multiple of `divisor`."""
    return -(-count // divisor) * divisor
