"""The scores of a model on benchmarks, files with labels, collections and data sets of bias, for the commands."""

import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.checkpoints.load_model import open_model
from bert_jax.console import Console
from bert_jax.errors import UserError, check_positive
from bert_jax.inference import embed
from bert_jax.inference.cross_encoder import make_cross_encoder_scorer
from bert_jax.inference.predict import load_predictor
from bert_jax.scoring.labeled import LabeledReport, labeled_json, score_labeled_file
from bert_jax.scoring.retrieval import Reranker, RetrievalReport, retrieval_json, score_retrieval
from bert_jax.scoring.score import (
    BENCHMARKS,
    DEFAULT_MASKING,
    BenchmarkReport,
    BenchmarkResult,
    ScoringModel,
    heads_of_benchmarks,
    make_scoring_model,
    results_json,
    run_benchmark,
)

DEFAULT_SPLIT = "test"  # judgments of a test collection
RERANK_DEPTH = 100  # documents of a query that a cross-encoder sorts, as in sentence-transformers

PathLike = str | os.PathLike[str]


class Scores(NamedTuple):
    """The results of a model on benchmarks, on files with labels, and on test collections for retrieval."""

    benchmarks: list[BenchmarkResult]
    labeled: list[LabeledReport]
    collections: list[RetrievalReport]


def score_model(
    model: PathLike,
    wanted: Sequence[tuple[str, str]],
    labeled: Sequence[PathLike],
    collections: Sequence[PathLike],
    masking: str,
    temperature: float,
    fraction: float,
    split: str,
    vectors: str,
    rerank: PathLike | None,
    rerank_depth: int | None,
    console: Console,
) -> Scores:
    """Score a model on benchmarks, on files with labels, and on test collections for retrieval.

    The argument `wanted` has the name and the source of each benchmark; the other arguments have the meanings of the
    options of `score`.

    Raises:
        UserError: an option has no effect on the scores, or a file is absent or malformed.
    """
    if not wanted:
        options = {
            "masking": masking != DEFAULT_MASKING,
            "temperature": temperature != 1.0,
            "fraction": fraction != 1.0,
        }
        if ignored := [name for name, is_given in options.items() if is_given]:
            given = "--retrieval" if collections else "--labeled"
            raise UserError(f"--{ignored[0]} has no effect on {given}; leave it out, or give sentences to score")
    options = {"vectors": bool(vectors), "rerank": rerank is not None, "split": split != DEFAULT_SPLIT}
    if ignored := [] if collections else [name for name, is_given in options.items() if is_given]:
        raise UserError(f"--{ignored[0]} needs --retrieval")
    if rerank_depth is not None and rerank is None:
        raise UserError("--rerank_depth needs --rerank")
    check_positive({"rerank_depth": rerank_depth})
    reranker = None
    if rerank is not None:
        reranker = Reranker(make_cross_encoder_scorer(load_predictor(rerank)), rerank_depth or RERANK_DEPTH)
    labeled_reports = []
    if labeled:
        predictor = load_predictor(model)
        for path in labeled:
            show = functools.partial(console.progress, f"scoring {os.fspath(path)}", unit="inputs")
            labeled_reports.append(score_labeled_file(predictor, path, console.say, show))
    if not wanted and not collections:
        return Scores([], labeled_reports, [])
    opened = open_model(model, heads_of_benchmarks(name for name, _ in wanted) if wanted else embed.HEADS)
    results = []
    if wanted:
        scoring = make_scoring_model(opened, masking, temperature)
        for name, source in wanted:
            progress = functools.partial(console.progress, f"scoring {source}", unit=BENCHMARKS[name].unit)
            results.append(run_benchmark(scoring, name, source, fraction, progress))
    reports = [
        score_retrieval(opened, pathlib.Path(path), split, vectors, reranker, console.progress) for path in collections
    ]
    if collections and not opened.describes_vectors:
        console.say(
            f"warning: {model} has no files of sentence-transformers: retrieval compares the means of its token "
            "vectors, not the outputs of a head (--rerank measures a cross-encoder)"
        )
    return Scores(results, labeled_reports, reports)


def scores_json(model: PathLike, scores: Scores, details: bool) -> dict[str, Any]:
    """Return scores as JSON values; if `details` is True, include the scores of texts and queries, and the errors."""
    values = results_json(os.fspath(model), scores.benchmarks, sentences=details)
    values["results"] += [labeled_json(report, details) for report in scores.labeled]
    values["results"] += [retrieval_json(report, queries=details) for report in scores.collections]
    return values


def run_bias_benchmarks(
    model: ScoringModel, wanted: Sequence[tuple[str, str]], fraction: float, console: Console
) -> list[BenchmarkReport]:
    """Score a model on data sets of bias and return the reports; `wanted` has each data set's name and source."""
    reports = []
    for name, source in wanted:
        progress = functools.partial(console.progress, f"scoring {source}", unit=BENCHMARKS[name].unit)
        reports.append(run_benchmark(model, name, source, fraction, progress)[0])
    return reports
