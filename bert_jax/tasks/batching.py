"""Batches of features: the lengths that features are padded to (buckets), and the features and arrays of each batch."""

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features

if TYPE_CHECKING:
    from bert_jax.parallel.sharding import BatchBlocks

Batch = dict[str, np.ndarray]

MAX_BUCKETS = 6
MULTIPLE = 8  # tokens; bucket lengths are multiples of it, since matrix units work in such blocks
SHORTEST = 16  # tokens of the shortest bucket, if the buckets are chosen before any input is known
# The cost of compiling the programs of a further bucket, in tokens. Compiling takes about half a minute, in which a CPU
# trains on some ten thousand tokens and an accelerator on millions. The cost is a constant, so that the choice of
# buckets depends on the data alone.
PROGRAM_TOKENS = 200_000


class Feed(NamedTuple):
    """The shapes and the padding of batches."""

    buckets: tuple[int, ...]  # lengths to pad to
    batch_size: int
    num_token_types: int
    pad_id: int


class PlannedBatch(NamedTuple):
    """The features of a batch, and their length after padding."""

    indices: np.ndarray  # int64 [<= batch_size]
    length: int


def choose_buckets(
    lengths: np.ndarray, max_seq_len: int, passes: float = 1.0, program_tokens: int = PROGRAM_TOKENS
) -> tuple[int, ...]:
    """Return the lengths to pad to with the lowest cost: at most `MAX_BUCKETS`, and the last is `max_seq_len`.

    The cost is the number of tokens over all passes, with padding, plus `program_tokens` per bucket. So small data sets
    get one or two buckets and large data sets up to six. The other lengths are multiples of `MULTIPLE`. The search is
    exact, by dynamic programming over the ends of the buckets: of b buckets up to an end, the last bucket begins where
    its cost plus the cost of the best b - 1 earlier buckets is lowest.

    Args:
        lengths: number of tokens of each feature, at most `max_seq_len`; usually of the training and dev sets.
        max_seq_len: maximum length in any set of the task.
        passes: number of passes over the features, such as epochs.
        program_tokens: cost of a bucket, in tokens; with 0, only the padding counts.
    """
    ends = np.append(np.arange(MULTIPLE, max_seq_len, MULTIPLE), max_seq_len)
    # below[i]: the number of features in buckets that end before candidate i.
    below = np.searchsorted(np.sort(lengths), np.append(0, ends), side="right")
    cost_from = (below[1:] - below[:-1, None]) * ends.astype(np.float64)  # [i, j]: one bucket for i to j
    cost_from[np.tril_indices(len(ends), -1)] = np.inf
    costs, choices = [cost_from[0]], []
    for _ in range(MAX_BUCKETS - 1):
        totals = np.append(0.0, costs[-1])[:-1, None] + cost_from
        choices.append(totals.argmin(0))
        costs.append(totals.min(0))
    totals = [passes * cost[-1] + program_tokens * num_buckets for num_buckets, cost in enumerate(costs, 1)]
    buckets, last = [max_seq_len], len(ends) - 1
    for choice in reversed(choices[: int(np.argmin(totals))]):
        last = int(choice[last]) - 1
        if last < 0:
            break
        buckets.append(int(ends[last]))
    return tuple(reversed(buckets))


def fixed_buckets(longest: int) -> tuple[int, ...]:
    """Return a few lengths that depend on the maximum length alone, so that each program is compiled once.

    Each length is twice the previous length, and the last is `longest`. So a model of 8,192 positions reads short texts
    without much padding.
    """
    doubled = (SHORTEST << n for n in range(longest.bit_length()))
    return (*(length for length in doubled if length < longest), longest)


