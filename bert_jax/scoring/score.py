"""A model on a benchmark: read, sample, tokenize, ask, measure."""

import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from bert_jax.batches.hashing import random_bits
from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, Params
from bert_jax.parallel import sharding
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, Scored, check_length
from bert_jax.scoring.crows_pairs import CROWS_PAIRS
from bert_jax.scoring.log_probabilities import HEADS, MASKED, READS, Progress, Scorer, make_scorer
from bert_jax.scoring.minimal_pairs import PAIRS
from bert_jax.scoring.queries import MASKINGS, Context, Tokens, make_context, sentence_queries, tokenize
from bert_jax.scoring.stereoset import INTERSENTENCE, STEREOSET
from bert_jax.scoring.templates import TEMPLATES
from bert_jax.scoring.texts import TEXT
from bert_jax.scoring.winobias import WINOBIAS
from bert_jax.scoring.winogender import WINOGENDER
from bert_jax.tokenizer import Tokenizer

One = TypeVar("One")

CHUNK_TOKENS = 1 << 24  # of the queries in memory at once
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


def heads_for(names: Iterable[str]) -> tuple[Head, ...]:
    """Return the heads of a model that benchmarks ask, masked tokens first."""
    return tuple(Head(name) for name in READS if name == MASKED or name in {BENCHMARKS[one].head for one in names})


class Report(NamedTuple):
    """What a model scored on a benchmark."""

    benchmark: str
    source: str
    masking: str
    temperature: float
    items: int  # that were read
    scored: int  # of them, after sampling
    unknown_tokens: int  # tokens of the scored texts that the vocabulary does not have
    rows: dict[str, Figures]  # by group
    total: Figures


class ScoringModel(NamedTuple):
    """A model that is ready to score."""

    scorers: Mapping[str, Scorer]  # by head
    params: Params
    context: Context
    tokenizer: Tokenizer
    temperature: float


def scoring_model(
    model: OpenModel, masking: str = DEFAULT_MASKING, temperature: float = 1.0, dtype: str = "float32"
) -> ScoringModel:
    """Return a model on the first device of this process, ready to score.

    Raises:
        UserError: it has no masked-token head, or an argument is out of range.
    """
    if HEADS[0] not in model.heads:
        names = ", ".join(head.name for head in model.heads) or "no head"
        raise UserError(f"{model.directory}: a model with {names}, which cannot score; give one with masked_token")
    if masking not in MASKINGS:
        raise UserError(f"masking {masking}: choose from {', '.join(MASKINGS)}")
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    scorers = {
        head.name: make_scorer(model.config, dtype, mesh, model.tokenizer.pad_id, temperature, head.name)
        for head in model.heads
        if head.name in READS
    }
    context = make_context(model.tokenizer, model.config.max_positions, masking)
    params = jax.device_put(model.params, sharding.replicated(mesh))
    return ScoringModel(scorers, params, context, model.tokenizer, temperature)


class _StoppedError(Exception):
    """There is no time for the rest of the pairs."""


