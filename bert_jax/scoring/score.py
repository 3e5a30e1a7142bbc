"""Scores of a model on a benchmark; add a row to BENCHMARKS for a benchmark."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.batches.hashing import random_bits
from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, Params
from bert_jax.parallel import sharding
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, ScoredItem, item_queries, load_items
from bert_jax.scoring.crows_pairs import CROWS_PAIRS
from bert_jax.scoring.log_probabilities import HEADS, MASKED, QUERY_HEADS, Progress, Scorer, make_log_probability_scorer
from bert_jax.scoring.minimal_pairs import PAIRS
from bert_jax.scoring.queries import (
    MASKINGS,
    ScoringContext,
    TextTokens,
    make_scoring_context,
    pseudo_log_likelihood_queries,
    tokenize_texts,
)
from bert_jax.scoring.stereoset import INTERSENTENCE, STEREOSET
from bert_jax.scoring.templates import TEMPLATES
from bert_jax.scoring.texts import TEXT
from bert_jax.scoring.winobias import WINOBIAS
from bert_jax.scoring.winogender import WINOGENDER
from bert_jax.tokenizer import Tokenizer

CHUNK_TOKENS = 1 << 24  # maximum number of tokens of the queries that are in memory at once
SAMPLE_SEED = 0
DEFAULT_MASKING = "within_word_l2r"

BENCHMARKS: dict[str, Benchmark] = {
    "pairs": PAIRS,
    "text": TEXT,
    "crows_pairs": CROWS_PAIRS,
    "stereoset": STEREOSET,
    "intersentence": INTERSENTENCE,
    "winobias": WINOBIAS,
    "winogender": WINOGENDER,
    "templates": TEMPLATES,
}


def heads_of_benchmarks(names: Iterable[str]) -> tuple[Head, ...]:
    """Return the output heads that the named benchmarks need; the masked-token head comes first."""
    needed = {MASKED, *(BENCHMARKS[name].head for name in names)}
    return tuple(Head(name) for name in QUERY_HEADS if name in needed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkReport:
    """The scores of a model on a benchmark."""

    benchmark: str
    source: str
    masking: str
    temperature: float
    items: int  # number of items of the source
    scored: int  # number of scored items, after sampling
    unknown_tokens: int  # number of unknown tokens in the scored texts
    rows: dict[str, Figures]  # figures of each group, by the name of the group
    total: Figures  # figures of all groups together


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringModel:
    """A model with the functions that compute log-probabilities of queries."""

    scorers: Mapping[str, Scorer]  # scoring function of each output head, by the name of the head
    params: Params
    context: ScoringContext
    tokenizer: Tokenizer
    temperature: float = 1.0


def make_scoring_model(
    model: OpenModel, masking: str = DEFAULT_MASKING, temperature: float = 1.0, dtype: str = "float32"
) -> ScoringModel:
    """Place a model on the first device of this process, and return it with its scoring functions.

    Raises:
        UserError: the model has no masked-token head, or an argument is out of range.
    """
    if HEADS[0] not in model.heads:
        names = ", ".join(head.name for head in model.heads) or "no head"
        raise UserError(f"{model.directory}: a model with {names}, which cannot score; give a model with masked_token")
    if masking not in MASKINGS:
        raise UserError(f"masking {masking}: choose from {', '.join(MASKINGS)}")
    mesh = sharding.single_device_mesh()
    scorers = {
        head.name: make_log_probability_scorer(
            model.config, dtype, mesh, model.tokenizer.pad_id, temperature, head.name
        )
        for head in model.heads
        if head.name in QUERY_HEADS
    }
    context = make_scoring_context(model.tokenizer, model.config.max_positions, masking)
    params = jax.device_put(model.params, sharding.replicated(mesh))
    return ScoringModel(
        scorers=scorers, params=params, context=context, tokenizer=model.tokenizer, temperature=temperature
    )


class _StoppedError(Exception):
    """The error that ends an evaluation on pairs early, when a signal ends the training."""


def make_pairs_accuracy(
    config: EncoderConfig,
    dtype: str,
    mesh: jax.sharding.Mesh,
    tokenizer: Tokenizer,
    source: str,
    num_pairs: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Callable[[Params], float | None]:
    """Return a function that takes parameters on `mesh` during training and computes the accuracy on minimal pairs.

    The accuracy is the mean over paradigms. About `num_pairs` pairs are drawn once, the same fraction of each paradigm.
    Every process of the mesh must call the returned function. The returned function calls `should_stop` after each
    batch, and returns None if `should_stop` returns True. An unknown format or a sentence that is too long raises
    UserError before the function is returned.
    """
    items = load_items(PAIRS, pathlib.Path(source))
    sampled = sample_items(items, min(1.0, num_pairs / len(items)))
    context = make_scoring_context(tokenizer, config.max_positions, DEFAULT_MASKING)
    scorers = {MASKED: make_log_probability_scorer(config, dtype, mesh, tokenizer.pad_id)}
    for item, tokens in zip(sampled, _tokenize_items(tokenizer, sampled), strict=True):
        item_queries(PAIRS, context, item, tokens)

    def stop_if_asked(num_done: int, total: int) -> None:
        if should_stop():
            raise _StoppedError

    def accuracy_on_pairs(params: Params) -> float | None:
        model = ScoringModel(scorers=scorers, params=params, context=context, tokenizer=tokenizer)
        try:
            scored = score_items(model, PAIRS, sampled, stop_if_asked)
        except _StoppedError:
            return None
        mean = _mean_figures(list(_figures_by_group(PAIRS, context, scored).values()))["accuracy"]
        assert mean is not None
        return float(mean)

    return accuracy_on_pairs


def token_log_probabilities(
    model: ScoringModel, texts: Sequence[str], progress: Progress = lambda num_done, total: None
) -> list[np.ndarray]:
    """Return the log-probabilities of the tokens of each text, without special tokens, float64 `[tokens]`.

    The sum of a text's log-probabilities is its pseudo-log-likelihood. The function `progress` is called with the
    number of finished texts, rounded down, and the number of all texts. Raise UserError for a text that is too long for
    the model.
    """
    sentences = dataclasses.replace(
        TEXT,
        queries=lambda context, item, tokens: [pseudo_log_likelihood_queries(context, tokens[0])],
        splits_texts=False,
    )
    items = [Item(f"text {index}", "", (text,)) for index, text in enumerate(texts)]
    return [scored.log_probabilities[0] for scored in score_items(model, sentences, items, progress)]


class BenchmarkResult(NamedTuple):
    """The report of a model on a benchmark, and its items with the log-probabilities of their texts."""

    report: BenchmarkReport
    items: list[ScoredItem]


def run_benchmark(
    model: ScoringModel,
    name: str,
    source: str | os.PathLike[str],
    fraction: float = 1.0,
    progress: Progress = lambda num_done, total: None,
) -> BenchmarkResult:
    """Score a model on a benchmark; return the report and the log-probabilities of each item's texts.

    Args:
        model: a model with its scoring functions.
        name: name of the benchmark, a key of BENCHMARKS.
        source: file or directory in the format of the benchmark.
        fraction: fraction of the items of each group that are scored, at least one item; a hash of the index of an item
            decides whether the item is drawn.
        progress: function that is called with the number of finished items, rounded down, and the number of all items.

    Raises:
        UserError: the benchmark is unknown, a file has a wrong format, a text is too long, or `fraction` is out of
            range.
    """
    if name not in BENCHMARKS:
        raise UserError(f"benchmark {name}: choose from {', '.join(BENCHMARKS)}")
    if not 0 < fraction <= 1:
        raise UserError(f"fraction {fraction}: give a number above 0, up to 1")
    benchmark, context = BENCHMARKS[name], model.context
    if benchmark.head not in model.scorers:
        raise UserError(f"benchmark {name}: the benchmark needs a {benchmark.head} head, and this model has none")
    items = load_items(benchmark, pathlib.Path(source))
    scored = score_items(model, benchmark, sample_items(items, fraction), progress)
    rows = _figures_by_group(benchmark, context, scored)
    report = BenchmarkReport(
        benchmark=name,
        source=str(source),
        masking=benchmark.masking or context.masking,
        temperature=model.temperature,
        items=len(items),
        scored=len(scored),
        unknown_tokens=sum(int((text.ids == context.unk_id).sum()) for item in scored for text in item.tokens),
        rows=rows,
        total=_mean_figures(list(rows.values())) if benchmark.mean_over_groups else benchmark.figures(context, scored),
    )
    return BenchmarkResult(report, scored)


def score_items(
    model: ScoringModel, benchmark: Benchmark, items: Sequence[Item], progress: Progress
) -> list[ScoredItem]:
    """Return each item with the log-probabilities of the benchmark's queries on its texts."""
    tokens = _tokenize_items(model.tokenizer, items)
    sizes = [sum(len(text.ids) ** 2 for text in texts) for texts in tokens]
    scored: list[ScoredItem] = []
    for indexes in _chunk_ranges(sizes):
        queries = [item_queries(benchmark, model.context, items[index], tokens[index]) for index in indexes]
        of_chunk = functools.partial(_report_finished_items, progress, len(scored), len(indexes), len(items))
        of_texts = [text_queries for of_item in queries for text_queries in of_item]
        log_probabilities = iter(model.scorers[benchmark.head](model.params, of_texts, of_chunk))
        scored += [
            ScoredItem(items[index], tokens[index], tuple(itertools.islice(log_probabilities, len(of_item))))
            for index, of_item in zip(indexes, queries, strict=True)
        ]
    return scored