def plan_feature_batches(
    lengths: np.ndarray, buckets: Sequence[int], batch_size: int, seed: int, epoch: int, shuffle: bool
) -> list[PlannedBatch]:
    """Return the batches of an epoch with all features; the result depends only on the arguments.

    Features are sorted by bucket and cut into batches, so at most one batch is not full, and at most one batch per
    border between two buckets has features of both buckets. With `shuffle`, seed and epoch determine the order of
    features within a bucket and of the batches; otherwise features keep their order within a bucket, and the shortest
    bucket comes first.

    Args:
        lengths: int `[features]`, number of tokens.
        buckets: lengths to pad to.
        batch_size: number of features in a batch.
        seed: seed of the run.
        epoch: counted from 0.
        shuffle: True for training, False for evaluation.

    Raises:
        UserError: some features are longer than the longest bucket.
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
        PlannedBatch(batches[batch], int(ends[bucket[batches[batch]].max()]))
        for batch in np.argsort(order[len(lengths) :], kind="stable")
    ]


def plan_evaluation(feed: Feed, features: Sequence[Features]) -> list[PlannedBatch]:
    """Return the batches of an evaluation pass over the features, in ascending order of their length."""
    lengths = np.array([feature.length for feature in features], np.int64)
    return plan_feature_batches(lengths, feed.buckets, feed.batch_size, seed=0, epoch=0, shuffle=False)


def collate_batches(
    feed: Feed, features: Sequence[Features], batches: Iterable[PlannedBatch], blocks: "BatchBlocks"
) -> Generator[Batch, None, None]:
    """Yield, for each planned batch, the rows of this process."""
    block_size = feed.batch_size // blocks.num_blocks
    rows = np.concatenate([np.arange(block * block_size, (block + 1) * block_size) for block in blocks.blocks])
    for indices, length in batches:
        batch = collate([features[i] for i in indices], length, feed.num_token_types, feed.pad_id, feed.batch_size)
        yield {name: x[rows] for name, x in batch.items()} if blocks.num_blocks > 1 else batch


def collate(features: Sequence[Features], seq_len: int, num_token_types: int, pad_id: int, batch_size: int) -> Batch:
    """Return features as C-contiguous arrays. Copies of the first feature, with weight 0, fill the batch.

    Args:
        features: 1 to `batch_size` features of the same kind, either all labeled or all unlabeled.
        seq_len: the length of each sequence after padding.
        num_token_types: number of token types of the model; if it is below 2, all types are 0.
        pad_id: token id of the padding.
        batch_size: number of features in the batch.

    Returns:
        input_ids, token_type_ids, attention_mask: int32 `[batch, seq_len]`, or `[batch, choices, seq_len]` with
            choices.
        example_weights: float32 `[batch]`.
        The keys of `targets`: `[batch]` for a number, `[batch, seq_len]` for a number per token, `[batch, ...]` for an
            array `[1, ...]`; 0 in padding and in the copies.

    Raises:
        ValueError: no features, more than `batch_size`, or a sequence longer than `seq_len`.
    """
    if not 0 < len(features) <= batch_size:
        raise ValueError(f"{len(features)} features do not make a batch of {batch_size}")
    filled = [*features, *[features[0]] * (batch_size - len(features))]
    inputs, starts = zip(*(sequence for feature in filled for sequence in feature.sequences), strict=True)
    lengths = np.array([len(ids) for ids in inputs])
    if lengths.max() > seq_len:
        raise ValueError(f"a sequence of {lengths.max()} tokens does not fit into {seq_len}")
    position = np.arange(seq_len)
    present = position < lengths[:, None]
    input_ids = np.full(present.shape, pad_id, np.int32)
    input_ids[present] = np.concatenate(inputs)
    of_type_1 = present & (position >= np.array(starts)[:, None]) & (num_token_types > 1)
    choices = features[0].input_ids
    shape = (batch_size, *([len(choices)] if isinstance(choices, list) else []), seq_len)
    real = np.arange(batch_size) < len(features)
    batch = {
        "input_ids": input_ids.reshape(shape),
        "token_type_ids": of_type_1.astype(np.int32).reshape(shape),
        "attention_mask": present.astype(np.int32).reshape(shape),
        "example_weights": real.astype(np.float32),
    }
    for key in features[0].targets:
        values = [np.asarray(feature.targets[key]) for feature in filled]
        if values[0].ndim > 1:
            rows = np.concatenate(values)
            batch[key] = np.where(real.reshape(-1, *[1] * (rows.ndim - 1)), rows, 0).astype(rows.dtype)
        elif values[0].ndim:
            batch[key] = np.zeros(present.shape, values[0].dtype)
            batch[key][present & real[:, None]] = np.concatenate(values[: len(features)])
        else:
            batch[key] = np.where(real, np.stack(values), 0).astype(values[0].dtype)
    return batch