def pairs_accuracy(
    config: EncoderConfig,
    dtype: str,
    mesh: jax.sharding.Mesh,
    tokenizer: Tokenizer,
    source: str,
    num_pairs: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Callable[[Params], float | None]:
    """Return a function parameters on `mesh` -> mean accuracy over the paradigms, for evaluations during training.

    About `num_pairs` pairs, the same fraction of each paradigm, are drawn once. Every process of the mesh calls it, and
    `should_stop` after each batch; None where that said so.
    Raises UserError, before any work, for a file that is not in a format, and for a sentence that is too long.
    """
    items = PAIRS.read(pathlib.Path(source))
    chosen = sample(items, min(1.0, num_pairs / len(items)))
    context = make_context(tokenizer, config.max_positions, DEFAULT_MASKING)
    scorer = make_scorer(config, dtype, mesh, tokenizer.pad_id)
    for item, tokens in zip(chosen, _tokens_of(tokenizer, chosen), strict=True):
        PAIRS.ask(context, item, tokens)

    def after_batch(done: int, total: int) -> None:
        if should_stop():
            raise _StoppedError

    def accuracy(params: Params) -> float | None:
        model = ScoringModel({MASKED: scorer}, params, context, tokenizer, 1.0)
        try:
            scored = score_items(model, PAIRS, chosen, after_batch)
        except _StoppedError:
            return None
        found = _means(list(_by_group(PAIRS, context, scored).values()))["accuracy"]
        assert found is not None
        return float(found)

    return accuracy


def sentence_scores(
    model: ScoringModel, texts: Sequence[str], progress: Progress = lambda done, total: None
) -> list[np.ndarray]:
    """Return the log-probability of each token of each text, special tokens excluded: float64 `[tokens]` per text.

    Their sum is the pseudo-log-likelihood of the text. `progress` is called with the number of texts done, rounded
    down, and of all. Raises UserError for a text that the model cannot read whole.
    """
    tokens, found = tokenize(model.tokenizer, texts), list[np.ndarray]()
    for number, text in enumerate(texts):
        check_length(model.context, Item(f"text {number}", "", (text,)), tokens[text])
    for chunk in _chunks(texts, lambda text: len(tokens[text].ids) ** 2):
        queries = [sentence_queries(model.context, tokens[text]) for text in chunk]
        of_chunk = functools.partial(_items_done, progress, len(found), len(chunk), len(texts))
        found += model.scorers[MASKED](model.params, queries, of_chunk)
    return found


def run_benchmark(
    model: ScoringModel,
    name: str,
    source: str | os.PathLike[str],
    fraction: float = 1.0,
    progress: Progress = lambda done, total: None,
) -> tuple[Report, list[Scored]]:
    """Return what a model scores on a benchmark, and the score of each text.

    Args:
        model: of `scoring_model`.
        name: a row of BENCHMARKS.
        source: file or directory in the format of the benchmark.
        fraction: of the items of each group, drawn by a hash of their numbers, at least one; 1: all.
        progress: is called with the number of items done, rounded down, and of all.

    Raises:
        UserError: an unknown benchmark, a file that is not in its format, a text that is too long, or a fraction out of
            range.
    """
    if name not in BENCHMARKS:
        raise UserError(f"benchmark {name}: choose from {', '.join(BENCHMARKS)}")
    if not 0 < fraction <= 1:
        raise UserError(f"fraction {fraction}: give a number above 0, up to 1")
    benchmark = BENCHMARKS[name]
    if benchmark.head not in model.scorers:
        raise UserError(f"benchmark {name}: this model has no {benchmark.head} head, which answers it")
    items = benchmark.read(pathlib.Path(source))
    chosen = sample(items, fraction)
    scored = score_items(model, benchmark, chosen, progress)
    rows = _by_group(benchmark, model.context, scored)
    total = _means(list(rows.values())) if benchmark.mean_over_groups else benchmark.measure(model.context, scored)
    unknown = sum(int((tokens.ids == model.context.unk_id).sum()) for one in scored for tokens in one.tokens)
    masking = benchmark.masking or model.context.masking
    report = Report(name, str(source), masking, model.temperature, len(items), len(chosen), unknown, rows, total)
    return report, scored


def score_items(model: ScoringModel, benchmark: Benchmark, items: Sequence[Item], progress: Progress) -> list[Scored]:
    """Return the log-probabilities of the tokens that a benchmark asks for, of each text of each item."""
    of_item = _tokens_of(model.tokenizer, items)
    sizes = [sum(len(one.ids) ** 2 for one in texts) for texts in of_item]
    scored: list[Scored] = []
    for numbers in _chunks(range(len(items)), lambda number: sizes[number]):
        asked = [benchmark.ask(model.context, items[number], of_item[number]) for number in numbers]
        of_chunk = functools.partial(_items_done, progress, len(scored), len(numbers), len(items))
        answers = iter(model.scorers[benchmark.head](model.params, [one for texts in asked for one in texts], of_chunk))
        scored += [
            Scored(items[number], of_item[number], tuple(itertools.islice(answers, len(texts))))
            for number, texts in zip(numbers, asked, strict=True)
        ]
    return scored


def _items_done(progress: Progress, before: int, count: int, total: int, done: int, queries: int) -> None:
    """Report how many items are done, where so many of the queries of a chunk of `count` items are."""
    progress(before + count * done // queries, total)


def sample(items: Sequence[Item], fraction: float) -> list[Item]:
    """Return a fraction of the items of each group, at least one, in their order: the same ones in every call."""
    if fraction == 1:
        return list(items)
    members: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        members.setdefault(item.group, []).append(number)
    kept = []
    for numbers in members.values():
        order = np.argsort(random_bits(SAMPLE_SEED, np.arange(len(numbers))), kind="stable")
        kept += [numbers[place] for place in order[: max(1, round(fraction * len(numbers)))]]
    return [items[number] for number in sorted(kept)]


def results_json(
    model: str, results: Sequence[tuple[Report, Sequence[Scored]]], sentences: bool = False
) -> dict[str, Any]:
    """Return reports as JSON values; with `sentences` also every text and the log-probabilities of its queries."""
    found = [dict(report._asdict()) for report, _ in results]
    for one, (_, scored) in zip(found, results, strict=True):
        if sentences:
            one["sentences"] = [
                {
                    "where": item.item.where,
                    "group": item.item.group,
                    "text": text,
                    "log_probabilities": numbers.tolist(),
                }
                for item in scored
                for text, numbers in zip(item.item.texts, item.log_probabilities, strict=True)
            ]
    return {"model": model, "results": found}


def _tokens_of(tokenizer: Tokenizer, items: Sequence[Item]) -> list[tuple[Tokens, ...]]:
    """The tokens of the texts of each item."""
    tokens = tokenize(tokenizer, (text for item in items for text in item.texts))
    return [tuple(tokens[text] for text in item.texts) for item in items]


def _by_group(benchmark: Benchmark, context: Context, scored: Sequence[Scored]) -> dict[str, Figures]:
    """The figures of each group, in the order of their first items."""
    groups: dict[str, list[Scored]] = {}
    for one in scored:
        groups.setdefault(one.item.group, []).append(one)
    return {group: benchmark.measure(context, members) for group, members in groups.items()}


def _chunks(everything: Iterable[One], size: Callable[[One], int]) -> Iterator[list[One]]:
    """Split into runs of at most CHUNK_TOKENS, or of one member that is larger."""
    chunk: list[One] = []
    tokens = 0
    for one in everything:
        if chunk and tokens + size(one) > CHUNK_TOKENS:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(one)
        tokens += size(one)
    if chunk:
        yield chunk


def _means(rows: Sequence[Figures]) -> Figures:
    """The mean of each figure over the groups; counts are summed."""
    found: dict[str, float | int | None] = {}
    for name in rows[0]:
        values = [value for row in rows if (value := row[name]) is not None]
        found[name] = sum(values) if all(isinstance(one, int) for one in values) else sum(values) / len(values)
    return found
