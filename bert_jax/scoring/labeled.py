"""Scores of a fine-tuned model on a file with labels, such as a test set that training did not read."""

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.inference.predict import Predictor, features_to_predict
from bert_jax.tasks.custom import NAME, parse_columns_setting
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.label_report import label_report
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import TASKS, source_of_prediction_file
from bert_jax.tasks.task import Columns, Example, SetSource, Task

SPLIT = "dev"  # all examples of a dev set have labels


class LabeledReport(NamedTuple):
    """The scores of a model on a file with labels.

    Attributes:
        source: path of the file.
        num_examples: number of examples with a label.
        counts: truncations and splits of texts, such as "truncated texts", with their numbers; 0 is left out.
        scores: name of a score -> score; None for a score that is not finite.
        labels: the values of `tasks.label_report.label_report`; None for a kind of task without labels.
    """

    source: str
    num_examples: int
    counts: dict[str, int]
    scores: dict[str, float | None]
    labels: dict[str, Any] | None


def score_labeled_file(
    predictor: Predictor,
    source: str | os.PathLike[str],
    say: Callable[[str], None],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LabeledReport:
    """Return the scores of a fine-tuned model on a file in a format of training files.

    Thresholds are the thresholds that training chose on its dev set. Rows without a label are left out and counted. The
    columns have the names of the columns in the training file or, as in `predict`, the names of the fields.

    Args:
        predictor: the model.
        source: path of the file.
        say: function that is called with a line about each problem of the data that is counted but raises no error.
        progress: function that is called with the number of finished inputs and of all inputs of the model.

    Raises:
        UserError: the file cannot be read, a column is missing, or a label is not a label of the model.
    """
    path, kind = os.path.abspath(source), KINDS[predictor.task.kind]
    if not os.path.isfile(path):
        raise UserError(f"{os.fspath(source)}: no such file; give a file with texts and labels")
    task, examples = _read_examples(predictor, path, say)
    features, cut = features_to_predict(predictor, examples)
    outputs = predictor.outputs_of(features, lambda done: progress(done, len(features)))
    predictions = kind.predict(examples, features, outputs, predictor.settings, predictor.threshold)
    scores = score_predictions(task, examples, predictions.values)
    return LabeledReport(
        source=os.fspath(source),
        num_examples=len(examples),
        counts={name.replace("_", " "): count for name, count in cut.items() if count},
        scores={name: value if math.isfinite(value) else None for name, value in scores.items()},
        labels=label_report(kind, task.labels, examples, predictions),
    )


class _ReadExamples(NamedTuple):
    """The examples of a file, and the task that they belong to."""

    task: Task
    examples: list[Example]


def _read_examples(predictor: Predictor, path: str, say: Callable[[str], None]) -> _ReadExamples:
    """Return the examples of a file, whose columns are named as in training, or all by the names of the fields."""
    kind, trained = KINDS[predictor.task.kind], predictor.settings
    settings = dataclasses.replace(
        trained,
        name=trained.name or NAME,
        kind=predictor.task.kind,
        data=None,
        dev=path,
        dev_fraction=None,
        skip_unlabeled=True,
    )
    source = source_of_prediction_file(settings, kind, path)
    problems = list[UserError]()
    for named in _possible_columns(settings.name, kind, source.columns):
        task = _labeled_task(predictor.task, settings, dataclasses.replace(source, columns=named))
        lines = list[str]()
        try:
            examples = read_task_examples(task, settings, SPLIT, lines.append)
        except UserError as problem:
            problems.append(problem)
            continue
        for line in lines:
            say(line)
        return _ReadExamples(task, examples)
    raise problems[0]


def _possible_columns(task: str | None, kind: TaskKind, columns: Columns) -> list[Columns]:
    """Return the ways in which a file may name the fields that training read; the first way that fits is right.

    `columns` are the columns of the user's training file; {} for a published task, whose dev set has the same fields.
    """
    if columns:
        return [columns, {field: field for field in columns}]
    published = TASKS[task].sets[SPLIT].columns if task in TASKS and SPLIT in TASKS[task].sets else {}
    fields = {field: field for field in kind.fields}
    if not published:  # the layout of SQuAD names no columns
        return [fields]
    optional = {field: field for field in kind.optional_fields if field in published}
    return [fields | optional, published, {field: field for field in published}]


def _labeled_task(predicted: Task, settings: TaskConfig, source: SetSource) -> Task:
    """Return the task of a model with the metrics of its training, whose dev set is read from `source`."""
    kind = KINDS[predicted.kind]
    if settings.name in TASKS:
        return dataclasses.replace(TASKS[settings.name], labels=predicted.labels, sets={SPLIT: source})
    return dataclasses.replace(
        predicted,
        name=NAME,
        sets={SPLIT: dataclasses.replace(source, given=[*parse_columns_setting(settings, kind)])},
        metrics=kind.default_metrics(predicted.labels)[0],
        impossible=kind.impossible,
        label_separator=settings.label_separator or "",
        published=False,
    )


def labeled_json(report: LabeledReport, details: bool) -> dict[str, Any]:
    """Return a report as JSON values; if `details` is True, include the worst errors."""
    labels = {name: value for name, value in (report.labels or {}).items() if details or name != "errors"}
    return {
        "benchmark": "labeled",
        "source": report.source,
        "examples": report.num_examples,
        **{name.replace(" ", "_"): count for name, count in report.counts.items()},
        "scores": report.scores,
        **labels,
    }
