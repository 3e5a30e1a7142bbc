"""Sequences of a batch laid end to end in rows of a fixed length, so that the encoder computes almost no padding.

A batch keeps its padded arrays. Two more arrays say where each token lies: the encoder reads the rows, and the heads
read the tokens of each sequence again (models/token_rows.py). So heads, losses and predictions know nothing of rows.

Every step of a training has the same shapes: the sequences of an epoch are sorted by length and cut into as many strata
as a batch has sequences, and each batch takes a random sequence of each stratum. So all batches have nearly equal
numbers of tokens.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits


class RowShape(NamedTuple):
    """The shape of the rows of a batch, and the parts of a batch that are laid in rows separately.

    With several micro-batches, each device computes each micro-batch alone, so that each of them has its own rows.
    Otherwise the sequences of the whole batch share the rows.
    """

    length: int  # tokens of a row
    num_rows: int  # rows of a batch that all batches of a usual epoch fit into
    num_devices: int = 1  # the number of rows of a batch is a multiple of it
    data_shards: int = 1  # devices that compute micro-batches alone
    micro_batches: int = 1

    @property
    def num_parts(self) -> int:
        """Number of parts of a batch that are laid in rows separately."""
        return self.data_shards * self.micro_batches


class RowLimits(NamedTuple):
    """The rows that a model can read, and their cost."""

    max_length: int  # tokens of a row
    pair_cost: float  # time of a pair of tokens over the time of a token; 0: a kernel skips pairs of two sequences
    num_devices: int = 1  # the number of rows of a batch is a multiple of it


def fit_into_rows(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the first column of each sequence, int64 `[sequences]`, by best-fit decreasing.

    Each sequence, from the longest to the shortest, goes to the row where it leaves the fewest free tokens.

    Args:
        lengths: tokens of each sequence, at most `row_length`; a sequence of 0 tokens takes no place.
        row_length: tokens of a row.
    """
    rows, columns = np.zeros(len(lengths), np.int64), np.zeros(len(lengths), np.int64)
    free: list[tuple[int, int]] = []  # (free tokens, row), ascending
    num_rows = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        if not length:
            continue
        if (entry := bisect.bisect_left(free, (length, 0))) < len(free):
            space, row = free.pop(entry)
        else:
            space, row, num_rows = row_length, num_rows, num_rows + 1
        rows[index], columns[index] = row, row_length - space
        bisect.insort(free, (space - length, row))
    return rows, columns


def deal_batches(
    lengths: np.ndarray, batch_size: int, shape: RowShape, seed: int, epoch: int, shuffle: bool
) -> list[np.ndarray]:
    """Return the indices of the examples of each batch of an epoch, so that all full batches have similar lengths.

    The examples left over by full batches are chosen at random and form a batch of their own. The result depends only
    on the arguments.

    Args:
        lengths: int `[examples]`, tokens of each example (of all its sequences).
        batch_size: number of examples in a batch.
        shape: shape of the rows; each part of a batch gets examples of all strata.
        seed: seed of the run.
        epoch: counted from 0.
        shuffle: True for training; False for evaluation, where the order of batches does not change.
    """
    num_full, num_left = divmod(len(lengths), batch_size)
    bits = random_bits(seed, Stream.ORDER, epoch, np.arange(len(lengths) + num_full + 1))
    of_example, of_batch = bits[: len(lengths)], bits[len(lengths) :]
    shuffled = np.argsort(of_example, kind="stable")
    left, dealt = shuffled[:num_left], shuffled[num_left:]
    by_length = dealt[np.argsort(-lengths[dealt], kind="stable")]  # equal lengths stay in random order
    strata = by_length.reshape(batch_size // shape.num_parts, -1)  # one column for each part of each batch
    within = random_bits(seed, Stream.PACKING, epoch, np.arange(strata.size)).reshape(strata.shape)
    columns = np.take_along_axis(strata, np.argsort(within, axis=1, kind="stable"), axis=1)
    parts = columns.reshape(len(strata), num_full, shape.data_shards, shape.micro_batches)
    batches = list(parts.transpose(1, 2, 0, 3).reshape(num_full, batch_size))
    batches += [left] if num_left else []
    order = np.argsort(of_batch[: len(batches)], kind="stable") if shuffle else range(len(batches))
    return [batches[index] for index in order]


def num_rows_needed(lengths: np.ndarray, shape: RowShape) -> int:
    """Return the number of rows of a batch, a multiple of the parts and the devices.

    `lengths` has the tokens of each sequence, int `[examples, sequences of an example]`; 0 for an absent sequence.
    """
    most = max(int(fit_into_rows(part.ravel(), shape.length)[0].max()) + 1 for part in _split(lengths, shape))
    devices_of_part = shape.num_devices // shape.data_shards
    return -(-most // devices_of_part) * devices_of_part * shape.num_parts


def lay_in_rows(lengths: np.ndarray, seq_len: int, shape: RowShape) -> dict[str, np.ndarray]:
    """Return the places of the tokens of a batch.

    Args:
        lengths: tokens of each sequence, int `[examples, sequences of an example]`; 0 for an absent sequence.
        seq_len: length of the padded sequences.
        shape: shape of the rows; a batch that does not fit has more rows than `shape.num_rows`.

    Returns:
        row_tokens: int32 `[rows, row length]`, for each place in the rows the index of its token in the flat padded
            sequences of its part, or -1 for an empty place.
        token_places: int32 `[examples, sequences of an example, seq_len]`, for each token the index of its place in the
            flat rows of its part, or -1 for padding.
    """
    num_rows = max(shape.num_rows, num_rows_needed(lengths, shape)) // shape.num_parts
    row_tokens, token_places = [], []
    for part in _split(lengths, shape):
        flat = part.ravel()
        rows, columns = fit_into_rows(flat, shape.length)
        position = np.arange(seq_len)
        present = position < flat[:, None]
        places = np.where(present, (rows * shape.length + columns)[:, None] + position, -1)
        tokens = np.full(num_rows * shape.length, -1)
        tokens[places[present]] = np.flatnonzero(present)
        row_tokens.append(tokens.reshape(num_rows, shape.length))
        token_places.append(places.reshape(*part.shape, seq_len))
    return {
        "row_tokens": _join(row_tokens, shape).astype(np.int32),
        "token_places": _join(token_places, shape).astype(np.int32),
    }


def _split(x: np.ndarray, shape: RowShape) -> list[np.ndarray]:
    """Return the parts of a batch: micro-batch i of a device takes its examples i, i + micro_batches, ..."""
    parts = x.reshape(shape.data_shards, -1, shape.micro_batches, *x.shape[1:])
    return [parts[shard, :, micro] for shard in range(shape.data_shards) for micro in range(shape.micro_batches)]


def _join(parts: Sequence[np.ndarray], shape: RowShape) -> np.ndarray:
    """Return the array whose parts `_split` returns."""
    stacked = np.stack(parts).reshape(shape.data_shards, shape.micro_batches, *parts[0].shape)
    return stacked.swapaxes(1, 2).reshape(-1, *parts[0].shape[1:])
