"""A task's sets as the loop wants them: batches that follow from the step, and scores of the held-out ones."""

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import FinetuneConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.inference.batching import Feed, Outputs, collated, evaluation_plan, make_predict
from bert_jax.models import Model, Params
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import plan
from bert_jax.tasks.features import rows
from bert_jax.tasks.predictions import Predictions, predictions, span_predictions
from bert_jax.tasks.reading import readers
from bert_jax.tasks.row import LABEL, Example, Row
from bert_jax.tasks.scoring import score
from bert_jax.tasks.squad_score import tune_threshold
from bert_jax.tasks.task import Task
from bert_jax.training.schedules import Phase


class Part(NamedTuple):
    """One set of a task as rows of a model: 'train', 'dev', 'dev_mismatched', 'test', ..."""

    name: str
    examples: Sequence[Example]
    rows: list[Row]


def read_part(task: Task, config: TaskConfig, name: str, tokenizer: Tokenizer, console: Console) -> Part:
    """A set and its rows; what was cut is said."""
    examples = readers.read(task, config, name, console.say)
    made, counts = rows(task.kind, examples, tokenizer, config)
    cut = [f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count]
    if cut:
        console.say(f"{task.name} {name}: {', '.join(cut)} at config.task.max_seq_len={config.max_seq_len}")
    return Part(name, examples, made)


def digest(parts: Sequence[Part]) -> str:
    """SHA-256 of the rows: a resumed training must find the same ones."""
    found = hashlib.sha256()
    for part in parts:
        for row in part.rows:
            for ids, second in row.choices:
                found.update(ids.tobytes() + str(second).encode())
            targets = {key: np.asarray(value).tolist() for key, value in sorted(row.targets.items())}
            found.update(json.dumps(targets).encode())
    return found.hexdigest()


def training_batches(
    config: FinetuneConfig, feed: Feed, part: Part, share: sharding.BatchBlocks, step: int
) -> Generator[Batch, None, None]:
    """This process's share of the batches from `step` on, in an order that seed and epoch determine; endless."""
    lengths = np.array([row.length for row in part.rows], np.int64)
    per_epoch = -(-len(lengths) // feed.batch_size)
    epoch, first = divmod(step, per_epoch)
    while True:
        batches = plan(lengths, feed.buckets, feed.batch_size, config.seed, epoch, shuffle=True)
        yield from collated(feed, part.rows, batches[first:], share)
        epoch, first = epoch + 1, 0


class Measured(NamedTuple):
    """What a model says of a set, and how good that is."""

    scores: dict[str, float]
    predictions: Predictions
    null_threshold: float | None  # of spans where there may be no answer: the one that scores best here


def measure(task: Task, config: TaskConfig, part: Part, outputs: Sequence[Outputs]) -> Measured:
    """Predictions and scores of a labelled set; the threshold of SQuAD 2.0 is tuned on it, as the official script's."""
    tuned = np.inf if task.impossible else None
    made = predictions(task.kind, part.examples, part.rows, outputs, config, tuned)
    if task.impossible:
        best = tune_threshold(part.examples, made.probabilities)
        tuned = best["f1"].threshold
        made = span_predictions(part.examples, made.probabilities, tuned)
    return Measured(score(task, part.examples, made.values), made, tuned)


def score_names(task: Task, parts: Sequence[Part]) -> list[str]:
    """What an `Evaluation` of these sets calls its scores: those of the right answers, which need no model.

    Raises UserError where a metric does not fit the task, or its library is not installed.
    """
    names: list[str] = []
    for part in parts:
        gold: Any = [example[LABEL[task.kind]] for example in part.examples]
        if task.kind == "span":
            gold = {example["id"]: "" for example in part.examples}
        names += _named(part, score(task, part.examples, gold))
    return names


def _named(part: Part, scores: dict[str, float]) -> dict[str, float]:
    """Those of a second set carry its name."""
    suffix = part.name.removeprefix("dev")
    return {name + suffix: value for name, value in scores.items()}


class Evaluation:
    """The dev sets under a model in training: `batches` for the loop, and its outputs turned into scores."""

    def __init__(
        self, config: TaskConfig, task: Task, parts: Sequence[Part], feed: Feed, model: Model, mesh: jax.sharding.Mesh
    ) -> None:
        self.config, self.task, self.parts, self.feed = config, task, parts, feed
        self.share = sharding.batch_blocks(mesh)
        self.rows = [row for part in parts for row in part.rows]
        self.planned = evaluation_plan(feed, self.rows)
        self.predict = make_predict(model, mesh)

    def batches(self, phase: Phase) -> Generator[Batch, None, None]:
        """One pass over all rows of all sets."""
        del phase  # the same at every step
        return collated(self.feed, self.rows, self.planned, self.share)

    def __call__(self, params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        """The scores of each set. {} where the batches ended early."""
        outputs = self.predict(params, self.rows, self.planned, batches)
        if not all(outputs):
            return {}
        return {name: value for _, found in self.split(outputs) for name, value in found.scores.items()}

    def split(self, outputs: Sequence[Outputs]) -> list[tuple[Part, Measured]]:
        """Each set with what was found of it."""
        found, begin = [], 0
        for part in self.parts:
            measured = measure(self.task, self.config, part, outputs[begin : begin + len(part.rows)])
            found.append((part, measured._replace(scores=_named(part, measured.scores))))
            begin += len(part.rows)
        return found
