"""The sets of a task: batches of the training set by step, and scores of the dev sets."""

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.config import FinetuneConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.inference.outputs import Outputs, make_predict
from bert_jax.models import Model, Params
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.parallel.memory import out_of_memory_in_evaluation_as_user_error
from bert_jax.tasks.batching import Feed, collate_batches, plan_batches, plan_evaluation
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions, make_features
from bert_jax.tasks.reading.examples import read_examples
from bert_jax.tasks.scoring import CORRELATIONS, score
from bert_jax.tasks.task import Example, Task
from bert_jax.tokenizer import Tokenizer
from bert_jax.training.schedules import Phase


class Part(NamedTuple):
    """One set of a task: 'train', 'dev', 'dev_mismatched', 'test', ..."""

    name: str
    examples: Sequence[Example]
    features: list[Features]


def read_part(task: Task, config: TaskConfig, name: str, tokenizer: Tokenizer, console: Console) -> Part:
    """Return a set with its features; print how many texts were truncated or split."""
    examples = read_examples(task, config, name, console.say)
    features, counts = make_features(KINDS[task.kind], examples, tokenizer, config)
    cut = [f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count]
    if cut:
        console.say(f"{task.name} {name}: {', '.join(cut)} (config.task.max_seq_len={config.max_seq_len})")
    return Part(name, examples, features)


def digest(parts: Sequence[Part]) -> str:
    """Return the SHA-256 of the features, in hex: a resumed training must find the same ones."""
    found = hashlib.sha256()
    for part in parts:
        for one in part.features:
            for ids, second in one.sequences:
                found.update(ids.tobytes() + str(second).encode())
            targets = {key: np.asarray(value).tolist() for key, value in sorted(one.targets.items())}
            found.update(json.dumps(targets).encode())
    return found.hexdigest()


def training_batches(
    config: FinetuneConfig, feed: Feed, part: Part, blocks: sharding.BatchBlocks, step: int
) -> Generator[Batch, None, None]:
    """Yield this process's part of the batches from `step` on, endlessly; seed and epoch determine their order."""
    lengths = np.array([one.length for one in part.features], np.int64)
    per_epoch = -(-len(lengths) // feed.batch_size)
    epoch, first = divmod(step, per_epoch)
    while True:
        batches = plan_batches(lengths, feed.buckets, feed.batch_size, config.seed, epoch, shuffle=True)
        yield from collate_batches(feed, part.features, batches[first:], blocks)
        epoch, first = epoch + 1, 0


class Measured(NamedTuple):
    """Predictions for a set, and their scores."""

    scores: dict[str, float]
    predictions: Predictions
    null_threshold: float | None  # the threshold for no answer that scores best here, if any has none


def measure(task: Task, config: TaskConfig, part: Part, outputs: Sequence[Outputs]) -> Measured:
    """Return predictions and scores of a labeled set; a threshold for no answer is tuned on it.

    A set whose questions all have answers does not show which margin means that there is none: all are answered.
    """
    kind = KINDS[task.kind]
    threshold = np.inf if task.impossible and not all(map(kind.gold, part.examples)) else None
    predictions = kind.predict(part.examples, part.features, outputs, config, threshold)
    if threshold is not None and kind.tune:
        predictions, threshold = kind.tune(part.examples, predictions)
    return Measured(score(task, part.examples, predictions.values), predictions, threshold)


def score_names(task: Task, parts: Sequence[Part]) -> list[str]:
    """Return the names of the scores of an `Evaluation` of these sets, by scoring the labels themselves.

    Raises:
        UserError: a metric that does not fit the task or the labels, or a missing library.
    """
    kind = KINDS[task.kind]
    gold = kind.gold
    for part in parts if task.best in CORRELATIONS else ():
        labels = {example[kind.label] for example in part.examples}
        if len(labels) == 1:
            raise UserError(
                f"task '{task.name}': all labels of the {part.name} set are {labels.pop():g}, so that no correlation "
                "is defined; give examples with other labels, too"
            )
    return [
        name
        for part in parts
        for name in _named(part, score(task, part.examples, [gold(example) for example in part.examples]))
    ]


def _named(part: Part, scores: dict[str, float]) -> dict[str, float]:
    """Return the scores under names that end in that of the set, such as accuracy_mismatched."""
    suffix = part.name.removeprefix("dev")
    return {name + suffix: value for name, value in scores.items()}


class Evaluation:
    """The dev sets of a model in training: `batches` for the loop, and scores from the outputs."""

    def __init__(
        self, config: TaskConfig, task: Task, parts: Sequence[Part], feed: Feed, model: Model, mesh: jax.sharding.Mesh
    ) -> None:
        self.config, self.task, self.parts, self.feed = config, task, parts, feed
        self.blocks = sharding.batch_blocks(mesh)
        self.features = [one for part in parts for one in part.features]
        self.planned = plan_evaluation(feed, self.features)
        self.predict = make_predict(model, mesh)

    def batches(self, phase: Phase) -> Generator[Batch, None, None]:
        """Yield the batches of one pass over all sets."""
        del phase  # the same at every step
        return collate_batches(self.feed, self.features, self.planned, self.blocks)

    def __call__(self, params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        """Return the scores of all sets; {} where the batches ended early."""
        with out_of_memory_in_evaluation_as_user_error():
            outputs = self.predict(params, self.features, self.planned, batches)
        if not all(outputs):
            return {}
        scores, begin = dict[str, float](), 0
        for part in self.parts:
            end = begin + len(part.features)
            scores |= _named(part, measure(self.task, self.config, part, outputs[begin:end]).scores)
            begin = end
        return scores
