"""Word starts that a segmenter found, stored as a bit of each token id in the records and sequences of a corpus."""

from typing import NamedTuple

import numpy as np

from bert_jax.corpus.store import ReadableSplit, RecordArrays, Split

MARK = 30  # index of the bit that marks a token as the beginning of a word; all ids are smaller than 2**30


class MarkedSplit:
    """A split whose token ids, uint32, have the bit MARK where a token begins a word.

    `continues`, bool [vocab_size], is True for tokens that continue a word according to the vocabulary. In a mixture,
    `continues` marks the words of corpora that were prepared without a segmenter.
    """

    def __init__(self, split: Split, continues: np.ndarray):
        self._split, self._continues = split, continues
        self.tokens_per_record, self.sentences_per_record = split.tokens_per_record, split.sentences_per_record
        self.first_record, self.source_documents = split.first_record, split.source_documents

    def read(self, record_indices: np.ndarray) -> RecordArrays:
        """Return the given records; the id of a token that begins a word has the bit MARK."""
        tokens, lengths, sentences, begins = self._split.read_words(record_indices, self._continues)
        return RecordArrays(tokens | np.left_shift(begins, MARK, dtype=np.uint32), lengths, sentences)


def mark_segmented_words(split: ReadableSplit, continues: np.ndarray) -> ReadableSplit:
    """Return a `MarkedSplit` if the corpus was prepared with a segmenter, otherwise the split itself."""
    return MarkedSplit(split, continues) if isinstance(split, Split) and split.has_words else split


class UnmarkedIds(NamedTuple):
    """Token ids without the bit MARK, int32 [tokens], and whether each id had the bit, bool [tokens]."""

    ids: np.ndarray
    begins_word: np.ndarray


def split_off_word_start_marks(ids: np.ndarray) -> UnmarkedIds:
    """Return ids without the bit MARK, int32 [tokens], and whether each id had the bit, bool [tokens]."""
    return UnmarkedIds(ids & (1 << MARK) - 1, ids >> MARK != 0)
