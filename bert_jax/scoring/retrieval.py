"""Retrieval with a model, compared with BM25: every query is compared with every document of a collection."""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, weights_digest
from bert_jax.errors import UserError
from bert_jax.inference.cross_encoder import PairScores
from bert_jax.inference.embed import VectorsAndCount
from bert_jax.inference.vectors import mean_numbers_per_text
from bert_jax.scoring.ranking import (
    DEPTH,
    NOT_RETRIEVED,
    ndcg_recall_mrr_map,
    rank_by_bm25,
    rank_by_vectors,
    rerank_by_pairs,
)
from bert_jax.scoring.retrieval_files import Collection, read_collection
from bert_jax.search.smaller_vectors import (
    STORED_FORMS,
    VectorForm,
    parse_vector_forms,
    search_stored,
    truncate_vectors,
)
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, similarity_of, text_vectors
from bert_jax.search.top_documents import DOCUMENT_BLOCK

RESAMPLES = 1_000
INTERVAL = (2.5, 97.5)  # percentiles
MODEL, BM25, RERANKED = "model", "BM25", "reranked"
NDCG = "ndcg@10"
Progress = Callable[[str, int, int], None]  # (name of the work, number of finished items, number of all items)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalReport:
    """The measures of a model and of BM25 on a collection.

    Attributes:
        source: directory of the collection.
        split: name of the split whose judgments are used.
        weights: digest of the model's parameters.
        collection: the documents, queries and judgments.
        num_truncated: number of queries and documents that were truncated to the length that the model reads.
        similarity: name of the function that compares vectors.
        numbers_per_text: for QUERIES and DOCUMENTS, the mean count of numbers in the vectors of a text.
        rows: for MODEL, BM25, and both rankings as a cross-encoder sorted them, measure -> mean over the queries.
        intervals: for each of `rows`, measure -> 95 % confidence interval of the mean, by a bootstrap over queries.
        difference: measure -> 95 % confidence interval of the mean difference (model minus BM25), by the bootstrap of
            `intervals`.
        queries: for each of `rows`, measure -> value for each query, float64 `[queries]`.
        forms: for each name of a form of smaller vectors, the results of the search in these vectors.
    """

    source: str
    split: str
    weights: str
    collection: Collection
    num_truncated: int
    similarity: str
    numbers_per_text: Mapping[str, float]
    rows: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    difference: Mapping[str, tuple[float, float]]
    queries: Mapping[str, Mapping[str, np.ndarray]]
    forms: Mapping[str, "FormScore"]


class Reranker(NamedTuple):
    """A cross-encoder that sorts the first documents of a ranking again.

    Attributes:
        scores_of_pairs: function from pairs (query, document) to scores.
        depth: number of documents of each query that are sorted.
    """

    scores_of_pairs: PairScores
    depth: int


class FormScore(NamedTuple):
    """The size, time and quality of a search in a smaller form of the vectors.

    Attributes:
        num_bytes: size of the vectors of all documents.
        seconds: time of the search for all queries, without the embedding and the compilation.
        ndcg: nDCG@10.
        lost: nDCG@10 of the full vectors minus nDCG@10 of the smaller vectors.
    """

    num_bytes: int
    seconds: float
    ndcg: float
    lost: float


def score_retrieval(
    model: OpenModel,
    directory: pathlib.Path,
    split: str = "test",
    vectors: str = "",
    reranker: Reranker | None = None,
    progress: Progress = lambda task, num_done, total: None,
) -> RetrievalReport:
    """Return the measures of a model and of BM25 on a collection in the layout of BEIR.

    The vectors equal the vectors of `bert-jax embed`. The model directory's prompts for queries and documents apply,
    and texts that are too long for the model are truncated. A document that is the query itself is not ranked, as in
    `ranking_measures`.

    Args:
        model: any model; the model's heads are used only if the model's directory names a head that makes vectors.
        directory: directory of the collection, as in `read_collection`.
        split: name of the judgments.
        vectors: forms of smaller vectors in which the search is repeated, as in `parse_vector_forms`.
        reranker: cross-encoder that sorts the first documents of both rankings again; None: no cross-encoder.
        progress: function that is called with the name of the work, the number of finished items and the number of all
            items.

    Raises:
        UserError: the collection is malformed, the model directory names an unsupported similarity, or a form of
            vectors is unknown.
    """
    similarity, forms = similarity_of(model), parse_vector_forms(vectors, model.config.hidden_size)
    if forms and not model.sentences.has_pooling:
        raise UserError(
            f"--vectors {vectors}: only dense vectors have smaller forms; leave it out for {model.directory}"
        )
    collection = read_collection(directory, split)
    embedded = _embed_collection(model, collection, progress)
    arrays = [of_role.vectors for of_role in embedded]
    rankings = {
        MODEL: rank_by_vectors(arrays[0], arrays[1], similarity.scores),
        BM25: rank_by_bm25(
            collection.queries, collection.documents, progress=lambda *counts: progress("BM25", *counts)
        ),
    }
    if reranker:
        reranked = rerank_by_pairs(
            [*rankings.values()],
            reranker.scores_of_pairs,
            collection.queries,
            collection.documents,
            reranker.depth,
            lambda *counts: progress("reranking", *counts),
        )
        names = [f"{name}, {RERANKED}" for name in rankings]
        rankings |= dict(zip(names, reranked, strict=True))
    queries = {name: ranking_measures(collection, ranking) for name, ranking in rankings.items()}
    scored_forms = {}
    for form in forms:
        progress(f"searching {form.name} vectors", 0, len(collection.queries))
        ndcg_of_model = float(queries[MODEL][NDCG].mean())
        scored_forms[form.name] = _measure_smaller_vectors(
            collection, form, arrays, similarity.normalize or model.sentences.normalize, ndcg_of_model
        )
    samples = np.random.default_rng(0).integers(
        len(collection.queries), size=(RESAMPLES, len(collection.queries)), dtype=np.int32
    )
    return RetrievalReport(
        source=str(directory),
        split=split,
        weights=weights_digest(model.params),
        collection=collection,
        num_truncated=sum(of_role.num_truncated for of_role in embedded),
        similarity=similarity.name,
        numbers_per_text=dict(zip((QUERIES, DOCUMENTS), map(mean_numbers_per_text, arrays), strict=True)),
        rows={name: {key: float(value.mean()) for key, value in of_name.items()} for name, of_name in queries.items()},
        intervals={
            name: {key: _bootstrap_interval(value, samples) for key, value in of_name.items()}
            for name, of_name in queries.items()
        },
        difference={
            key: _bootstrap_interval(value - queries[BM25][key], samples) for key, value in queries[MODEL].items()
        },
        queries=queries,
        forms=scored_forms,
    )


