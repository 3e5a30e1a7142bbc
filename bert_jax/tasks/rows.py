"""Packing of the sequences of a batch end to end in rows of a fixed length, so that little padding is computed.

A batch keeps its padded arrays. Two further arrays map tokens between the padded sequences and the rows. The encoder
computes on rows, and the heads compute on padded sequences again (models/token_rows.py). So heads, losses and
predictions do not depend on the packing in rows.

Every training step has the same shapes. The sequences of an epoch are sorted by length and cut into as many strata as a
batch has sequences, and each batch takes a random sequence of each stratum. Therefore all batches have nearly equal
numbers of tokens. The devices and the micro-batches divide a batch, and do not change its sequences. So a training that
is resumed on other devices reads the same batches.
"""

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits


class RowShape(NamedTuple):
    """The shape of the rows of a batch, and the parts of a batch that are packed in rows separately.

    With several micro-batches, each device computes each micro-batch separately, so that each micro-batch of a device
    has separate rows. With a single micro-batch, the sequences of the whole batch share the rows.
    """

    length: int  # number of tokens of a row
    num_rows: int  # number of rows of a batch; all batches of a usual epoch fit into these rows
    num_devices: int = 1  # the number of rows of a batch is a multiple of this number
    data_shards: int = 1  # number of devices that compute micro-batches separately
    micro_batches: int = 1

    @property
    def num_parts(self) -> int:
        """Number of parts of a batch that are packed in rows separately."""
        return self.data_shards * self.micro_batches


class RowLimits(NamedTuple):
    """The maximum length of the rows that a model can read, and the cost of these rows."""

    max_length: int  # maximum number of tokens of a row
    pair_cost: float  # time of a pair of tokens / time of a token; 0: the kernel skips pairs of different sequences
    num_devices: int = 1  # the number of rows must be a multiple of this number


def best_fit_rows_and_columns(lengths: np.ndarray, row_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the first column of each sequence, both int64 `[sequences]`, by best-fit decreasing packing.

    The sequences are placed from the longest to the shortest, each in the fullest row in which the sequence fits.

    Args:
        lengths: number of tokens of each sequence, at most `row_length`; an empty sequence takes no space.
        row_length: number of tokens of a row.
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


def batches_of_similar_length(
    lengths: np.ndarray, batch_size: int, shape: RowShape, seed: int, epoch: int, shuffle: bool
) -> list[np.ndarray]:
    """Return the indices of each batch's examples in an epoch; full batches have similar numbers of tokens.

    If the number of examples is not a multiple of the batch size, some random examples form a smaller batch. The result
    depends only on the arguments. `shape` changes only the order of the examples in a batch.

    Args:
        lengths: number of tokens of each example (of all its sequences), int `[examples]`.
        batch_size: number of examples in a batch, a multiple of the number of parts.
        shape: the parts of a batch; all parts of a full batch get similar numbers of tokens.
        seed: seed of the run.
        epoch: counted from 0.
        shuffle: True to shuffle the order of the batches, for training.
    """
    num_full, num_left = divmod(len(lengths), batch_size)
    bits = random_bits(seed, Stream.ORDER, epoch, np.arange(len(lengths) + num_full + 1))
    of_example, of_batch = bits[: len(lengths)], bits[len(lengths) :]
    shuffled = np.argsort(of_example, kind="stable")
    left, dealt = shuffled[:num_left], shuffled[num_left:]
    by_length = dealt[np.argsort(-lengths[dealt], kind="stable")]  # equal lengths stay in random order
    strata = by_length.reshape(batch_size, num_full)
    within = random_bits(seed, Stream.PACKING, epoch, np.arange(strata.size)).reshape(strata.shape)
    columns = np.take_along_axis(strata, np.argsort(within, axis=1, kind="stable"), axis=1)
    groups = columns.T.reshape(num_full, batch_size // shape.num_parts, shape.num_parts)  # the longest first
    groups[:, 1::2] = groups[:, 1::2, ::-1]  # the longer examples go to the first parts, then to the last parts
    parts = groups.reshape(*groups.shape[:2], shape.data_shards, shape.micro_batches)
    batches = list(parts.swapaxes(1, 2).reshape(num_full, batch_size))
    batches += [left] if num_left else []
    order = np.argsort(of_batch[: len(batches)], kind="stable") if shuffle else range(len(batches))
    return [batches[index] for index in order]


def num_rows_needed(lengths: np.ndarray, shape: RowShape) -> int:
    """Return the number of rows that a batch needs, a multiple of the number of its parts and of the number of devices.

    `lengths` has the number of tokens of each sequence, int `[examples, sequences of an example]`. A sequence that an
    example lacks has 0 tokens.
    """
    most = max(
        int(best_fit_rows_and_columns(part.ravel(), shape.length)[0].max()) + 1
        for part in _split_into_parts(lengths, shape)
    )
    devices_of_part = shape.num_devices // shape.data_shards
    return -(-most // devices_of_part) * devices_of_part * shape.num_parts


def map_tokens_to_rows(lengths: np.ndarray, seq_len: int, shape: RowShape) -> dict[str, np.ndarray]:
    """Return the arrays that map tokens of a batch between its padded sequences and its rows.

    Args:
        lengths: number of tokens of each sequence, int `[examples, sequences of an example]`; 0 for a sequence that an
            example lacks.
        seq_len: length of the padded sequences.
        shape: shape of the rows; a batch that does not fit gets more rows than `shape.num_rows`.

    Returns:
        row_tokens: int32 `[rows, row length]`; for each position in the rows, the index of its token in the flattened
            padded sequences of the same part of the batch, or -1 for an empty position.
        token_places: int32 `[examples, sequences of an example, seq_len]`; for each token, the index of its position
            in the flattened rows of the same part of the batch, or -1 for padding.
    """
    num_rows = max(shape.num_rows, num_rows_needed(lengths, shape)) // shape.num_parts
    row_tokens, token_places = [], []
    for part in _split_into_parts(lengths, shape):
        flat = part.ravel()
        rows, columns = best_fit_rows_and_columns(flat, shape.length)
        position = np.arange(seq_len)
        present = position < flat[:, None]
        places = np.where(present, (rows * shape.length + columns)[:, None] + position, -1)
        tokens = np.full(num_rows * shape.length, -1)
        tokens[places[present]] = np.flatnonzero(present)
        row_tokens.append(tokens.reshape(num_rows, shape.length))
        token_places.append(places.reshape(*part.shape, seq_len))
    return {
        "row_tokens": _join_parts(row_tokens, shape).astype(np.int32),
        "token_places": _join_parts(token_places, shape).astype(np.int32),
    }


def _split_into_parts(x: np.ndarray, shape: RowShape) -> list[np.ndarray]:
    """Return the parts of a batch; micro-batch i of a device has the device's examples i, i + micro_batches, ..."""
    parts = x.reshape(shape.data_shards, -1, shape.micro_batches, *x.shape[1:])
    return [parts[shard, :, micro] for shard in range(shape.data_shards) for micro in range(shape.micro_batches)]


def _join_parts(parts: Sequence[np.ndarray], shape: RowShape) -> np.ndarray:
    """Return the array of the whole batch, joined from the parts that `_split_into_parts` returns."""
    stacked = np.stack(parts).reshape(shape.data_shards, shape.micro_batches, *parts[0].shape)
    return stacked.swapaxes(1, 2).reshape(-1, *parts[0].shape[1:])
