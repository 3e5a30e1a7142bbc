"""Batches of features: padded lengths (buckets) or rows of packed sequences, and the features and arrays of a batch."""

import itertools
import math
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features
from bert_jax.tasks.rows import RowLimits, RowShape, batches_of_similar_length, map_tokens_to_rows, num_rows_needed

if TYPE_CHECKING:
    from bert_jax.parallel.sharding import BatchBlocks

Batch = dict[str, np.ndarray]

MAX_BUCKETS = 6
MULTIPLE = 8  # bucket lengths are multiples of 8 tokens, because matrix units work in blocks of this size
SHORTEST = 16  # length of the shortest bucket, if the buckets are chosen before any input is known
# The cost of compiling the programs of a further bucket, in tokens. Compiling takes about half a minute, in which a CPU
# trains on some ten thousand tokens and an accelerator on millions. The cost is a constant, so that the choice of
# buckets depends on the data alone.
PROGRAM_TOKENS = 200_000
# Lengths of rows to try, as multiples of the longest sequence. With many candidates, one of them has little filler.
ROW_FACTORS = (*(1.0 + step / 16 for step in range(17)), 2.5, 3.0, 3.5, 4.0)
SAMPLED_BATCHES = 128  # batches that determine the number of rows per batch; a batch with more tokens gets more rows


class Feed(NamedTuple):
    """The shapes and the padding of batches."""

    buckets: tuple[int, ...]  # lengths to which sequences are padded
    batch_size: int
    num_token_types: int
    pad_id: int
    rows: RowShape | None = None  # shape of the rows in which sequences are packed for the encoder; None: no packing


class PlannedBatch(NamedTuple):
    """The features of a batch, their length after padding, and the rows that hold their tokens."""

    indices: np.ndarray  # int64 [<= batch_size]
    length: int
    batch_size: int  # number of features, filler included
    rows: RowShape | None = None


def choose_buckets(
    lengths: np.ndarray, max_seq_len: int, passes: float = 1.0, program_tokens: int = PROGRAM_TOKENS
) -> tuple[int, ...]:
    """Return the cheapest padded lengths of sequences: at most `MAX_BUCKETS` lengths, the last being `max_seq_len`.

    The cost is the number of tokens over all passes, with padding, plus `program_tokens` per bucket. Therefore a small
    data set gets one or two buckets, and a large data set gets up to six buckets. All lengths except `max_seq_len` are
    multiples of `MULTIPLE`. The search is exact. Dynamic programming over the candidate lengths finds the best b
    buckets up to a length from the best b - 1 buckets up to each shorter length.

    Args:
        lengths: number of tokens of each feature, at most `max_seq_len`; the features usually come from the training
            and dev sets.
        max_seq_len: maximum length in any set of the task.
        passes: number of passes over the features, such as epochs.
        program_tokens: cost of a bucket, in tokens; with 0, padding is the only cost.
    """
    ends = np.append(np.arange(MULTIPLE, max_seq_len, MULTIPLE), max_seq_len)
    # below[i]: the number of features in buckets that end before candidate i.
    below = np.searchsorted(np.sort(lengths), np.append(0, ends), side="right")
    cost_from = (below[1:] - below[:-1, None]) * ends.astype(np.float64)  # [i, j]: cost of a bucket for i to j
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


def doubling_buckets(longest: int) -> tuple[int, ...]:
    """Return the lengths 16, 32, 64 ... up to `longest`, to which inputs are padded.

    The lengths depend only on `longest`, so that each program is compiled once. With these lengths, a model of 8,192
    positions reads short texts without much padding.
    """
    doubled = (SHORTEST << n for n in itertools.count())
    return (*itertools.takewhile(lambda length: length < longest, doubled), longest)


