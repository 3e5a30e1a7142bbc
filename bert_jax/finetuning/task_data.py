"""The sets of a task, and scores of the dev sets."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.inference.outputs import Outputs, make_predict
from bert_jax.inference.row_limits import row_limits
from bert_jax.models import Model, Params
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.parallel.memory import out_of_memory_in_evaluation_as_user_error
from bert_jax.tasks.batching import Feed, collate_batches
from bert_jax.tasks.features import IN_NO_WINDOW, SPELLED, UNKNOWN, Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions, TaskKind, Threshold, Tuned, make_features
from bert_jax.tasks.labels import label_counts_text, label_warnings, labels_text
from bert_jax.tasks.prediction_batches import plan_prediction_batches
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.scoring import CORRELATIONS, score_predictions
from bert_jax.tasks.task import Example, Task
from bert_jax.tokenizer import Tokenizer
from bert_jax.training.evaluation import Evaluate
from bert_jax.training.plan import Heldout


class TaskSplit(NamedTuple):
    """A set of a task, such as 'train', 'dev', 'dev_mismatched' or 'test'."""

    name: str
    examples: Sequence[Example]
    features: list[Features]


def read_split(task: Task, config: TaskConfig, name: str, tokenizer: Tokenizer, console: Console) -> TaskSplit:
    """Return a set with its features; print its labels, and how many texts are truncated or spell a special token."""
    kind = KINDS[task.kind]
    examples = read_task_examples(task, config, name, console.say)
    if task.labels and kind.label in examples[0]:  # then all examples have a label
        counts = count_labels(kind, examples)
        console.say(f"{task.name} {name}: {label_counts_text(task.labels, counts)}")
        if name == "train" and not task.published:
            for warning in label_warnings(task.labels, counts):
                console.say(f"{task.name} {name}: warning: {warning}")
        absent = [f"'{label}'" for index, label in enumerate(task.labels) if not counts[index]]
        if absent and name != "train" and not task.published and "macro_f1" in kind.default_metrics(task.labels)[0]:
            console.say(f"{task.name} {name}: warning: no example of {labels_text(absent)}; macro F1 counts 0 for each")
    features, cuts = make_features(kind, examples, tokenizer, config)
    cut = [
        f"{count:,} {what.replace('_', ' ')}"
        for what, count in cuts.items()
        if count and what not in (SPELLED, UNKNOWN, IN_NO_WINDOW)
    ]
    if cut:
        console.say(f"{task.name} {name}: {', '.join(cut)} (config.task.max_seq_len={config.max_seq_len})")
    if UNKNOWN in cuts:
        num_texts = sum(len(each.sequences) for each in features)  # an example of similarity has several sequences
        console.say(
            f"{task.name} {name}: warning: {cuts[UNKNOWN]:,} of {num_texts:,} texts have mostly unknown tokens "
            f"({tokenizer.special.unk}); start from a model whose vocabulary fits the texts"
        )
    if cuts.get(IN_NO_WINDOW):
        console.say(
            f"{task.name} {name}: warning: no window contains the whole answer to {cuts[IN_NO_WINDOW]:,} questions, so "
            f"these answers are neither learned nor found; lower config.task.doc_stride={config.doc_stride}, or raise "
            "max_seq_len"
        )
    if cuts[SPELLED]:
        sep = tokenizer.special.sep
        console.say(
            f"{task.name} {name}: {cuts[SPELLED]:,} texts have a spelled {sep} or other special token as a token"
        )
    return TaskSplit(name, examples, features)


def count_labels(kind: TaskKind, examples: Sequence[Example]) -> Counter[int]:
    """Return the number of examples with each label, by index of the label; if each word has a label, count words."""
    return Counter(label for example in examples for label in kind.label_indices(example))


def splits_digest(splits: Sequence[TaskSplit]) -> str:
    """Return the hex SHA-256 of the features and the gold answers of some sets.

    A resumed training must find an equal digest. The columns that no part of a training reads do not count.
    """
    digest = hashlib.sha256()
    for split in splits:
        for features in split.features:
            for ids, type_1_start in features.sequences:
                digest.update(ids.tobytes() + str(type_1_start).encode())
            targets = {key: np.asarray(value).tolist() for key, value in sorted(features.targets.items())}
            digest.update(json.dumps(targets).encode())
        # The features of a dev set of questions have no targets.
        digest.update(json.dumps([example["answers"] for example in split.examples if "answers" in example]).encode())
    return digest.hexdigest()


def is_labeled(task: Task, split: TaskSplit) -> bool:
    """Return whether the examples of a set have labels; either all have, or none has."""
    return KINDS[task.kind].label in split.examples[0]


class ScoredSplit(NamedTuple):
    """Scores and predictions of a labeled set."""

    scores: dict[str, float]
    predictions: Predictions
    threshold: Threshold  # the best threshold, for "no answer" or for each label; None: no threshold


def score_split(task: Task, settings: TaskConfig, split: TaskSplit, outputs: Sequence[Outputs]) -> ScoredSplit:
    """Return scores and predictions of a labeled set; thresholds for "no answer" or for labels are tuned on this set.

    If all questions of the set have answers, there is no threshold, and all questions are answered.
    """
    kind = KINDS[task.kind]
    threshold: Threshold = np.inf if task.impossible and not all(map(kind.gold, split.examples)) else None
    predictions = kind.predict(split.examples, split.features, outputs, settings, threshold)
    tuned = Tuned(predictions, threshold, {})
    if kind.tune and (threshold is not None or not kind.impossible):
        tuned = kind.tune(split.examples, predictions, settings)
    scores = score_predictions(task, split.examples, tuned.predictions.values) | tuned.scores
    return ScoredSplit(scores, tuned.predictions, tuned.threshold)


def score_names(task: Task, splits: Sequence[TaskSplit]) -> list[str]:
    """Return the names of the scores of an evaluation on these sets; the gold labels are scored to find the names.

    Raises:
        UserError: a metric does not fit the task or the labels, or a library is missing.
    """
    kind = KINDS[task.kind]
    for split in splits if task.best in CORRELATIONS else ():
        labels = {example[kind.label] for example in split.examples}
        if len(labels) == 1:
            raise UserError(
                f"task '{task.name}': all labels of the {split.name} set are {labels.pop():g}, so that no correlation "
                "is defined; give examples with other labels, too"
            )
    return [
        name
        for split in splits
        for name in _with_split_suffix(
            split, score_predictions(task, split.examples, list(map(kind.gold, split.examples)))
        )
    ]


def _with_split_suffix(split: TaskSplit, scores: dict[str, float]) -> dict[str, float]:
    """Return the scores under names that end in the name of the set, such as accuracy_mismatched."""
    suffix = split.name.removeprefix("dev")
    return {name + suffix: value for name, value in scores.items()}


class DevEvaluation(NamedTuple):
    """The batches of a pass over the dev sets, and the function that scores them."""

    heldout: Heldout
    evaluate: Evaluate


def make_dev_evaluation(
    task: Task,
    settings: TaskConfig,
    splits: Sequence[TaskSplit],
    feed: Feed,
    model: Model,
    compute: ComputeConfig,
    mesh: jax.sharding.Mesh,
) -> DevEvaluation:
    """Return the batches of one pass over the dev sets, and a function that scores them.

    The function returns {} if a signal stopped the evaluation.
    """
    blocks, predict = sharding.batch_blocks(mesh), make_predict(model, mesh)
    all_features = [features for split in splits for features in split.features]
    limits = row_limits((model.config,), model.heads, compute, mesh)
    planned = plan_prediction_batches(feed, all_features, limits, model.config.max_dense_length)

    def evaluate(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        with out_of_memory_in_evaluation_as_user_error():
            outputs = predict(params, all_features, planned, batches)
        if not all(outputs):
            return {}
        scores, begin = dict[str, float](), 0
        for split in splits:
            end = begin + len(split.features)
            scores |= _with_split_suffix(split, score_split(task, settings, split, outputs[begin:end]).scores)
            begin = end
        return scores

    # Every evaluation reads all dev sets, in every phase.
    return DevEvaluation(
        Heldout(lambda phase: collate_batches(feed, all_features, planned, blocks), lambda phase: len(planned)),
        evaluate,
    )
