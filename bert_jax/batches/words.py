"""Words that a segmenter has found in a corpus: a bit of each token, from the records to its place in a sequence."""

import numpy as np

from bert_jax.batches.layout import ReadableSplit
from bert_jax.corpus.store import Split

MARK = 30  # the bit that says that a word begins, above all ids


class MarkedSplit:
    """A split whose ids, uint32, have the bit MARK where a word begins.

    `continues` bool [vocab_size]: of the vocabulary, for corpora of a mixture that were prepared without a segmenter.
    """

    def __init__(self, split: Split, continues: np.ndarray):
        self._split, self._continues = split, continues
        self.tokens_per_record, self.sentences_per_record = split.tokens_per_record, split.sentences_per_record
        self.first_record, self.source_documents = split.first_record, split.source_documents

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the given records, as `Split.read`."""
        tokens, lengths, sentences, begins = self._split.read_words(records, self._continues)
        return tokens | np.left_shift(begins, MARK, dtype=np.uint32), lengths, sentences


def mark_words(split: ReadableSplit, continues: np.ndarray) -> ReadableSplit:
    """Return a `MarkedSplit` where a segmenter has found words in it, otherwise the split itself."""
    return MarkedSplit(split, continues) if isinstance(split, Split) and split.has_words else split


def take_marks(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return int32 [tokens] ids without their bit, and bool [tokens], which had it."""
    return ids & (1 << MARK) - 1, ids >> MARK != 0
