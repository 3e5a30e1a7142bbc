"""The word starts of a segmenter, which are a bit of each token id in the records and sequences of a corpus."""

from typing import NamedTuple

import numpy as np

from bert_jax.batches.layout import ReadableSplit
from bert_jax.corpus.store import RecordArrays, Split

MARK = 30  # the bit of a token that begins a word, above all ids


class MarkedSplit:
    """A split whose ids, uint32, have the bit MARK if the token begins a word.

    `continues`, bool [vocab_size], comes from the vocabulary, for corpora of a mixture that were prepared without a
    segmenter.
    """

    def __init__(self, split: Split, continues: np.ndarray):
        self._split, self._continues = split, continues
        self.tokens_per_record, self.sentences_per_record = split.tokens_per_record, split.sentences_per_record
        self.first_record, self.source_documents = split.first_record, split.source_documents

    def read(self, records: np.ndarray) -> RecordArrays:
        """Return the given records, as `Split.read`."""
        tokens, lengths, sentences, begins = self._split.read_words(records, self._continues)
        return RecordArrays(tokens | np.left_shift(begins, MARK, dtype=np.uint32), lengths, sentences)


def with_marked_words(split: ReadableSplit, continues: np.ndarray) -> ReadableSplit:
    """Return a `MarkedSplit` if the split has a segmenter's words, otherwise the split itself."""
    return MarkedSplit(split, continues) if isinstance(split, Split) and split.has_words else split


class UnmarkedIds(NamedTuple):
    """Token ids without the mark of a word's beginning, int32 [tokens]; whether each had the mark, bool [tokens]."""

    ids: np.ndarray
    begins_word: np.ndarray


def split_off_marks(ids: np.ndarray) -> UnmarkedIds:
    """Return ids without the bit MARK, int32 [tokens], and whether each id had the bit, bool [tokens]."""
    return UnmarkedIds(ids & (1 << MARK) - 1, ids >> MARK != 0)
