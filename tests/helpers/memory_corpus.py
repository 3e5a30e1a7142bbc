"""A corpus in memory with the reading interface of `bert_jax.corpus.store.Split`."""

import numpy as np

from bert_jax.batches.masking import Vocabulary
from bert_jax.batches.pipeline import Symbols
from bert_jax.corpus.store import RecordArrays

PAD, CLS, SEP, MASK = range(4)
FIRST_TOKEN = 4
MAX_RECORD = 2048


class MemorySplit:
    """Documents given as lists of sentence lengths; token t of the split has the id FIRST_TOKEN + t.

    `sources`: number of documents of each source, in order; None: one source of all documents.
    """

    def __init__(
        self, documents: list[list[int]], max_record: int = MAX_RECORD, sources: tuple[int, ...] | None = None
    ):
        self.documents = documents
        self.source_documents = np.cumsum([0, *(sources or [len(documents)])])
        self.sentences = []  # lengths of the sentences of each record
        first_record = [0]
        for document in documents:
            record: list[int] = []
            for sentence in document:
                if record and sum(record) + sentence > max_record:
                    self.sentences.append(record)
                    record = []
                record.append(sentence)
            self.sentences.append(record)
            first_record.append(len(self.sentences))
        self.first_record = np.array(first_record, np.int64)
        self.tokens_per_record = np.array([sum(record) for record in self.sentences], np.int64)
        self.sentences_per_record = np.array([len(record) for record in self.sentences], np.int64)
        self.document_start = np.cumsum([0] + [sum(document) for document in documents])
        self.vocab_size = FIRST_TOKEN + int(self.document_start[-1])
        self._record_start = np.cumsum([0] + self.tokens_per_record.tolist())
        self._sentence_start = np.cumsum([0] + [len(record) for record in self.sentences])
        self._lengths = np.array([length for record in self.sentences for length in record], np.int32)

    def read(self, records: np.ndarray) -> RecordArrays:
        """Return records as `Split.read`."""
        tokens = (FIRST_TOKEN + _ranges(self._record_start, records)).astype(np.uint32)
        lengths = self._lengths[_ranges(self._sentence_start, records)]
        return RecordArrays(tokens, lengths, np.diff(self._sentence_start)[records].astype(np.int32))

    def symbols(self, separators: int = 1) -> Symbols:
        """Return symbols with a vocabulary in which every second token continues a word."""
        continues = np.arange(self.vocab_size) % 2 == 1
        continues[:FIRST_TOKEN] = False
        return Symbols(PAD, CLS, SEP, separators, Vocabulary(self.vocab_size, MASK, continues))

    def document_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the document of each token id; -1 for special tokens."""
        return np.searchsorted(self.document_start, ids - FIRST_TOKEN, side="right") - 1


def _ranges(start: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return start[i]:start[i + 1] for every chosen i, end to end."""
    count = start[chosen + 1] - start[chosen]
    return np.repeat(start[chosen] - (np.cumsum(count) - count), count) + np.arange(count.sum())


def random_documents(seed: int, documents: int, sentences: tuple[int, int], tokens: tuple[int, int]) -> list[list[int]]:
    """Return documents with uniform numbers of sentences and of tokens per sentence; bounds are inclusive."""
    random = np.random.default_rng(seed)
    counts = random.integers(sentences[0], sentences[1] + 1, documents)
    return [random.integers(tokens[0], tokens[1] + 1, count).tolist() for count in counts]