def plan_feature_batches(
    lengths: np.ndarray, buckets: Sequence[int], batch_size: int, seed: int, epoch: int, shuffle: bool
) -> list[PlannedBatch]:
    """Return the padded batches of an epoch over all features; the result depends only on the arguments.

    Features are sorted by bucket and cut into batches. So at most one batch is not full, and at most one batch mixes
    the features of two neighboring buckets. If `shuffle` is True, seed and epoch determine the order of the batches,
    and the order of the features within a bucket. If `shuffle` is False, features keep their order within a bucket, and
    the batches of the shortest bucket come first.

    Args:
        lengths: number of tokens of each feature, int `[features]`.
        buckets: lengths to which features are padded.
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
        PlannedBatch(batches[batch], int(ends[bucket[batches[batch]].max()]), batch_size)
        for batch in np.argsort(order[len(lengths) :], kind="stable")
    ]


def plan_training_epoch(feed: Feed, features: Sequence[Features], seed: int, epoch: int) -> list[PlannedBatch]:
    """Return the batches of a training epoch; their order depends on the seed and the epoch (counted from 0)."""
    if feed.rows is None:
        lengths = np.array([feature.length for feature in features], np.int64)
        return plan_feature_batches(lengths, feed.buckets, feed.batch_size, seed, epoch, shuffle=True)
    num_tokens = np.array([feature.num_tokens for feature in features], np.int64)
    batches = batches_of_similar_length(num_tokens, feed.batch_size, feed.rows, seed, epoch, shuffle=True)
    return [PlannedBatch(indices, feed.buckets[-1], feed.batch_size, feed.rows) for indices in batches]


def describe_batch_rule(feed: Feed) -> str:
    """Return the rule that chooses the examples of training batches, as text.

    Feeds with equal rules have equal batches, except for the order of the examples in a batch. The largest padded
    length changes no batch, because the longest sequence of any set fits into it.
    """
    if feed.rows:
        return "sequences in rows"
    return f"sequences padded to {''.join(f'{length}, ' for length in feed.buckets[:-1])}the longest"


def _sequence_lengths(features: Sequence[Features], planned: PlannedBatch) -> np.ndarray:
    """Return the length of each sequence of a batch, int64 `[batch, sequences of an example]`, 0 for filler."""
    lengths = np.zeros((planned.batch_size, len(features[planned.indices[0]].sequences)), np.int64)
    for row, index in enumerate(planned.indices):
        lengths[row] = [len(ids) for ids, _ in features[index].sequences]
    return lengths


def choose_packing_or_padding(
    feed: Feed,
    features: Sequence[Features],
    empty: RowShape,
    *,
    passes: float,
    limits: RowLimits,
) -> Feed:
    """Return the feed that packs sequences in the cheapest rows, or the feed that pads sequences if padding is cheaper.

    The cost is the number of computed tokens over all passes, plus the cost of the pairs of tokens in attention, plus
    `PROGRAM_TOKENS` per compiled program. Packing in rows needs only one compiled program, so packing saves most for
    small data sets. If attention computes all pairs of tokens of a row, padding is cheaper for a large data set of long
    sequences.

    Args:
        feed: lengths to which sequences are padded, and the batch size.
        features: features of the training set.
        empty: shape that gives the parts of a batch and the number of devices; the shape's length and number of rows
            are ignored.
        passes: number of passes over the features.
        limits: the longest row, and the cost of a pair of tokens.
    """

    def cost(candidate: Feed) -> float:
        computed = _computed_tokens_by_length(candidate, features).items()
        tokens = sum(places * (1.0 + limits.pair_cost * length) for length, places in computed)
        return passes * tokens + PROGRAM_TOKENS * len(candidate.buckets)

    longest = feed.buckets[-1]
    in_rows = feed._replace(buckets=(longest,), rows=empty)
    # A small set is sampled in all its epochs, because a batch that needs more rows needs another compiled program.
    num_epochs = min(math.ceil(passes), -(-SAMPLED_BATCHES * feed.batch_size // len(features)))
    planned = [
        batch for epoch in range(num_epochs) for batch in plan_training_epoch(in_rows, features, seed=0, epoch=epoch)
    ]
    sampled = [_sequence_lengths(features, batch) for batch in planned[:: -(-len(planned) // SAMPLED_BATCHES)]]
    candidates = [feed]
    for factor in ROW_FACTORS:
        row_length = min(-(-int(longest * factor) // MULTIPLE) * MULTIPLE, limits.max_length)
        shape = empty._replace(length=row_length)
        num_rows = max(num_rows_needed(lengths, shape) for lengths in sampled)
        candidates.append(in_rows._replace(rows=shape._replace(num_rows=num_rows)))
    return min(candidates, key=cost)


def _computed_tokens_by_length(feed: Feed, features: Sequence[Features]) -> dict[int, int]:
    """Return a dict from a length to the number of tokens, with filler, that the encoder computes in an epoch.

    The length is the length of a row or, without rows, the length of a padded sequence. Without rows, the copies of
    features that fill the last batch of a length are not counted.
    """
    if feed.rows:
        num_batches = -(-len(features) // feed.batch_size)
        return {feed.rows.length: num_batches * feed.rows.num_rows * feed.rows.length}
    computed = dict.fromkeys(feed.buckets, 0)
    for feature in features:
        length = feed.buckets[int(np.searchsorted(feed.buckets, feature.length))]
        computed[length] += length * len(feature.sequences)
    return computed


def describe_batch_shapes(feed: Feed, features: Sequence[Features]) -> str:
    """Return a text about the shapes of batches and the percentage of filler among the computed tokens."""
    filler = 1.0 - sum(feature.num_tokens for feature in features) / sum(
        _computed_tokens_by_length(feed, features).values()
    )
    shapes = f"padded to {', '.join(map(str, feed.buckets))} tokens"
    if feed.rows:
        shapes = f"end to end in {feed.rows.num_rows} rows of {feed.rows.length} tokens"
    return f"{shapes} ({100 * filler:.1f} % filler)"


def collate_batches(
    feed: Feed, features: Sequence[Features], batches: Iterable[PlannedBatch], blocks: "BatchBlocks"
) -> Generator[Batch, None, None]:
    """Yield the arrays of each planned batch; with several processes, only the rows of this process."""

    def rows_of_process(x: np.ndarray) -> np.ndarray:
        parts = np.split(x, blocks.num_blocks)
        return np.concatenate([parts[block] for block in blocks.blocks])

    for planned in batches:
        chosen = [features[i] for i in planned.indices]
        batch = collate(chosen, planned.length, feed.num_token_types, feed.pad_id, planned.batch_size)
        if planned.rows:
            batch |= map_tokens_to_rows(_sequence_lengths(features, planned), planned.length, planned.rows)
            batch["token_places"] = batch["token_places"].reshape(batch["input_ids"].shape)
        yield {name: rows_of_process(x) for name, x in batch.items()} if blocks.num_blocks > 1 else batch


def collate(features: Sequence[Features], seq_len: int, num_token_types: int, pad_id: int, batch_size: int) -> Batch:
    """Return the padded arrays of a batch of features; copies of the first feature, with weight 0, fill the batch.

    Args:
        features: 1 to `batch_size` features of the same kind, either all labeled or all unlabeled.
        seq_len: length of each sequence after padding.
        num_token_types: number of token types of the model; if it is below 2, all types are 0.
        pad_id: token id of the padding.
        batch_size: number of features in the batch.

    Returns:
        input_ids, token_type_ids, attention_mask: int32 `[batch, seq_len]`, or int32 `[batch, choices, seq_len]` if
            examples have choices.
        example_weights: float32 `[batch]`.
        An array for each key of `targets`: `[batch]` for a number, the shape of `input_ids` for a number per token,
            `[batch, ...]` for an array `[1, ...]`; the value is 0 in padding and in the copies.

    Raises:
        ValueError: there are no features or more than `batch_size` features, or a sequence is longer than `seq_len`.
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
            of_tokens = np.zeros(present.shape, values[0].dtype)
            of_tokens[present & np.repeat(real, len(present) // batch_size)[:, None]] = np.concatenate(
                values[: len(features)]
            )
            batch[key] = of_tokens.reshape(shape)
        else:
            batch[key] = np.where(real, np.stack(values), 0).astype(values[0].dtype)
    return batch
