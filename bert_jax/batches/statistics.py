"""Statistics of sequences: padding, masks, pairs, and the fraction of the corpus that sequences read."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.batches.masking import Vocabulary
from bert_jax.batches.pipeline import Sequences, Symbols, make_sequences
from bert_jax.config import DataConfig
from bert_jax.corpus.store import ReadableSplit, RecordArrays, running_total

MAX_COVERED_TOKENS = 4_000_000  # two epochs of sequences over this number of tokens take a few seconds
NUM_SEQUENCES = 4096
_SEQUENCES_AT_ONCE = 256
_FIRST_NUMBER = 4  # the smaller ids are special tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceFigures:
    """Figures of the first `num_sequences` sequences of `seq_len` tokens; an epoch has `num_per_epoch` sequences.

    Attributes:
        seq_len, num_sequences, num_per_epoch: number of tokens per sequence, of sequences in these figures, and of
            sequences per epoch.
        fill: fraction of tokens that are not padding.
        examples: number of examples per sequence.
        predicted: fraction of the tokens without padding that are predicted.
        masked, random, unchanged: fractions of the predicted tokens that become [MASK], become a random token, or stay;
            a random token may equal the original token.
        positive_pairs: fraction of pairs with label 1; None without pairs.
        idle: fraction of sequences without a prediction.
    """

    seq_len: int
    num_sequences: int
    num_per_epoch: int
    fill: float
    examples: float
    predicted: float
    masked: float
    random: float
    unchanged: float
    positive_pairs: float | None
    idle: float


def sequence_figures(sequences: Sequences, mask_id: int, num_sequences: int = NUM_SEQUENCES) -> SequenceFigures:
    """Return figures of the first sequences of an epoch, which are a random sample of all sequences."""
    num_sequences = min(num_sequences, sequences.num_per_epoch)
    real = predictions = masked = unchanged = idle = examples = 0
    labels: int | None = None
    seq_len = 0
    for first in range(0, num_sequences, _SEQUENCES_AT_ONCE):
        batch = sequences.batch(np.arange(first, min(first + _SEQUENCES_AT_ONCE, num_sequences)))
        seq_len = batch["input_ids"].shape[1]
        is_predicted = batch["masked_weights"] > 0
        shown = np.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)
        real += int(batch["attention_mask"].sum())
        predictions += int(is_predicted.sum())
        masked += int((is_predicted & (shown == mask_id)).sum())
        unchanged += int((is_predicted & (shown == batch["masked_labels"])).sum())
        idle += int((~is_predicted.any(axis=1)).sum())
        examples += int(batch["example_weights"].sum())
        if "next_sentence_labels" in batch:
            labels = (labels or 0) + int(batch["next_sentence_labels"].sum())
    at_least_1 = max(1, predictions)
    return SequenceFigures(
        seq_len=seq_len,
        num_sequences=num_sequences,
        num_per_epoch=sequences.num_per_epoch,
        fill=real / (num_sequences * seq_len),
        examples=examples / num_sequences,
        predicted=predictions / real,
        masked=masked / at_least_1,
        random=(predictions - masked - unchanged) / at_least_1,
        unchanged=unchanged / at_least_1,
        positive_pairs=None if labels is None else labels / examples,
        idle=idle / num_sequences,
    )


class CoveredFractions(NamedTuple):
    """The fraction of the tokens of a split that one epoch reads, and the fraction that two epochs read."""

    one_epoch: float
    two_epochs: float


def covered_token_fractions(
    split: ReadableSplit, separators: int, seq_len: int, config: DataConfig, limit: int = MAX_COVERED_TOKENS
) -> CoveredFractions:
    """Return the fraction of tokens that are read in one epoch, and the fraction that are read in two epochs.

    Each source with a weight above 0 is read once per epoch. If a split has more than `limit` tokens, about
    `limit` tokens from the beginnings of the sources are used.

    Args:
        split: `corpus.Split`.
        separators: number of [SEP]s between the texts of a pair.
        seq_len: tokens per sequence.
        config: settings of sequences, and weights of sources.
        limit: approximate number of tokens that are checked.

    Raises:
        UserError: `make_sequences` raises it.
    """
    weights = config.weights or (1.0,) * (len(split.source_documents) - 1)
    numbered = _NumberedTokens(split, limit, np.array(weights) > 0)
    vocab_size = _FIRST_NUMBER + numbered.num_tokens
    symbols = Symbols(0, 1, 2, separators, Vocabulary(vocab_size, 3, np.zeros(0, bool)))
    fields = ("sentence_pairs", "packing", "short_seq_probability", "dupe_factor")
    sequences = make_sequences(
        numbered, symbols, seq_len, 0, DataConfig(**{name: getattr(config, name) for name in fields})
    )
    fractions, is_covered = [], np.zeros(vocab_size, bool)
    for epoch in range(2):
        numbers = epoch * sequences.num_per_epoch + np.arange(sequences.num_per_epoch)
        for part in np.array_split(numbers, -(-len(numbers) // _SEQUENCES_AT_ONCE)):
            batch = sequences.batch(part)
            hidden = np.nonzero(batch["masked_weights"])
            batch["input_ids"][hidden[0], batch["masked_positions"][hidden]] = batch["masked_labels"][hidden]
            is_covered[batch["input_ids"]] = True
        fractions.append(float(is_covered[_FIRST_NUMBER:].mean()))
    return CoveredFractions(fractions[0], fractions[1])


class _NumberedTokens:
    """The beginnings of a split's sources, about `limit` tokens, with consecutive token ids from _FIRST_NUMBER on.

    A source becomes empty if its entry of `is_read`, bool [sources], is False.
    """

    def __init__(self, split: ReadableSplit, limit: int, is_read: np.ndarray):
        start = running_total(split.tokens_per_record)
        begins = np.zeros(len(start) - 1, bool)
        begins[split.first_record[:-1]] = True
        source_record = split.first_record[split.source_documents]
        source_tokens = np.diff(start[source_record])
        tokens_before = start[:-1] - np.repeat(start[source_record[:-1]], np.diff(source_record))
        fraction = min(1.0, limit / max(1, int(start[-1])))
        is_kept = tokens_before < np.repeat(fraction * source_tokens, np.diff(source_record))
        for first in split.source_documents[:-1].tolist():  # a pair needs two documents
            is_kept[split.first_record[first : min(first + 2, len(split.first_record) - 1)]] = True
        is_kept &= np.repeat(is_read, np.diff(source_record))
        self._split, self._records = split, np.flatnonzero(is_kept)
        self.tokens_per_record = split.tokens_per_record[is_kept]
        self.sentences_per_record = split.sentences_per_record[is_kept]
        self.first_record = np.append(np.flatnonzero(begins[is_kept]), len(self._records))
        self.source_documents = running_total(begins & is_kept)[source_record]
        self._start = running_total(self.tokens_per_record)
        self.num_tokens = int(self._start[-1])

    def read(self, record_indices: np.ndarray) -> RecordArrays:
        """Return consecutive token ids in place of the tokens of the given records; see `Split.read`."""
        _, lengths, sentences = self._split.read(self._records[record_indices])
        sizes = self.tokens_per_record[record_indices]
        shift = self._start[record_indices] + _FIRST_NUMBER - running_total(sizes)[:-1]
        return RecordArrays(np.repeat(shift, sizes) + np.arange(sizes.sum()), lengths, sentences)
