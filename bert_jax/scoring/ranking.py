"""Rankings of documents for queries, by vectors or by BM25, and the measures of trec_eval on rankings.

Documents with equal scores rank by their ids, the larger id first in byte order, as in trec_eval. Scores are float32.
"""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference.vectors import TextVectors
from bert_jax.objectives.vector_scores import Scores, inner_products

DEPTH = 1_000  # documents in a ranking, as in BEIR
QUERY_BLOCK, DOCUMENT_BLOCK = 256, 16_384  # of the scores in memory at once
BLOCK_NUMBERS = 1 << 25  # numbers of a block of documents
NOT_RETRIEVED = -1
# Robertson and Zaragoza 2009, with the parameters of Anserini for BEIR.
BM25_K1, BM25_B = 0.9, 0.4

Progress = Callable[[int, int], None]


def tie_order(document_ids: Sequence[str]) -> np.ndarray:
    """Return the indices of the documents from the largest id to the smallest, int64 `[documents]`."""
    keys = [identifier.encode() for identifier in document_ids]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__, reverse=True), np.int64)


def rank_by_vectors(
    queries: TextVectors,
    documents: TextVectors,
    order: np.ndarray,
    depth: int = DEPTH,
    scores: Scores = inner_products,
) -> np.ndarray:
    """Return the documents with the largest scores, best first, int64 `[queries, min(depth, documents)]`.

    The search is exact. Memory holds QUERY_BLOCK x DOCUMENT_BLOCK scores, and BLOCK_NUMBERS numbers of documents,
    whatever the number of documents.

    Args:
        queries: float32 `[queries, width]`, or vectors of another kind.
        documents: vectors of the same kind.
        order: the documents in the order of ties, from `tie_order`.
        depth: documents in a ranking.
        scores: comparison of vectors.
    """
    depth, block = min(depth, len(documents)), min(DOCUMENT_BLOCK, len(documents))
    shape = queries[np.zeros(1, np.int64)].shape[1:]
    block = min(block, max(1, BLOCK_NUMBERS // documents[np.zeros(1, np.int64)].size))
    rankings = np.empty((len(queries), depth), np.int64)
    for start in range(0, len(queries), QUERY_BLOCK):
        vectors = np.zeros((min(QUERY_BLOCK, len(queries)), *shape), np.float32)
        filled = queries[np.arange(start, min(start + QUERY_BLOCK, len(queries)))]
        vectors[: len(filled)] = filled
        best = jnp.full((len(vectors), depth), -jnp.inf)
        ranks = jnp.zeros((len(vectors), depth), jnp.int32)
        for first in range(0, len(documents), block):
            # All blocks have one shape. So the last block starts earlier, and `first` masks its documents of before.
            begin = min(first, len(documents) - block)
            members = documents[order[begin : begin + block]]
            best, ranks = _merge_block(scores, best, ranks, vectors, members, begin, first)
        rankings[start : start + QUERY_BLOCK] = order[np.asarray(ranks)[: len(filled)]]
    return rankings


class _BestDocuments(NamedTuple):
    """The best scores of each query, and the positions of their documents in the order of ties."""

    scores: jax.Array
    ranks: jax.Array


@functools.partial(jax.jit, static_argnums=0)
def _merge_block(
    scores: Scores,
    best: jax.Array,
    ranks: jax.Array,
    queries: jax.Array,
    documents: jax.Array,
    begin: int,
    first: int,
) -> _BestDocuments:
    """Return the best scores and their positions in the order of ties, with a block that begins at `begin`.

    `top_k` prefers the earlier of equal values, and the earlier documents come first.
    """
    positions = begin + jnp.arange(len(documents), dtype=jnp.int32)
    of_block = jnp.where(positions >= first, scores(queries, documents), -jnp.inf)
    best = jnp.concatenate([best, of_block], axis=1)
    ranks = jnp.concatenate([ranks, jnp.broadcast_to(positions, of_block.shape)], axis=1)
    best, columns = jax.lax.top_k(best, ranks.shape[1] - len(documents))
    return _BestDocuments(best, jnp.take_along_axis(ranks, columns, axis=1))


def rank_by_bm25(
    queries: Sequence[str],
    documents: Sequence[str],
    order: np.ndarray,
    depth: int = DEPTH,
    progress: Progress = lambda num_done, total: None,
) -> np.ndarray:
    """Return the documents with the largest BM25 scores, best first, int64 `[queries, min(depth, documents)]`.

    A word is a sequence of two or more word characters, in lower case. There is no stemming and no list of stop words,
    so the ranking suits any language that separates words by spaces. A document without a word of the query is
    NOT_RETRIEVED. The scores are Lucene's, computed by the package `bm25s`.

    Args:
        queries: texts.
        documents: texts.
        order: the documents in the order of ties, from `tie_order`.
        depth: documents in a ranking.
        progress: called with the number of finished queries and the number of all queries.
    """
    import bm25s  # here, as the import of bm25s runs a JAX computation

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets its own level to DEBUG
    split = functools.partial(bm25s.tokenize, stopwords=None, return_ids=False, show_progress=False)
    index = bm25s.BM25(method="lucene", k1=BM25_K1, b=BM25_B)
    words = split([documents[document] for document in order])
    rankings = np.full((len(queries), min(depth, len(documents))), NOT_RETRIEVED, np.int64)
    if not any(words):
        return rankings
    index.index(words, show_progress=False)
    for row, query in enumerate(split(list(queries))):
        known = [word for word in query if word in index.vocab_dict]
        if known:
            scores = index.get_scores(known).astype(np.float32)
            best = np.argsort(-scores, kind="stable")[: rankings.shape[1]]
            rankings[row] = np.where(scores[best] > 0, order[best], NOT_RETRIEVED)
        progress(row + 1, len(queries))
    return rankings


def measures_of_gains(gains: np.ndarray, judged: Sequence[Sequence[int]]) -> Mapping[str, np.ndarray]:
    """Return the measures of each query: name -> float64 `[queries]`.

    nDCG has a linear gain and the discount log2(rank + 1) (Järvelin and Kekäläinen 2002). MAP is the mean over the
    whole ranking. The values equal trec_eval's `ndcg_cut`, `recall`, `map`, and `recip_rank` of the first ten.

    Args:
        gains: relevance of each ranked document, int `[queries, depth]`; 0 without a judgment.
        judged: the relevances of all judged documents of each query.
    """
    gains = np.maximum(gains, 0)
    discounts = 1 / np.log2(np.arange(2, gains.shape[1] + 2))
    relevant = gains > 0
    num_relevant = np.array([sum(value > 0 for value in values) for values in judged])
    ideal = np.zeros((len(judged), 10))
    for row, values in enumerate(judged):
        best = sorted((max(value, 0) for value in values), reverse=True)[:10]
        ideal[row, : len(best)] = best
    ideal_gain = ideal @ (1 / np.log2(np.arange(2, 12)))
    precisions = relevant.cumsum(axis=1) / np.arange(1, gains.shape[1] + 1)
    first = np.where(relevant[:, :10].any(axis=1), relevant[:, :10].argmax(axis=1) + 1, np.inf)
    return {
        "ndcg@10": _ratio_or_zero((gains[:, :10] * discounts[:10]).sum(axis=1), ideal_gain),
        "recall@10": _ratio_or_zero(relevant[:, :10].sum(axis=1), num_relevant),
        "recall@100": _ratio_or_zero(relevant[:, :100].sum(axis=1), num_relevant),
        "mrr@10": 1 / first,
        "map": _ratio_or_zero((precisions * relevant).sum(axis=1), num_relevant),
    }


def _ratio_or_zero(values: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return `values / totals`; like trec_eval, return 0 for a query without a relevant document."""
    return np.divide(values, totals, out=np.zeros(len(values)), where=totals > 0)