def _embed_collection(
    model: OpenModel, collection: Collection, progress: Progress
) -> tuple[VectorsAndCount, VectorsAndCount]:
    """Return the vectors of the queries and of the documents, each with the number of truncated texts."""

    def embed(role: str, texts: Sequence[str]) -> VectorsAndCount:
        return text_vectors(model, texts, role, lambda num_done: progress(f"embedding {role}", num_done, len(texts)))

    return embed(QUERIES, collection.queries), embed(DOCUMENTS, collection.documents)


def _measure_smaller_vectors(
    collection: Collection, form: VectorForm, vectors: Sequence[Any], normalize: bool, ndcg_of_model: float
) -> FormScore:
    """Search in a smaller form of the vectors of queries and documents; return its size, time and quality."""
    row = STORED_FORMS[form.stored]
    queries, documents = (truncate_vectors(array, form.size, normalize) for array in vectors)
    stored = row.store(documents)
    # Compiles the search before the time is measured: its program depends on all queries and one block of documents.
    search_stored(row, queries, row.store(documents[:DOCUMENT_BLOCK]), DEPTH)
    begin = time.perf_counter()
    ranking = search_stored(row, queries, stored, DEPTH).indices
    seconds = time.perf_counter() - begin
    ndcg = float(ranking_measures(collection, ranking)[NDCG].mean())
    return FormScore(stored.vectors.nbytes, seconds, ndcg, ndcg_of_model - ndcg)


def mean_retrieval_measures(
    model: OpenModel, collection: Collection, progress: Progress = lambda task, num_done, total: None
) -> dict[str, float]:
    """Return a dict from each measure to its mean over the queries, for a model's rankings on a collection.

    The function `progress` is called as in `score_retrieval`.
    """
    queries, documents = (vectors for vectors, _ in _embed_collection(model, collection, progress))
    measures = ranking_measures(collection, rank_by_vectors(queries, documents, similarity_of(model).scores))
    return {name: float(values.mean()) for name, values in measures.items()}


def retrieval_json(report: RetrievalReport, queries: bool = False) -> dict[str, Any]:
    """Return a report as JSON values; if `queries` is True, include the measures of each query."""
    collection = report.collection
    values: dict[str, Any] = {
        "benchmark": "retrieval",
        "source": report.source,
        "split": report.split,
        "weights": report.weights,
        "similarity": report.similarity,
        "queries": len(collection.queries),
        "documents": len(collection.documents),
        "unjudged_queries": collection.num_unjudged,
        "unknown_judged_documents": collection.num_unknown,
        "empty_documents": collection.num_empty,
        "truncated_texts": report.num_truncated,
        "numbers_per_text": report.numbers_per_text,
        "rows": report.rows,
        "intervals": report.intervals,
        "difference": report.difference,
        **({"vectors": {name: form._asdict() for name, form in report.forms.items()}} if report.forms else {}),
    }
    if queries:
        values["query_measures"] = [
            {
                "query": query,
                **{
                    name: {key: column[row] for key, column in of_name.items()}
                    for name, of_name in report.queries.items()
                },
            }
            for row, query in enumerate(collection.query_ids)
        ]
    return values


def ranking_measures(collection: Collection, rankings: np.ndarray) -> Mapping[str, np.ndarray]:
    """Return a dict from measure to value for each query, for ranked documents `rankings`, int `[queries, depth]`.

    If a ranked document is the query itself, this document is dropped, and the documents after it move up. A document
    is the query itself if it has the id of the query, contains the text of the query, and is not judged for the query.
    A comparison of the ids alone, as in BEIR, would also drop unrelated documents of a collection that numbers queries
    and documents independently.
    """
    gains = np.zeros(rankings.shape, np.int64)
    judgments = [collection.judgments[query] for query in collection.query_ids]
    for row, (query, text, judged) in enumerate(zip(collection.query_ids, collection.queries, judgments, strict=True)):
        ranked = []
        for index in rankings[row]:
            name = "" if index == NOT_RETRIEVED else collection.document_ids[index]
            if name == query and name not in judged and text.strip() in collection.documents[index]:
                continue
            ranked.append(judged.get(name, 0))
        gains[row, : len(ranked)] = ranked
    return ndcg_recall_mrr_map(gains, [list(judged.values()) for judged in judgments])


class _Interval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: float
    high: float


def _bootstrap_interval(values: np.ndarray, samples: np.ndarray) -> _Interval:
    """Return the 95 % bootstrap interval of the mean of `values`; a row of `samples` has resampled query indices."""
    means = np.array([values[sample].mean() for sample in samples])
    low, high = np.percentile(means, INTERVAL)
    return _Interval(float(low), float(high))
