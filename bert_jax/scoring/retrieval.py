"""Retrieval with a model, compared with BM25: every query is compared with every document of a collection."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.errors import UserError
from bert_jax.inference.embed import EmbedOptions, encode_with_count
from bert_jax.inference.vectors import join_vectors
from bert_jax.objectives.vector_scores import SCORES
from bert_jax.scoring.ranking import NOT_RETRIEVED, measures_of_gains, rank_by_bm25, rank_by_vectors, tie_order
from bert_jax.scoring.retrieval_files import Collection, read_collection
from bert_jax.tasks.vector_heads import VECTOR_HEADS

CHUNK = 8_192  # texts that are tokenized at once
RESAMPLES = 1_000
INTERVAL = (2.5, 97.5)  # percentiles
MODEL, BM25 = "model", "BM25"
# Similarity of a directory of sentence-transformers -> `EmbedOptions.normalize` before the inner product.
SIMILARITIES = {"cosine": True, "dot": None}
# Names of prompts by role, as sentence-transformers looks for them; without one of them the default prompt applies.
QUERY_PROMPTS, DOCUMENT_PROMPTS = ("query",), ("document", "passage", "corpus")

Progress = Callable[[str, int, int], None]  # the work, the finished items, all items


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalReport:
    """The measures of a model and of BM25 on a collection.

    Attributes:
        source: directory of the collection.
        split: name of the judgments.
        num_truncated: number of queries and documents that were truncated to the length that the model reads.
        rows: MODEL or BM25 -> measure -> mean over the queries.
        intervals: MODEL or BM25 -> measure -> bounds of the 95 % interval of the mean, by a bootstrap over the queries.
        difference: measure -> bounds of the 95 % interval of the mean difference, model minus BM25, over the queries.
        queries: MODEL or BM25 -> measure -> value of each query, float64 `[queries]`.
    """

    source: str
    split: str
    collection: Collection
    num_truncated: int
    similarity: str
    rows: Mapping[str, Mapping[str, float]]
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    difference: Mapping[str, tuple[float, float]]
    queries: Mapping[str, Mapping[str, np.ndarray]]


def score_retrieval(
    model: OpenModel,
    directory: pathlib.Path,
    split: str = "test",
    progress: Progress = lambda task, num_done, total: None,
) -> RetrievalReport:
    """Return the measures of a model and of BM25 on a collection in the layout of BEIR.

    The vectors equal the vectors of `bert-jax embed`. The model directory's prompts for queries and documents apply,
    and longer texts are truncated. A document with the id of the query is not ranked, as in BEIR.

    Args:
        model: any model; its heads are used only if its directory names a head of vectors.
        directory: as in `read_collection`.
        split: name of the judgments.
        progress: called with the name of the work, the number of finished items and the number of all items.

    Raises:
        UserError: the collection is malformed, or the model directory names an unsupported similarity.
    """
    head = VECTOR_HEADS[model.sentences.vector_head]
    similarity = model.sentences.similarity or head.similarity
    if similarity not in SIMILARITIES:
        raise UserError(
            f"{model.directory}: the similarity {similarity}; choose a model with {' or '.join(SIMILARITIES)}"
        )
    collection = read_collection(directory, split)
    num_truncated, vectors = 0, {}
    for role, texts, prompts in (
        ("queries", collection.queries, QUERY_PROMPTS),
        ("documents", collection.documents, DOCUMENT_PROMPTS),
    ):
        prompt = next((name for name in prompts if name in model.sentences.prompts), None)
        options = EmbedOptions(truncate=True, prompt_name=prompt, normalize=SIMILARITIES[similarity])
        chunks = []
        for start in range(0, len(texts), CHUNK):
            progress(f"embedding {role}", start, len(texts))
            values, num_cut = encode_with_count(model, texts[start : start + CHUNK], options)
            chunks.append(values)
            num_truncated += num_cut
        vectors[role] = join_vectors(chunks)
    order = tie_order(collection.document_ids)
    rankings = {
        MODEL: rank_by_vectors(vectors["queries"], vectors["documents"], order, scores=SCORES[head.scores]),
        BM25: rank_by_bm25(
            collection.queries, collection.documents, order, progress=lambda *counts: progress("BM25", *counts)
        ),
    }
    queries = {name: ranking_measures(collection, ranking) for name, ranking in rankings.items()}
    samples = np.random.default_rng(0).integers(
        len(collection.queries), size=(RESAMPLES, len(collection.queries)), dtype=np.int32
    )
    return RetrievalReport(
        source=str(directory),
        split=split,
        collection=collection,
        num_truncated=num_truncated,
        similarity=similarity,
        rows={name: {key: float(value.mean()) for key, value in of_name.items()} for name, of_name in queries.items()},
        intervals={
            name: {key: _bootstrap_interval(value, samples) for key, value in of_name.items()}
            for name, of_name in queries.items()
        },
        difference={
            key: _bootstrap_interval(value - queries[BM25][key], samples) for key, value in queries[MODEL].items()
        },
        queries=queries,
    )


def retrieval_json(report: RetrievalReport, queries: bool = False) -> dict[str, Any]:
    """Return a report as JSON values; with `queries`, also the measures of each query."""
    collection = report.collection
    values: dict[str, Any] = {
        "benchmark": "retrieval",
        "source": report.source,
        "split": report.split,
        "similarity": report.similarity,
        "queries": len(collection.queries),
        "documents": len(collection.documents),
        "unjudged_queries": collection.num_unjudged,
        "unknown_judged_documents": collection.num_unknown,
        "empty_documents": collection.num_empty,
        "truncated_texts": report.num_truncated,
        "rows": report.rows,
        "intervals": report.intervals,
        "difference": report.difference,
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
    """Return the measures of each query from its ranked documents, int `[queries, depth]`: name -> `[queries]`.

    A document with the id of its query is dropped, and the documents after it move up.
    """
    judgments = [collection.judgments[query] for query in collection.query_ids]
    gains = np.zeros(rankings.shape, np.int64)
    for row, (query, judged) in enumerate(zip(collection.query_ids, judgments, strict=True)):
        names = [collection.document_ids[index] if index != NOT_RETRIEVED else None for index in rankings[row]]
        ranked = [judged.get(name, 0) if name else 0 for name in names if name != query]
        gains[row, : len(ranked)] = ranked
    return measures_of_gains(gains, [list(judged.values()) for judged in judgments])


class _Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


def _bootstrap_interval(values: np.ndarray, samples: np.ndarray) -> _Interval:
    """Return the percentiles of the means of resampled queries (Efron and Tibshirani 1993)."""
    means = np.array([values[sample].mean() for sample in samples])
    low, high = np.percentile(means, INTERVAL)
    return _Interval(float(low), float(high))
