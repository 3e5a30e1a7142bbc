"""Rows -> batches, built ahead by threads; the state of the iteration is one integer, the next row."""

import dataclasses
import sys
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.sequences.layout import Slots, Split, make_slots, slot_lengths
from bert_jax.data.sequences.masking import Vocabulary, mask_tokens, predictions_bound
from bert_jax.data.sequences.order import locate, make_order
from bert_jax.data.sequences.packing import examples_of, make_packing
from bert_jax.data.sequences.sampling import SENTENCE_PAIRS, Examples, make_sampler
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError

# input_ids, token_type_ids, attention_mask: int32 [batch, length]; masked_positions, masked_labels: int32
# [batch, predictions]; masked_weights: float32 [batch, predictions]; example_weights: float32 [batch], 0 for a filler
# row. Of pairs also next_sentence_labels: int32 [batch], 1 = random or swapped. With several examples in a row also
# segment_ids: int32 [batch, length], 1, 2, ... in the examples and 0 in the padding, and cls_positions: int32
# [batch, examples], 0 where there is none; labels and weights are then [batch, examples] too. All C-contiguous.
Batch = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """What rows are assembled with: ids of special tokens, [SEP]s between the texts of a pair, and the vocabulary."""

    pad: int
    cls: int
    sep: int
    separators: int
    vocabulary: Vocabulary


class Rows(NamedTuple):
    """The rows of a split at one length.

    `batch` makes the Batch of row numbers int64 [rows]; `per_epoch` rows see every token of the split about once, where
    sources have no weights; `per_source` int64 [sources] of them are of each source.
    """

    batch: Callable[[np.ndarray], Batch]
    per_epoch: int
    per_source: np.ndarray


def symbols_of(tokenizer: Tokenizer) -> Symbols:
    """The symbols of a tokenizer."""
    vocabulary = Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.continues)
    return Symbols(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.separators, vocabulary)


def make_rows(
    split: Split, symbols: Symbols, length: int, seed: int, config: DataConfig, num_token_types: int = 2
) -> Rows:
    """Rows of `length` tokens, each a pure function of (split, symbols, length, seed, config, row number).

    Args:
        split: `corpus.Split`.
        symbols: of the corpus's tokenizer.
        length: tokens in a row, special tokens included.
        seed: of the run.
        config: pairing, packing, masking, shares.
        num_token_types: of the model; below 2 all types are 0.

    Raises:
        UserError: a length that has no room for an example, or for as many as are packed; no text; weights for another
            number of sources; a source of too few documents for the pairing.
    """
    rule = SENTENCE_PAIRS[config.sentence_pairs]
    special = special_tokens(config, symbols.separators)
    shortest = special + rule.parts
    if length < shortest:
        raise UserError(f"length {length}: a row of pairing '{config.sentence_pairs}' needs at least {shortest}")
    if config.packing > length // shortest:
        raise UserError(
            f"config.data.packing={config.packing}: a row of {length} tokens has room for {length // shortest} examples"
        )
    budget = length - special
    packed = config.packing > 1
    layout, sample = make_sampler(
        split, config.sentence_pairs, budget, symbols.sep, config.short_seq_probability, packed
    )
    source_slot = layout.first_slot[layout.source_documents]
    if packed:
        # A pair has a token at least on either side, however short its slot is.
        rooms = np.maximum(slot_lengths(layout), rule.parts)
        packing = make_packing(rooms + special, source_slot, length, config.packing)
        sizes = packing.rows
    else:
        sizes = np.diff(source_slot)
    if not sizes.sum():
        raise UserError("no text to make rows of; prepare the corpus from more")
    if config.weights and len(config.weights) != len(sizes):
        raise UserError(
            f"config.data.weights has {len(config.weights)} numbers for {len(sizes)} corpora; give each one"
        )
    order = make_order(sizes, config.weights or (), config.smoothing)
    few = np.flatnonzero((order.rows > 0) & (np.diff(split.source_documents) < rule.documents))
    if few.size:
        which = f"corpus {few[0] + 1} of {len(sizes)}" if len(sizes) > 1 else "this split"
        raise UserError(
            f"pairing '{config.sentence_pairs}' needs {rule.documents} documents, and {which} has fewer; run `prepare` with "
            "`--documents blank-line` or `--documents line`, or on more files, or choose another config.data.sentence_pairs"
        )

    def examples(rows: np.ndarray) -> tuple[np.ndarray, Slots]:
        """The examples of the rows, in order: the index of the row of each, and its slot."""
        epoch, place = locate(
            order, seed, rows % (config.dupe_factor * order.per_epoch) if config.dupe_factor else rows
        )
        if not packed:
            return np.arange(len(rows)), make_slots(layout, seed, epoch, place, np.full(len(rows), budget))
        index, slot = examples_of(packing, seed, epoch, place)
        return index, make_slots(layout, seed, epoch[index], slot, rooms[slot])

    def batch(rows: np.ndarray) -> Batch:
        index, slots = examples(rows)
        found = sample(seed, slots)
        ids, types, starts = assemble(found, symbols)
        maskable = (ids != symbols.cls) & (ids != symbols.sep)
        masked = mask_tokens(
            ids, maskable, starts, slots.number, seed=seed, config=config, vocabulary=symbols.vocabulary
        )
        # Where each example begins in its row, and each token in the batch.
        sizes = np.diff(starts)
        first = np.searchsorted(index, index, side="left")
        column = starts[:-1] - starts[first]
        filled = np.arange(length) < np.bincount(index, sizes, len(rows))[:, None]
        place = np.flatnonzero(filled)

        def spread(values: np.ndarray, fill: int = 0) -> np.ndarray:
            table = np.full(len(rows) * length, fill, np.int32)
            table[place] = values
            return table.reshape(len(rows), length)

        made = {
            "input_ids": spread(masked.input_ids, symbols.pad),
            "token_type_ids": spread(types if num_token_types > 1 else 0 * types),
            "attention_mask": filled.astype(np.int32),
        }
        made |= _predictions(place[masked.positions], ids[masked.positions], len(rows), length, config)
        entry = np.arange(len(index)) - first
        shape = (len(rows), config.packing)
        if packed:
            made["segment_ids"] = spread(np.repeat(entry + 1, sizes))
            made["cls_positions"] = _table(shape, index, entry, column, np.int32)
        labels = _table(shape, index, entry, found.labels, np.int32)
        weights = _table(shape, index, entry, 1, np.float32)
        if rule.parts == 2:
            made["next_sentence_labels"] = labels if packed else labels[:, 0]
        made["example_weights"] = weights if packed else weights[:, 0]
        return {name: np.ascontiguousarray(made[name]) for name in batch_shapes(1, length, config)}

    return Rows(batch, order.per_epoch, order.rows)


