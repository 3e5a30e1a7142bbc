"""Which rows make a batch, and to what length they are padded: few lengths, little padding."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.hashing import Stream, random_bits
from bert_jax.errors import UserError

MAX_BUCKETS = 6  # each is compiled once
MULTIPLE = 8  # of tokens: what matrix units like


class PlannedBatch(NamedTuple):
    """Rows of one batch, and the length that they are padded to."""

    indices: np.ndarray  # int64 [<= batch_size]
    length: int


def choose_buckets(lengths: np.ndarray, max_seq_len: int) -> tuple[int, ...]:
    """The lengths to pad rows to that waste the fewest tokens: at most `MAX_BUCKETS`, the last is `max_seq_len`.

    All others are multiples of `MULTIPLE`. Found exactly, by dynamic programming over where the buckets end: with b
    buckets for the rows up to an end, the last bucket begins where b - 1 buckets and it cost least.

    Args:
        lengths: tokens of each row, none above `max_seq_len`; usually those of the training set.
        max_seq_len: what any row of the task may have, so that other sets fit too.
    """
    ends = np.append(np.arange(MULTIPLE, max_seq_len, MULTIPLE), max_seq_len)
    # below[i]: the rows that a bucket ending before candidate i holds, the first i candidates' worth.
    below = np.searchsorted(np.sort(lengths), np.append(0, ends), side="right")
    cost_from = (below[1:] - below[:-1, None]) * ends.astype(np.float64)  # [i, j]: one bucket for candidates i to j
    cost_from[np.tril_indices(len(ends), -1)] = np.inf
    costs, choices = [cost_from[0]], []
    for _ in range(MAX_BUCKETS - 1):
        totals = np.append(0.0, costs[-1])[:-1, None] + cost_from
        choices.append(totals.argmin(0))
        costs.append(totals.min(0))
    buckets, last = [max_seq_len], len(ends) - 1
    for choice in reversed(choices):
        last = int(choice[last]) - 1
        if last < 0:
            break
        buckets.append(int(ends[last]))
    return tuple(reversed(buckets))


def plan(
    lengths: np.ndarray, buckets: Sequence[int], batch_size: int, seed: int, epoch: int, shuffle: bool
) -> list[PlannedBatch]:
    """The batches of one epoch: every row once, a pure function of the arguments.

    Rows are sorted by bucket and cut into batches, so at most one batch is not full and as many hold rows of two
    buckets as there are borders. Shuffled, the rows of a bucket and then the batches are in an order that the seed
    and the epoch determine; otherwise rows keep their order within a bucket, the shortest first.

    Args:
        lengths: int `[rows]`, tokens of each.
        buckets: lengths to pad to.
        batch_size: rows of a batch.
        seed: of the run.
        epoch: counted from 0.
        shuffle: to train; False to evaluate.

    Raises:
        UserError: a row is longer than every bucket.
    """
    ends = np.array(sorted(buckets))
    bucket = np.searchsorted(ends, lengths, side="left")
    if len(lengths) and lengths.max() > ends[-1]:
        raise UserError(
            f"config.task.buckets={tuple(buckets)} hold no row of {lengths.max()} tokens;"
            " add a bucket, or lower config.task.max_seq_len"
        )
    count = -(-len(lengths) // batch_size)
    order = random_bits(seed, Stream.ORDER, epoch, np.arange(len(lengths) + count))
    order = order if shuffle else np.arange(len(order))
    rows = np.lexsort((order[: len(lengths)], bucket)).astype(np.int64)
    batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    return [
        PlannedBatch(batches[number], int(ends[bucket[batches[number]].max()]))
        for number in np.argsort(order[len(lengths) :], kind="stable")
    ]
