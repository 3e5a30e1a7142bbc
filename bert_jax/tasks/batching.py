"""Batches of features: the lengths that they are padded to (buckets), and which features make a batch."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits
from bert_jax.errors import UserError

MAX_BUCKETS = 6
MULTIPLE = 8  # tokens: matrix units work in such blocks
# The cost of compiling the programs of one more bucket, in tokens. Compiling takes about half a minute, in which a CPU
# trains on some ten thousand tokens and an accelerator on millions. A fixed number: the choice depends on data alone.
PROGRAM_TOKENS = 200_000


class PlannedBatch(NamedTuple):
    """The features of one batch, and their length after padding."""

    indices: np.ndarray  # int64 [<= batch_size]
    length: int


def choose_buckets(
    lengths: np.ndarray, max_seq_len: int, passes: float = 1.0, program_tokens: int = PROGRAM_TOKENS
) -> tuple[int, ...]:
    """Return the lengths to pad to at the lowest cost: at most `MAX_BUCKETS`, the last is `max_seq_len`.

    The cost is the number of padded tokens over all passes, plus `program_tokens` per bucket, so that small data gets
    one or two buckets and large data up to six. The other lengths are multiples of `MULTIPLE`. The search is exact, by
    dynamic programming over the ends of the buckets: with b buckets for all features up to an end, the last bucket
    begins where b - 1 buckets and it cost least.

    Args:
        lengths: tokens of each of the features, none above `max_seq_len`; usually those of the training and dev sets.
        max_seq_len: maximum length in any set of the task.
        passes: number of passes over the features, such as epochs.
        program_tokens: cost of one bucket, in tokens; 0 counts padding alone.
    """
    ends = np.append(np.arange(MULTIPLE, max_seq_len, MULTIPLE), max_seq_len)
    # below[i]: the number of features in buckets that end before candidate i.
    below = np.searchsorted(np.sort(lengths), np.append(0, ends), side="right")
    cost_from = (below[1:] - below[:-1, None]) * ends.astype(np.float64)  # [i, j]: one bucket for candidates i to j
    cost_from[np.tril_indices(len(ends), -1)] = np.inf
    costs, choices = [cost_from[0]], []
    for _ in range(MAX_BUCKETS - 1):
        totals = np.append(0.0, costs[-1])[:-1, None] + cost_from
        choices.append(totals.argmin(0))
        costs.append(totals.min(0))
    totals = [passes * cost[-1] + program_tokens * number for number, cost in enumerate(costs, 1)]
    buckets, last = [max_seq_len], len(ends) - 1
    for choice in reversed(choices[: int(np.argmin(totals))]):
        last = int(choice[last]) - 1
        if last < 0:
            break
        buckets.append(int(ends[last]))
    return tuple(reversed(buckets))


def plan(
    lengths: np.ndarray, buckets: Sequence[int], batch_size: int, seed: int, epoch: int, shuffle: bool
) -> list[PlannedBatch]:
    """Return the batches of one epoch: each of the features once, a pure function of the arguments.

    Features are sorted by bucket and cut into batches, so at most one batch is not full, and at most one batch per
    border holds features of two buckets. With `shuffle`, seed and epoch determine the order of features within a bucket
    and of the batches; otherwise features keep their order within a bucket, and the shortest bucket comes first.

    Args:
        lengths: int `[features]`, tokens of each.
        buckets: lengths to pad to.
        batch_size: number of features in a batch.
        seed: seed of the run.
        epoch: counted from 0.
        shuffle: True for training, False for evaluation.

    Raises:
        UserError: some features are longer than every bucket.
    """
    ends = np.array(sorted(buckets))
    bucket = np.searchsorted(ends, lengths, side="left")
    if len(lengths) and lengths.max() > ends[-1]:
        raise UserError(
            f"config.task.buckets={tuple(buckets)} hold no sequence of {lengths.max()} tokens;"
            " add a bucket, or lower config.task.max_seq_len"
        )
    count = -(-len(lengths) // batch_size)
    order = random_bits(seed, Stream.ORDER, epoch, np.arange(len(lengths) + count))
    order = order if shuffle else np.arange(len(order))
    sorted_indices = np.lexsort((order[: len(lengths)], bucket)).astype(np.int64)
    batches = [sorted_indices[start : start + batch_size] for start in range(0, len(lengths), batch_size)]
    return [
        PlannedBatch(batches[number], int(ends[bucket[batches[number]].max()]))
        for number in np.argsort(order[len(lengths) :], kind="stable")
    ]
