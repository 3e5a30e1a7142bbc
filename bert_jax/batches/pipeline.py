"""Sequence numbers -> a batch of arrays: order, text, special tokens, masks and padding together."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_jax.batches.layout import Slots, make_slots, slot_lengths
from bert_jax.batches.masking import (
    MASKINGS,
    LinearMaskRate,
    Vocabulary,
    mask_tokens,
    max_predictions_of_packed_sequence,
)
from bert_jax.batches.order import Order, epochs_and_items_of_sequences, plan_sequences_per_source, sources_of_sequences
from bert_jax.batches.packing import PackingPlan, plan_packing, slots_of_packed_sequences
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS, Examples, Sampler, SentencePairRule, make_sampler
from bert_jax.batches.words import mark_segmented_words, split_off_word_start_marks
from bert_jax.config import DataConfig
from bert_jax.corpus.statistics import smoothed_frequencies, token_counts
from bert_jax.corpus.store import ReadableSplit
from bert_jax.errors import UserError

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

# input_ids, token_type_ids, attention_mask: int32 [batch, seq_len]
# masked_positions, masked_labels: int32 [batch, predictions]; masked_weights: float32 [batch, predictions]
# next_sentence_labels: int32 [batch], only for pairs; 1: the second text is random, or the texts are swapped
# example_weights: float32 [batch], 0 for a filler sequence
# With packing, labels and weights of examples are [batch, examples], and a batch has two further arrays:
# segment_ids: int32 [batch, seq_len], 1, 2, ... in the examples and 0 in the padding
# cls_positions: int32 [batch, examples], 0 where there is no example
# All arrays are C-contiguous.
Batch = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """The part of a tokenizer that sequences need: special ids, number of [SEP]s between texts, vocabulary."""

    pad: int
    cls: int
    sep: int
    separators: int
    vocabulary: Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequences:
    """The sequences that are made from a split, all of one length; returned by `make_sequences`.

    Attributes:
        batch: function from sequence numbers, int64 [batch], to a `Batch`.
        num_per_epoch: number of sequences per epoch; an epoch reads each token of the split about once, unless sources
        have weights.
        num_per_source: number of sequences per epoch from each source, int64 [sources].
        source_of: function from sequence numbers to sources, both int64 [any].
        num_items: for each source, the number of sequences that read each token of the source about once, int64
            [sources].
        begins_word: function from sequence numbers, int64 [batch], to word starts for whole-word masking, bool [batch,
        seq_len]; None: the vocabulary marks the word starts.
    """

    batch: Callable[[np.ndarray], Batch]
    num_per_epoch: int
    num_per_source: np.ndarray
    source_of: Callable[[np.ndarray], np.ndarray]
    num_items: np.ndarray
    begins_word: Callable[[np.ndarray], np.ndarray] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequencePlan:
    """All inputs of `build_batch` except the sequence numbers.

    Attributes:
        seq_len, seed, config, num_token_types, symbols: as in `make_sequences`.
        sampler: slots -> examples.
        order: maps sequence numbers to slots; with packing, to packed sequences.
        packing: plan of the slots that share a sequence; None without packing.
        capacities: maximum text tokens of each slot's example, int64 [slots]; None without packing, where every example
        may use the whole budget.
        rate: changing masking rate, whose maximum is `config.mask_probability`; None: the rate is constant.
        rarity: function that returns the weight of each token of the vocabulary in the choice of the tokens to predict,
            float64 [size]; None: all weights are equal.
        has_words: True if token ids contain the marks of a `MarkedSplit`.
    """

    seq_len: int
    seed: int
    config: DataConfig
    num_token_types: int
    symbols: Symbols
    sampler: Sampler
    order: Order
    packing: PackingPlan | None
    capacities: np.ndarray | None
    rate: LinearMaskRate | None
    rarity: Callable[[], np.ndarray] | None
    has_words: bool


def special_ids_and_vocabulary(tokenizer: "Tokenizer") -> Symbols:
    """Return the special ids, separators and vocabulary of a tokenizer."""
    vocabulary = Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.continues)
    return Symbols(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.separators, vocabulary)


def make_sequences(
    split: ReadableSplit,
    symbols: Symbols,
    seq_len: int,
    seed: int,
    config: DataConfig,
    num_token_types: int = 2,
    rate: LinearMaskRate | None = None,
    first_sequence: int = 0,
) -> Sequences:
    """Return the sequences of a split, which depend only on the arguments and the sequence numbers.

    Args:
        split: a `corpus.Split`.
        symbols: symbols of the corpus's tokenizer.
        seq_len: number of tokens per sequence, including special tokens.
        seed: seed of the run.
        config: settings of sentence pairs, packing, masking and weights of sources.
        num_token_types: number of token types of the model; below 2, all types are 0.
        rate: a changing masking rate, whose maximum is `config.mask_probability`; None: the rate is constant.
        first_sequence: number of the first sequence, with which each source begins a new epoch (`Order`).

    Raises:
        UserError: `seq_len` is too short for an example, or for `config.packing` examples; the split has no text;
            `config.weights` has a wrong number of weights; a source has too few documents for the sentence pairs.
    """
    text = mark_segmented_words(split, symbols.vocabulary.continues) if MASKINGS[config.masking].whole_words else split
    rule = SENTENCE_PAIRS[config.sentence_pairs]
    special = 2 if rule.num_texts == 1 else 2 + symbols.separators  # [CLS] a [SEP], or [CLS] a [SEP]... b [SEP]
    _check_seq_len(seq_len, special + rule.num_texts, config)
    is_packed = config.packing > 1
    sampler = make_sampler(rule, text, seq_len - special, symbols.sep, config.short_seq_probability, is_packed)
    layout, packing, capacities = sampler.layout, None, None
    source_slot = layout.first_slot[layout.source_documents]
    if is_packed:
        # Each text of a pair has at least one token, even in a short slot.
        capacities = np.maximum(slot_lengths(layout), rule.num_texts)
        packing = plan_packing(capacities + special, source_slot, seq_len, config.packing)
    num_items = np.diff(source_slot) if packing is None else packing.num_sequences
    if not num_items.sum():
        raise UserError("the corpus has no text to make sequences from; prepare it from more text")
    if config.weights and len(config.weights) != len(num_items):
        raise UserError(
            f"config.data.weights, or the weights of a phase, has {len(config.weights)} numbers for {len(num_items)} "
            "corpora; give one per corpus"
        )
    order = plan_sequences_per_source(num_items, config.weights, config.smoothing, config.max_epochs)
    order = order._replace(first_sequence=first_sequence)
    _check_num_documents(split, order, rule, config)

    @functools.cache
    def rarity() -> np.ndarray:
        """Return the token weights from the frequencies of an epoch; called when the first batch is built."""
        counts = token_counts(split, symbols.vocabulary.size, order.passes_per_source)
        weights: np.ndarray = smoothed_frequencies(counts) ** -config.rarity_power
        return weights

    plan = SequencePlan(
        seq_len=seq_len,
        seed=seed,
        config=config,
        num_token_types=num_token_types,
        symbols=symbols,
        sampler=sampler,
        order=order,
        packing=packing,
        capacities=capacities,
        rate=rate,
        rarity=rarity if config.rarity_power else None,
        has_words=text is not split,
    )
    return Sequences(
        batch=functools.partial(build_batch, plan),
        num_per_epoch=order.num_per_epoch,
        num_per_source=order.num_sequences,
        source_of=functools.partial(sources_of_planned_sequences, plan),
        num_items=order.num_items,
        begins_word=functools.partial(segmenter_word_starts, plan) if plan.has_words else None,
    )


def _check_seq_len(seq_len: int, min_len: int, config: DataConfig) -> None:
    """Raise UserError if `seq_len` is below `min_len`, or too small for `config.packing` shortest examples."""
    if seq_len < min_len:
        raise UserError(
            f"seq_len={seq_len} is too short: config.data.sentence_pairs={config.sentence_pairs} needs at least "
            f"{min_len} tokens"
        )
    if config.packing > seq_len // min_len:
        raise UserError(
            f"config.data.packing={config.packing}: lower it to {seq_len // min_len}, the number of examples that a "
            f"sequence of {seq_len} tokens can hold, or choose longer sequences"
        )


def _check_num_documents(split: ReadableSplit, order: Order, rule: SentencePairRule, config: DataConfig) -> None:
    """Raise UserError if a sampled source has too few documents for the rule."""
    sources = len(split.source_documents) - 1
    few = np.flatnonzero((order.num_sequences > 0) & (np.diff(split.source_documents) < rule.min_documents))
    if few.size:
        which = f"corpus {few[0] + 1} of {sources}" if sources > 1 else "this split"
        raise UserError(
            f"config.data.sentence_pairs={config.sentence_pairs} needs {rule.min_documents} documents, and {which} has "
            "fewer; run `prepare` with `--documents blank-line` or `--documents line`, or on more files, or choose "
            "another config.data.sentence_pairs"
        )


def build_batch(plan: SequencePlan, numbers: np.ndarray) -> Batch:
    """Return the batch of the sequences `numbers`, int64 [batch], which may be in any order and may repeat."""
    row, slots = rows_and_slots_of_sequences(plan, numbers)
    examples = plan.sampler.sample(plan.seed, slots)
    ids, types, starts = add_special_tokens(examples, plan.symbols)
    ids, begins_word = split_off_word_start_marks(ids) if plan.has_words else (ids, None)
    special = (ids == plan.symbols.cls) | (ids == plan.symbols.sep)
    masked = mask_tokens(
        ids,
        ~special,
        starts,
        slots.example_id,
        seed=plan.seed,
        config=plan.config,
        vocabulary=plan.symbols.vocabulary,
        rates=plan.rate.rates_of_sequences(numbers)[row] if plan.rate else None,
        begins_word=begins_word,
        rarity=plan.rarity() if plan.rarity else None,
    )
    # The first example of each row of the batch, and the position of each token in the flat batch.
    sizes = np.diff(starts)
    first = np.searchsorted(row, row, side="left")
    attention_mask = np.arange(plan.seq_len) < np.bincount(row, sizes, len(numbers))[:, None]
    token_position = np.flatnonzero(attention_mask)
    batch = {
        "input_ids": _array_with_values_at(attention_mask.shape, token_position, masked.input_ids, plan.symbols.pad),
        "token_type_ids": _array_with_values_at(
            attention_mask.shape, token_position, types if plan.num_token_types > 1 else 0
        ),
        "attention_mask": attention_mask.astype(np.int32),
    }
    if plan.packing:
        segments = np.repeat(np.arange(len(row)) - first + 1, sizes)
        batch["segment_ids"] = _array_with_values_at(attention_mask.shape, token_position, segments)
    batch |= _arrays_per_masked_token(plan, len(numbers), token_position[masked.positions], ids[masked.positions])
    batch |= _arrays_per_example(plan, len(numbers), row, starts[:-1] - starts[first], examples.labels)
    return {name: np.ascontiguousarray(batch[name]) for name in batch_shapes(1, plan.seq_len, plan.config)}


def segmenter_word_starts(plan: SequencePlan, sequence_numbers: np.ndarray) -> np.ndarray:
    """Return whether each token of the given sequences begins a word that a segmenter found, bool [batch, seq_len]."""
    row, slots = rows_and_slots_of_sequences(plan, sequence_numbers)
    ids, _, starts = add_special_tokens(plan.sampler.sample(plan.seed, slots), plan.symbols)
    begins = np.arange(plan.seq_len) < np.bincount(row, np.diff(starts), len(sequence_numbers))[:, None]
    begins[begins] = split_off_word_start_marks(ids)[1]
    return begins


class RowsAndSlots(NamedTuple):
    """The row of each example in the batch, int64 [examples], and the slots of the examples."""

    row: np.ndarray
    slots: Slots


def rows_and_slots_of_sequences(plan: SequencePlan, numbers: np.ndarray) -> RowsAndSlots:
    """Return the row of each example (the index of its sequence in `numbers`), and the slot of each example."""
    layout = plan.sampler.layout
    epoch, item = epochs_and_items_of_sequences(plan.order, plan.seed, _wrap_after_dupe_factor_epochs(plan, numbers))
    if plan.packing is None or plan.capacities is None:
        capacity = np.full(len(numbers), layout.budget)
        return RowsAndSlots(np.arange(len(numbers)), make_slots(layout, plan.seed, epoch, item, capacity))
    row, slot = slots_of_packed_sequences(plan.packing, plan.seed, epoch, item)
    return RowsAndSlots(row, make_slots(layout, plan.seed, epoch[row], slot, plan.capacities[slot]))


def sources_of_planned_sequences(plan: SequencePlan, sequence_numbers: np.ndarray) -> np.ndarray:
    """Return the source of each sequence number, int64 [sequences]."""
    return sources_of_sequences(plan.order, plan.seed, _wrap_after_dupe_factor_epochs(plan, sequence_numbers))


def _wrap_after_dupe_factor_epochs(plan: SequencePlan, sequence_numbers: np.ndarray) -> np.ndarray:
    """Return the sequence numbers modulo `dupe_factor` epochs, so that later epochs repeat the first epochs."""
    repeats_after, first = plan.config.dupe_factor, plan.order.first_sequence
    if not repeats_after:
        return sequence_numbers
    return first + (sequence_numbers - first) % (repeats_after * plan.order.num_per_epoch)


class TokensOfExamples(NamedTuple):
    """Ids and types of tokens, and the first token of each example; see `add_special_tokens`."""

    ids: np.ndarray
    types: np.ndarray
    starts: np.ndarray


def add_special_tokens(examples: Examples, symbols: Symbols) -> TokensOfExamples:
    """Return the examples with special tokens, one after the other.

    Returns:
        ids: int32 [tokens].
        types: 1 in the second text and the [SEP] after it, else 0, int32 [tokens].
        starts: the index in `ids` of the first token of each example, and the number of tokens, int64 [examples + 1].
    """
    num_examples, num_texts = examples.lengths.shape
    zero, unit = np.zeros(num_examples, np.int64), np.ones(num_examples, np.int64)
    # Pieces of special tokens and of text alternate: source, length and type of each.
    separators = [symbols.separators] * (num_texts - 1) + [1]
    origin, sizes, types = [zero], [unit], [0]
    for text in range(num_texts):
        origin += [examples.starts[:, text], zero]
        sizes += [examples.lengths[:, text], separators[text] * unit]
        types += [text, text]
    counts = np.stack(sizes, axis=1)
    starts = np.zeros(num_examples + 1, np.int64)
    np.cumsum(counts.sum(axis=1), out=starts[1:])
    counts = counts.ravel()
    begins = np.cumsum(counts) - counts
    shift = np.stack(origin, axis=1).ravel() - begins
    ids = examples.tokens.take(np.repeat(shift, counts) + np.arange(starts[-1]), mode="clip").astype(np.int32)
    piece = begins.reshape(num_examples, -1)
    ids[piece[:, 0]] = symbols.cls
    for text in range(num_texts):
        for extra in range(separators[text]):
            ids[piece[:, 2 * text + 2] + extra] = symbols.sep
    return TokensOfExamples(ids, np.repeat(np.tile(np.array(types, np.int32), num_examples), counts), starts)


def _arrays_per_masked_token(plan: SequencePlan, batch_size: int, positions: np.ndarray, labels: np.ndarray) -> Batch:
    """Return the arrays of masked tokens, [batch, predictions], from ascending positions in the flat batch."""
    row, position = np.divmod(positions, plan.seq_len)
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(batch_size), side="left")[row]
    shape = (batch_size, max_predictions_of_packed_sequence(plan.seq_len, plan.config))
    return {
        "masked_positions": _zeros_with_values_at(shape, row, rank, position, np.int32),
        "masked_labels": _zeros_with_values_at(shape, row, rank, labels, np.int32),
        "masked_weights": _zeros_with_values_at(shape, row, rank, 1, np.float32),
    }


def _arrays_per_example(
    plan: SequencePlan, batch_size: int, rows_of_examples: np.ndarray, cls_positions: np.ndarray, labels: np.ndarray
) -> Batch:
    """Return the arrays with a value for each example, [batch, examples], or [batch] without packing."""
    shape = (batch_size, plan.config.packing)
    entry = np.arange(len(rows_of_examples)) - np.searchsorted(rows_of_examples, rows_of_examples, side="left")
    arrays = {
        "next_sentence_labels": _zeros_with_values_at(shape, rows_of_examples, entry, labels, np.int32),
        "example_weights": _zeros_with_values_at(shape, rows_of_examples, entry, 1, np.float32),
        "cls_positions": _zeros_with_values_at(shape, rows_of_examples, entry, cls_positions, np.int32),
    }
    return arrays if plan.packing else {name: array[:, 0] for name, array in arrays.items()}


def _array_with_values_at(
    shape: tuple[int, ...], positions: np.ndarray, values: np.ndarray | int, fill: int = 0
) -> np.ndarray:
    """Return an int32 array of `shape` with `values` at flat positions and `fill` elsewhere."""
    flat = np.full(shape[0] * shape[1], fill, np.int32)
    flat[positions] = values
    return flat.reshape(shape)


def _zeros_with_values_at(
    shape: tuple[int, int], row: np.ndarray, column: np.ndarray, values: np.ndarray | int, dtype: type
) -> np.ndarray:
    """Return an array of shape `shape` with `values` at [row, column], and zeros elsewhere."""
    array: np.ndarray = np.zeros(shape, dtype)
    array[row, column] = values
    return array


class ArrayShape(NamedTuple):
    """Shape and dtype of an array of a batch."""

    shape: tuple[int, ...]
    dtype: Any


def batch_shapes(batch_size: int, seq_len: int, config: DataConfig) -> dict[str, ArrayShape]:
    """Return the shape and the dtype of each array of a `Batch`, in order; no corpus is needed."""
    tokens, masked = (batch_size, seq_len), (batch_size, max_predictions_of_packed_sequence(seq_len, config))
    examples = (batch_size, config.packing) if config.packing > 1 else (batch_size,)
    shapes = {
        "input_ids": ArrayShape(tokens, np.int32),
        "token_type_ids": ArrayShape(tokens, np.int32),
        "attention_mask": ArrayShape(tokens, np.int32),
        "masked_positions": ArrayShape(masked, np.int32),
        "masked_labels": ArrayShape(masked, np.int32),
        "masked_weights": ArrayShape(masked, np.float32),
    }
    if SENTENCE_PAIRS[config.sentence_pairs].num_texts == 2:
        shapes["next_sentence_labels"] = ArrayShape(examples, np.int32)
    shapes["example_weights"] = ArrayShape(examples, np.float32)
    if config.packing > 1:
        shapes |= {"segment_ids": ArrayShape(tokens, np.int32), "cls_positions": ArrayShape(examples, np.int32)}
    return shapes
