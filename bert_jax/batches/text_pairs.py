"""Pairs of texts that belong together, from documents without labels: pure functions of the sequence number.

Pair n comes from a record, which is a document or a part of a document. An epoch is a permutation of the records that
have enough sentences. A rule draws both texts from the record, by random bits of the seed, the epoch and the record.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, permuted_indices, random_bits, uniform_floats, uniform_integers
from bert_jax.corpus.store import ReadableSplit, running_total

KEEP_SENTENCE = 0.1  # fraction of inverse-cloze passages that keep their sentence, as in Lee et al. 2019
MIN_CROP = 4  # minimum number of tokens of a crop; a shorter record is used whole


class RecordText(NamedTuple):
    """The text of a record, and the random bits with which a rule chooses a pair of texts."""

    tokens: np.ndarray  # int64 [tokens]
    bounds: np.ndarray  # int64 [sentences + 1]: sentence s has the tokens bounds[s]:bounds[s + 1]
    is_word_start: np.ndarray  # bool [tokens]
    bits: np.ndarray  # uint64 [4]


class TextPair(NamedTuple):
    """Token ids of a query and of the document that belongs to it, int64 each, without special tokens."""

    query: np.ndarray
    document: np.ndarray


class TextLimits(NamedTuple):
    """Maximum numbers of tokens of a query and of a document."""

    query: int
    document: int


def adjacent_text_pair(record: RecordText, limits: TextLimits) -> TextPair:
    """Return the sentences before a random border between two sentences, and the sentences after the border.

    The texts are as long as the limits allow. If a sentence is longer than its limit, the part next to the border is
    taken.
    """
    inner = len(record.bounds) - 2
    cut = int(record.bounds[1 + uniform_integers(record.bits[:1], inner)[0]])
    before = _range_of_whole_sentences(record.bounds, cut - limits.query, cut)
    after = _range_of_whole_sentences(record.bounds, cut, cut + limits.document)
    return TextPair(record.tokens[before], record.tokens[after])


def random_crop_pair(record: RecordText, limits: TextLimits) -> TextPair:
    """Return two random crops, which may overlap, of one window of the record (Contriever, Izacard et al. 2022).

    The window has at most twice the maximum number of tokens of a document. Crops begin and end between words.
    """
    size = min(len(record.tokens), 2 * limits.document)
    begin = uniform_integers(record.bits[:1], len(record.tokens) - size + 1)[0]
    spans = []
    for position, limit in enumerate(limits):
        lengths, offsets = random_bits(record.bits[1 + position], np.arange(2))[:, None]
        shortest, longest = min(MIN_CROP, size), min(limit, size)
        length = shortest + uniform_integers(lengths, max(longest - shortest, 0) + 1)[0]
        start = begin + uniform_integers(offsets, size - length + 1)[0]
        spans.append(_range_of_whole_words(record.is_word_start, int(start), int(start + length)))
    return TextPair(record.tokens[spans[0]], record.tokens[spans[1]])


def inverse_cloze_pair(record: RecordText, limits: TextLimits) -> TextPair:
    """Return a random sentence, and the sentences around it (Lee et al. 2019).

    The sentence is removed from the passage, except in a fraction KEEP_SENTENCE of the pairs. A sentence that would
    fill the passage is never kept.
    """
    chosen = uniform_integers(record.bits[:1], len(record.bounds) - 1)[0]
    begin, end = int(record.bounds[chosen]), int(record.bounds[chosen + 1])
    keeps = uniform_floats(record.bits[1:2])[0] < KEEP_SENTENCE and end - begin <= limits.document - 2
    capacity = limits.document - keeps * (end - begin)
    before = _range_of_whole_sentences(record.bounds, begin - capacity // 2, begin) if begin else slice(0, 0)
    rest = capacity - (before.stop - before.start)
    after = _range_of_whole_sentences(record.bounds, end, end + rest) if end < len(record.tokens) else slice(0, 0)
    rest = capacity - (after.stop - after.start)  # if the record ends early, take more text before the sentence
    before = _range_of_whole_sentences(record.bounds, begin - rest, begin) if begin else slice(0, 0)
    parts = [record.tokens[before], record.tokens[begin:end] if keeps else record.tokens[:0], record.tokens[after]]
    return TextPair(record.tokens[begin:end][: limits.query], np.concatenate(parts))


def equal_text_pair(record: RecordText, limits: TextLimits) -> TextPair:
    """Return a text of whole sentences twice; dropout makes its two vectors differ (SimCSE, Gao et al. 2021)."""
    begin = int(record.bounds[uniform_integers(record.bits[:1], len(record.bounds) - 1)[0]])
    text = record.tokens[_range_of_whole_sentences(record.bounds, begin, begin + min(limits))]
    return TextPair(text, text)


class PairRule(NamedTuple):
    """A row of PAIR_RULES.

    Attributes:
        pair: the function that draws a pair of a record.
        min_sentences: smallest number of sentences of a record.
        dev_rule: the row that makes dev pairs; None: this row. Pairs of equal texts have a cosine of 1 for any model,
            so such pairs cannot rank models.
    """

    pair: Callable[[RecordText, TextLimits], TextPair]
    min_sentences: int
    dev_rule: str | None = None


PAIR_RULES: dict[str, PairRule] = {
    "adjacent": PairRule(adjacent_text_pair, 2),
    "crop": PairRule(random_crop_pair, 1),
    "inverse_cloze": PairRule(inverse_cloze_pair, 2),
    "dropout": PairRule(equal_text_pair, 1, dev_rule="crop"),
}


class TextPairs:
    """The pairs of a split, by sequence number.

    Attributes:
        num_per_epoch: number of records with enough sentences; each of these records gives one pair per epoch.
        num_without: number of records with too few sentences for a pair.
    """

    def __init__(self, split: ReadableSplit, continues: np.ndarray, rule: str, limits: TextLimits, seed: int):
        """Make the pairs of a split.

        Args:
            split: a `corpus.Split`.
            continues: bool [vocab_size], `Tokenizer.continues`.
            rule: a row of PAIR_RULES.
            limits: maximum numbers of tokens.
            seed: seed of the order of the records and of the choice of texts.
        """
        self._split, self._continues, self._rule = split, continues, PAIR_RULES[rule]
        self._limits, self._seed = limits, seed
        self._records = np.flatnonzero(split.sentences_per_record >= self._rule.min_sentences)
        self.num_per_epoch = len(self._records)
        self.num_without = len(split.sentences_per_record) - len(self._records)

    def pairs(self, sequence_numbers: np.ndarray) -> list[TextPair]:
        """Return the pair of each sequence number, int64 [pairs]; numbers may repeat."""
        epoch, item = np.divmod(np.asarray(sequence_numbers, np.int64), self.num_per_epoch)
        seeds = random_bits(self._seed, Stream.TEXT_PAIR_ORDER, epoch)
        records = self._records[permuted_indices(item, self.num_per_epoch, seeds)]
        bits = random_bits(self._seed, Stream.TEXT_PAIR, epoch[:, None], records[:, None], np.arange(4))
        tokens, lengths, num_sentences = self._split.read(records)
        sizes = self._split.tokens_per_record[records]
        parts = zip(
            np.split(tokens.astype(np.int64), np.cumsum(sizes)[:-1]),
            np.split(lengths, np.cumsum(num_sentences)[:-1]),
            bits,
            strict=True,
        )
        return [
            self._rule.pair(RecordText(ids, running_total(sentences), ~self._continues[ids], drawn), self._limits)
            for ids, sentences, drawn in parts
        ]


def _range_of_whole_sentences(bounds: np.ndarray, begin: int, end: int) -> slice:
    """Return the longest range of whole sentences in [begin, end); `begin` or `end` is a border of sentences.

    If no whole sentence fits, return the range from `begin` to `end`, limited to the tokens of the record.
    """
    inside = bounds[(bounds >= begin) & (bounds <= end)]
    if len(inside) > 1:
        return slice(int(inside[0]), int(inside[-1]))
    return slice(max(begin, 0), min(end, int(bounds[-1])))


def _range_of_whole_words(is_word_start: np.ndarray, begin: int, end: int) -> slice:
    """Return the range of whole words between `begin` and `end`; without a whole word, return [begin, end)."""
    borders = np.flatnonzero(np.append(is_word_start, True)[begin : end + 1]) + begin
    return slice(int(borders[0]), int(borders[-1])) if len(borders) > 1 else slice(begin, end)
