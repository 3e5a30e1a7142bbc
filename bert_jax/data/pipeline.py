"""Rows -> batches, built ahead by threads; the state of the iteration is one integer, the next row."""

import dataclasses
import sys
from collections.abc import Callable, Generator
from typing import NamedTuple

import grain
import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.masking import mask_tokens, max_predictions
from bert_jax.data.sampling import Split, make_layout, sample_pairs
from bert_jax.errors import UserError

# input_ids, token_type_ids, attention_mask: int32 [batch, length]; masked_positions, masked_labels: int32
# [batch, predictions]; masked_weights: float32 [batch, predictions]; next_sentence_labels: int32 [batch], 1 = random;
# example_weights: float32 [batch], 0 for a filler row. All C-contiguous.
Batch = dict[str, np.ndarray]


class SpecialIds(NamedTuple):
    """Ids of the tokens that rows are assembled with."""

    pad: int
    cls: int
    sep: int
    mask: int


class Rows(NamedTuple):
    """The rows of a split at one length.

    `batch` makes the Batch of row numbers int64 [rows]; `per_epoch` rows see every token of the split about once.
    """

    batch: Callable[[np.ndarray], Batch]
    per_epoch: int


def make_rows(
    split: Split, special_ids: SpecialIds, vocab_size: int, length: int, seed: int, config: DataConfig
) -> Rows:
    """Rows of `length` tokens: sentence pairs, masked; each a pure function of (split, seed, length, row number).

    Args:
        split: `Corpus.split(...)`.
        special_ids: of the corpus's tokenizer.
        vocab_size: of the corpus.
        length: tokens in a row, special tokens included.
        seed: of the run.
        config: shares of short rows and of masks.

    Raises:
        UserError: fewer than two documents, or a length that has no room for a pair.
    """
    layout = make_layout(split, length)

    def batch(rows: np.ndarray) -> Batch:
        pairs = sample_pairs(layout, seed, rows, config.short_probability)
        # Columns: [CLS], first part, [SEP] at `middle`, second part, [SEP] at `last`, padding.
        middle = (pairs.lengths[:, 0] + 1).astype(np.int32)
        last = (pairs.lengths.sum(axis=1) + 2).astype(np.int32)
        column = np.arange(length, dtype=np.int32)
        in_second = column > middle[:, None]
        attended = column <= last[:, None]
        shift = pairs.starts - np.stack([np.ones_like(middle), middle + 1], axis=1)
        source = np.where(in_second, shift[:, 1:].astype(np.int32), shift[:, :1].astype(np.int32)) + column
        input_ids = pairs.tokens.take(source, mode="clip").astype(np.int32)
        random = np.flatnonzero(pairs.is_random)
        other = pairs.other_tokens.take(source[random], mode="clip")
        input_ids[random] = np.where(in_second[random], other, input_ids[random])
        input_ids[~attended] = special_ids.pad
        line = np.arange(len(rows))
        input_ids[:, 0] = special_ids.cls
        input_ids[line, middle] = special_ids.sep
        input_ids[line, last] = special_ids.sep
        maskable = attended.copy()
        maskable[:, 0] = maskable[line, middle] = maskable[line, last] = False
        masked = mask_tokens(
            input_ids,
            maskable,
            last + 1,
            rows,
            seed=seed,
            config=config,
            vocab_size=vocab_size,
            mask_id=special_ids.mask,
        )
        return {
            "input_ids": masked.input_ids,
            "token_type_ids": (in_second & attended).astype(np.int32),
            "attention_mask": attended.astype(np.int32),
            "masked_positions": masked.positions,
            "masked_labels": masked.labels,
            "masked_weights": masked.weights,
            "next_sentence_labels": pairs.is_random.astype(np.int32),
            "example_weights": np.ones(len(rows), np.float32),
        }

    return Rows(batch, layout.slots)


def batch_shapes(batch_size: int, length: int, config: DataConfig) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and dtype of each array of a Batch, for what is to be known before there is a corpus."""
    tokens, row, masked = (
        (batch_size, length),
        (batch_size,),
        (batch_size, max_predictions(length, config.mask_probability)),
    )
    return {
        "input_ids": (tokens, np.int32),
        "token_type_ids": (tokens, np.int32),
        "attention_mask": (tokens, np.int32),
        "masked_positions": (masked, np.int32),
        "masked_labels": (masked, np.int32),
        "masked_weights": (masked, np.float32),
        "next_sentence_labels": (row, np.int32),
        "example_weights": (row, np.float32),
    }


def batches(
    rows: Rows,
    first_row: int,
    batch_size: int,
    *,
    host: int = 0,
    hosts: int = 1,
    threads: int = 2,
    prefetch: int = 4,
    stop_row: int | None = None,
) -> Generator[Batch, None, None]:
    """One host's share of the batches from `first_row` on, in order; starting at any row costs the same.

    Close the generator (`contextlib.closing`) to stop its threads.

    Args:
        rows: made by `make_rows`.
        first_row: rows consumed before, the whole state of the iteration.
        batch_size: rows of a batch over all hosts; this host gets `batch_size / hosts` contiguous ones of each.
        host: number of this host, of `hosts`.
        hosts: how many there are.
        threads: that build batches; 0 builds them when they are asked for.
        prefetch: batches built ahead; 0 likewise.
        stop_row: the rows end before this one, and filler rows of weight 0 complete the last batch; None: never.

    Raises:
        UserError: the batch size is not a positive multiple of the number of hosts.
    """
    if batch_size < 1 or batch_size % hosts:
        raise UserError(
            f"batch_size {batch_size} over {hosts} hosts: each needs the same number of rows, at least one; "
            f"take a multiple of {hosts}"
        )
    share = batch_size // hosts
    source = _BatchSource(rows, first_row + host * share, batch_size, share, first_row, stop_row)
    depth = prefetch if threads else 0
    # More threads than batches ahead would have nothing to do, and Grain warns of it.
    options = grain.ReadOptions(num_threads=min(threads, depth), prefetch_buffer_size=depth)
    return _closing(iter(grain.MapDataset.source(source).to_iter_dataset(options)))


@dataclasses.dataclass(frozen=True)
class _BatchSource:
    """Batch i at random access, as Grain wants it: `share` rows from `first` + i * `batch_size` on."""

    rows: Rows
    first: int
    batch_size: int
    share: int
    first_row: int
    stop_row: int | None

    def __len__(self) -> int:
        if self.stop_row is None:
            return (sys.maxsize - self.first) // self.batch_size - 1  # no run lives to see it
        return max(0, -(-(self.stop_row - self.first_row) // self.batch_size))

    def __getitem__(self, index: int) -> Batch:
        numbers = self.first + index * self.batch_size + np.arange(self.share)
        if self.stop_row is None:
            return self.rows.batch(numbers)
        batch = self.rows.batch(np.minimum(numbers, self.stop_row - 1))
        filler = numbers >= self.stop_row
        batch["example_weights"][filler] = 0
        batch["masked_weights"][filler] = 0
        return batch


def _closing(iterator: grain.DatasetIterator) -> Generator[Batch, None, None]:
    try:
        yield from iterator
    finally:
        iterator.close()
