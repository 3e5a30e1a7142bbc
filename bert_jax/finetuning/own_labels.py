"""The config of a fine-tuning on a user's own file: recipe, kind of task, columns, dev set and metric from the file."""

import collections
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.records import is_missing
from bert_jax.tasks.labels import NUMBER
from bert_jax.tasks.reading.formats import read_file_records
from bert_jax.tasks.task import Record

MIN_NUMBERS = 10  # distinct numbers, some with a fraction, of a regression
SKEW = 3  # from which the most frequent label has so many times the examples of the rarest, macro F1 is the metric
DEV_FRACTION, SMALL_DEV_FRACTION, SMALL = 0.1, 0.2, 1_000  # of a file with fewer rows than SMALL: the second
# Kind of task -> recipe.
RECIPES = {"token_classification": "token_classification", "similarity": "similarity"}
RECIPE = "glue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFile:
    """A user's file with labels, and the choices that the user made; None: chosen by the file."""

    path: str
    text: tuple[str, ...]  # columns of the text, and perhaps of a second text
    label: str  # column
    kind: str | None = None
    label_separator: str | None = None
    delimiter: str | None = None
    dev: str | None = None  # file
    dev_fraction: float | None = None
    skip_unlabeled: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask:
    """A recipe, the values of `config.task` that describe a user's file, and lines about the choices."""

    recipe: str
    task: dict[str, Any]
    lines: tuple[str, ...]


def describe_own_file(file: OwnFile) -> OwnTask:
    """Return the recipe and the fields of `config.task` for a file.

    Raises:
        UserError: the file cannot be read, a column is missing or named twice, or no row has a label.
    """
    names = (*file.text, file.label)
    if not 1 <= len(file.text) <= 2 or len(set(names)) < len(names):
        raise UserError(
            f"--text {','.join(file.text)} --label {file.label}: give one column of texts, or two, and another column "
            "of labels"
        )
    if odd := [name for name in names if "," in name or "=" in name]:
        raise UserError(f"--text or --label: the column '{odd[0]}' has a comma or '=' in its name; rename it")
    columns = {**dict(zip(("text", "text_pair"), file.text, strict=False)), "label": file.label}
    notes: collections.Counter[str] = collections.Counter()
    path = os.path.abspath(file.path)
    records = list(read_file_records(path, "", {}, columns, (), None, notes, file.delimiter))
    labels = [record.fields["label"] for record in records if not is_missing(record.fields["label"])]
    if not labels:
        raise UserError(f"{file.path}: no row has a value in the column '{file.label}'")
    kind = file.kind or _kind_of(records[0], labels, file.label_separator)
    if kind not in KINDS:
        raise UserError(f"--kind {kind}: no such kind; there are {', '.join(KINDS)}")
    if kind == "token_classification":
        columns = {"tokens": file.text[0], "labels": file.label}
    task: dict[str, Any] = {
        "name": "custom",
        "kind": kind,
        "train": path,
        "columns": ",".join(f"{field}={name}" for field, name in columns.items()),
        "label_separator": file.label_separator,
        "delimiter": file.delimiter,
        "skip_unlabeled": file.skip_unlabeled or None,
        "metric": "macro_f1" if kind == "sequence_classification" and _is_skewed(labels) else None,
        "dev": file.dev and os.path.abspath(file.dev),
    }
    if not file.dev:
        task["dev_fraction"] = file.dev_fraction or (DEV_FRACTION if len(labels) >= SMALL else SMALL_DEV_FRACTION)
    task = {key: value for key, value in task.items() if value is not None}
    recipe = RECIPES.get(kind, RECIPE)
    return OwnTask(recipe=recipe, task=task, lines=_lines(file, recipe, task, len(records), labels, notes))


def _kind_of(record: Record, labels: Sequence[Any], label_separator: str | None) -> str:
    """Return the kind of task that fits the values of a file."""
    if isinstance(record.fields["text"], list):
        return "token_classification"
    if label_separator or any(isinstance(label, list) for label in labels):
        return "multilabel_classification"
    numbers = {str(label).strip() for label in labels}
    if all(NUMBER.fullmatch(number) for number in numbers):
        values = {float(number) for number in numbers}
        if len(values) > MIN_NUMBERS and any(not value.is_integer() for value in values):
            return "regression"
    return "sequence_classification"


def _is_skewed(labels: Sequence[Any]) -> bool:
    """Return whether the most frequent label has `SKEW` times the examples of the rarest label."""
    counts = collections.Counter(str(label).strip() for label in labels).values()
    return max(counts) >= SKEW * min(counts)


def _lines(
    file: OwnFile, recipe: str, task: Mapping[str, Any], num_rows: int, labels: Sequence[Any], notes: Mapping[str, int]
) -> tuple[str, ...]:
    """Return lines that say what was found and chosen, and by which option each choice can be set."""
    where = "".join(f", {count} {note}" for note, count in notes.items())
    metric = task.get("metric") or KINDS[task["kind"]].default_metrics(())[1]
    dev = (
        f"{task['dev_fraction']:.0%} of the rows are the dev set, by label (--dev_fraction, --dev)"
        if "dev_fraction" in task
        else f"dev set {task['dev']}"
    )
    return (
        f"{file.path}: {num_rows:,} rows{where}; texts in {' and '.join(file.text)}, labels in {len(labels):,} rows of "
        f"{file.label}",
        f"kind {task['kind']} (--kind), recipe {recipe} (--config), metric {metric} (--config.task.metric); {dev}",
    )
