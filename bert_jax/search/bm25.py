"""Scores of documents by the words that they share with a query: BM25 (Robertson and Zaragoza 2009)."""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np

# The parameters of Anserini for BEIR.
K1, B = 0.9, 0.4

Bm25 = Callable[[Sequence[str]], Iterator[np.ndarray]]


def make_bm25_scorer(documents: Sequence[str]) -> Bm25:
    """Return a function that takes queries and yields the scores of all documents, float32 `[documents]`, per query.

    A word is a sequence of two or more word characters, in lower case. There is no stemming and no list of stop words,
    so the scores suit any language that separates words by spaces. A document that shares no word with the query has
    score 0. The scores follow the formula of Lucene and are computed by the package `bm25s`.
    """
    import bm25s  # imported here, as this import runs a JAX computation

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets its own level to DEBUG
    split = functools.partial(bm25s.tokenize, stopwords=None, return_ids=False, show_progress=False)
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    words = split(list(documents))
    has_words = any(words)
    if has_words:
        index.index(words, show_progress=False)

    def scores_of(queries: Sequence[str]) -> Iterator[np.ndarray]:
        for query in split(list(queries)):
            known = [word for word in query if word in index.vocab_dict] if has_words else []
            yield index.get_scores(known).astype(np.float32) if known else np.zeros(len(documents), np.float32)

    return scores_of