def _report_finished_items(
    progress: Progress, num_before: int, num_items: int, total: int, queries_done: int, num_queries: int
) -> None:
    """Call `progress` with the number of finished items, estimated from the finished queries of a chunk of items."""
    progress(num_before + num_items * queries_done // num_queries, total)


def sample_items(items: Sequence[Item], fraction: float) -> list[Item]:
    """Return a fraction of the items of each group (at least one item), in order; the choice is deterministic."""
    if fraction == 1:
        return list(items)
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        groups.setdefault(item.group, []).append(index)
    sampled = list[int]()
    for indexes in groups.values():
        order = np.argsort(random_bits(SAMPLE_SEED, np.arange(len(indexes))), kind="stable")
        sampled += [indexes[rank] for rank in order[: max(1, round(fraction * len(indexes)))]]
    return [items[index] for index in sorted(sampled)]


def results_json(
    model: str, results: Sequence[tuple[BenchmarkReport, Sequence[ScoredItem]]], sentences: bool = False
) -> dict[str, Any]:
    """Return reports as JSON values; if `sentences` is True, include the texts and their queries' log-probabilities."""
    values = []
    for report, scored in results:
        values.append(dict(vars(report)))
        if sentences:
            values[-1]["sentences"] = [
                {"where": item.where, "group": item.group, "text": text, "log_probabilities": of_text.tolist()}
                for item, _, log_probabilities in scored
                for text, of_text in zip(item.texts, log_probabilities, strict=True)
            ]
    return {"model": model, "results": values}


def _tokenize_items(tokenizer: Tokenizer, items: Sequence[Item]) -> list[tuple[TextTokens, ...]]:
    """Return the tokens of the texts of each item."""
    tokens = tokenize_texts(tokenizer, (text for item in items for text in item.texts))
    return [tuple(tokens[text] for text in item.texts) for item in items]


def _figures_by_group(
    benchmark: Benchmark, context: ScoringContext, scored: Sequence[ScoredItem]
) -> dict[str, Figures]:
    """Return a dict from each group to the figures of its items; groups are in the order of their first items."""
    groups: dict[str, list[ScoredItem]] = {}
    for scored_item in scored:
        groups.setdefault(scored_item.item.group, []).append(scored_item)
    return {group: benchmark.figures(context, members) for group, members in groups.items()}


def _chunk_ranges(sizes: Sequence[int]) -> Iterator[range]:
    """Yield ranges of items that together have at most CHUNK_TOKENS tokens; a larger item is a range by itself."""
    start = tokens = 0
    for index, size in enumerate(sizes):
        if index > start and tokens + size > CHUNK_TOKENS:
            yield range(start, index)
            start, tokens = index, 0
        tokens += size
    if start < len(sizes):
        yield range(start, len(sizes))


def _mean_figures(rows: Sequence[Figures]) -> Figures:
    """Return the mean of each figure over the groups, and the sum of each count."""
    means: dict[str, float | int | None] = {}
    for name in rows[0]:
        values = [value for row in rows if (value := row[name]) is not None]
        is_count = all(isinstance(value, int) for value in values)
        means[name] = sum(values) if is_count else sum(values) / len(values)
    return means
