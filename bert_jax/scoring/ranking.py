"""Rankings of documents for queries, by vectors, BM25 or a cross-encoder; the measures of trec_eval on rankings.

If documents have equal scores, the document with the larger id (in byte order) ranks first, as in trec_eval. Scores are
float32. A search ranks the earlier of two documents with equal scores first, so the documents must be sorted by
`retrieval_files.sort_in_tie_order`.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_jax.inference.cross_encoder import PairScores
from bert_jax.inference.vectors import TextVectors
from bert_jax.objectives.vector_scores import Scores, inner_products
from bert_jax.search.bm25 import make_bm25_scorer
from bert_jax.search.top_documents import top_documents

DEPTH = 1_000  # documents in a ranking, as in BEIR
NOT_RETRIEVED = -1
MEASURES = ("ndcg@10", "recall@10", "recall@100", "mrr@10", "map")

Progress = Callable[[int, int], None]


def rank_by_vectors(
    queries: TextVectors, documents: TextVectors, scores: Scores = inner_products, depth: int = DEPTH
) -> np.ndarray:
    """Return the documents with the largest scores, best first, int64 `[queries, min(depth, documents)]`.

    Args:
        queries: vectors of the queries.
        documents: vectors of the documents, sorted as in `retrieval_files.sort_in_tie_order`.
        scores: function that compares the vectors.
        depth: maximum number of documents in a ranking.
    """
    return top_documents(queries, documents, depth, scores).indices


def rank_by_bm25(
    queries: Sequence[str],
    documents: Sequence[str],
    depth: int = DEPTH,
    progress: Progress = lambda num_done, total: None,
) -> np.ndarray:
    """Return the documents with the largest BM25 scores, best first, int64 `[queries, min(depth, documents)]`.

    In a ranking, NOT_RETRIEVED takes the place of documents that share no word with the query.

    Args:
        queries: texts of the queries.
        documents: texts of the documents, sorted as in `retrieval_files.sort_in_tie_order`.
        depth: maximum number of documents in a ranking.
        progress: function that is called with the number of finished queries and the number of all queries.
    """
    rankings = np.full((len(queries), min(depth, len(documents))), NOT_RETRIEVED, np.int64)
    for row, scores in enumerate(make_bm25_scorer(documents)(queries)):
        best = np.argsort(-scores, kind="stable")[: rankings.shape[1]]
        rankings[row] = np.where(scores[best] > 0, best, NOT_RETRIEVED)
        progress(row + 1, len(queries))
    return rankings


def rerank_by_pairs(
    rankings: Sequence[np.ndarray],
    scores_of_pairs: PairScores,
    queries: Sequence[str],
    documents: Sequence[str],
    depth: int,
    progress: Progress = lambda num_done, total: None,
) -> list[np.ndarray]:
    """Return rankings whose first documents are sorted again, by the scores of pairs of a query and a document.

    Documents with equal scores keep their order, and the documents after rank `depth` keep their ranks. A pair that is
    in several rankings is scored once.

    Args:
        rankings: rankings of the documents for the queries, int `[queries, ranks]`, as `rank_by_bm25` returns them.
        scores_of_pairs: function from pairs (query, document) to scores.
        queries: texts of the queries.
        documents: texts of the documents.
        depth: number of documents of each query that are sorted again.
        progress: function that is called with the number of finished queries and the number of all queries.
    """
    reranked = [ranking.copy() for ranking in rankings]
    for row, query in enumerate(queries):
        firsts = [ranking[row, :depth] for ranking in rankings]
        firsts = [first[first != NOT_RETRIEVED] for first in firsts]
        candidates = np.unique(np.concatenate(firsts))  # sorted
        if len(candidates):
            scores = scores_of_pairs([(query, documents[index]) for index in candidates])
            for ranking, first in zip(reranked, firsts, strict=True):
                order = np.argsort(-scores[np.searchsorted(candidates, first)], kind="stable")
                ranking[row, : len(first)] = first[order]
        progress(row + 1, len(queries))
    return reranked


def ndcg_recall_mrr_map(gains: np.ndarray, judged: Sequence[Sequence[int]]) -> Mapping[str, np.ndarray]:
    """Return a dict from the name of each measure to its value for each query, float64 `[queries]`.

    nDCG has a linear gain and the discount log2(rank + 1) (Järvelin and Kekäläinen 2002). MAP is computed from the
    whole ranking. The values equal trec_eval's `ndcg_cut`, `recall` and `map`, and its `recip_rank` over the first ten
    documents.

    Args:
        gains: relevance of each ranked document, int `[queries, depth]`; 0 for a document without a judgment.
        judged: for each query, the relevances of all its judged documents.
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
    """Return the quotient `values / totals` for each query, or 0 if the total is 0, as trec_eval does."""
    return np.divide(values, totals, out=np.zeros(len(values)), where=totals > 0)