def special_tokens(config: DataConfig, separators: int) -> int:
    """Special tokens of an example: [CLS] a [SEP], or [CLS] a [SEP] b [SEP] with as many [SEP]s between as usual."""
    return 2 if SENTENCE_PAIRS[config.sentence_pairs].parts == 1 else 2 + separators


def assemble(examples: Examples, symbols: Symbols) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The examples with their special tokens, end to end.

    Returns:
        ids: int32 [tokens].
        types: int32 [tokens], 1 in the second text and the [SEP] after it.
        starts: int64 [examples + 1], where in them each example begins.
    """
    number, parts = examples.lengths.shape
    one = np.ones(number, np.int64)
    # Piece by piece, special tokens and text in turn: where it is copied from, how long it is.
    separators = [symbols.separators] * (parts - 1) + [1]
    origin, sizes, types = [0 * one], [one], [0]
    for part in range(parts):
        origin += [examples.starts[:, part], 0 * one]
        sizes += [examples.lengths[:, part], separators[part] * one]
        types += [part, part]
    counts = np.stack(sizes, axis=1)
    starts = np.zeros(number + 1, np.int64)
    np.cumsum(counts.sum(axis=1), out=starts[1:])
    counts = counts.ravel()
    begins = np.cumsum(counts) - counts
    shift = np.stack(origin, axis=1).ravel() - begins
    ids = examples.tokens.take(np.repeat(shift, counts) + np.arange(starts[-1]), mode="clip").astype(np.int32)
    piece = begins.reshape(number, -1)
    ids[piece[:, 0]] = symbols.cls
    for part in range(parts):
        for more in range(separators[part]):
            ids[piece[:, 2 * part + 2] + more] = symbols.sep
    return ids, np.repeat(np.tile(np.array(types, np.int32), number), counts), starts


def _predictions(places: np.ndarray, labels: np.ndarray, rows: int, length: int, config: DataConfig) -> Batch:
    """The predictions at ascending places in the batch, a line a row."""
    row, column = np.divmod(places, length)
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(rows), side="left")[row]
    shape = (rows, predictions_bound(length, config))
    return {
        "masked_positions": _table(shape, row, rank, column, np.int32),
        "masked_labels": _table(shape, row, rank, labels, np.int32),
        "masked_weights": _table(shape, row, rank, 1, np.float32),
    }


def _table(
    shape: tuple[int, int], row: np.ndarray, column: np.ndarray, values: np.ndarray | int, dtype: type
) -> np.ndarray:
    table: np.ndarray = np.zeros(shape, dtype)
    table[row, column] = values
    return table


def batch_shapes(batch_size: int, length: int, config: DataConfig) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and dtype of each array of a Batch, for what is to be known before there is a corpus."""
    tokens, masked = (batch_size, length), (batch_size, predictions_bound(length, config))
    examples = (batch_size, config.packing) if config.packing > 1 else (batch_size,)
    shapes: dict[str, tuple[tuple[int, ...], type]] = {
        "input_ids": (tokens, np.int32),
        "token_type_ids": (tokens, np.int32),
        "attention_mask": (tokens, np.int32),
        "masked_positions": (masked, np.int32),
        "masked_labels": (masked, np.int32),
        "masked_weights": (masked, np.float32),
    }
    if SENTENCE_PAIRS[config.sentence_pairs].parts == 2:
        shapes["next_sentence_labels"] = (examples, np.int32)
    shapes["example_weights"] = (examples, np.float32)
    if config.packing > 1:
        shapes |= {"segment_ids": (tokens, np.int32), "cls_positions": (examples, np.int32)}
    return shapes


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
    import grain  # brings jax, which what looks at rows alone can do without

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


def _closing(iterator: Any) -> Generator[Batch, None, None]:
    try:
        yield from iterator
    finally:
        iterator.close()
