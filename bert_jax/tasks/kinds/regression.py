"""Regression: a number for a text or a pair of texts."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features, FeaturesAndCounts
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, Outputs, Predictions, TaskKind
from bert_jax.tasks.kinds.texts import make_label_target, stack_in_example_order, text_features
from bert_jax.tasks.labels import NUMBER
from bert_jax.tasks.task import Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sequence_logits"

MAX_NUMBER = float(np.finfo(np.float32).max)  # labels of a batch are float32
MIN_NUMBERS = 10  # texts of numbers, some with a fraction, are not classes if there are at least 10 different numbers


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    return records.text_fields(record, task, tally) | records.label_field(
        record, lambda value: _finite_number(record, value)
    )


def _finite_number(record: Record, value: Any) -> float:
    try:
        parsed = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        parsed = math.nan
    if not abs(parsed) <= MAX_NUMBER:  # NaN is refused, too
        has_comma = isinstance(value, str) and NUMBER.fullmatch(value.strip().replace(",", ".", 1))
        fix = "write a point for the comma" if has_comma else "fix it, or set kind=sequence_classification"
        raise UserError(f"{record.where}: label {value!r:.40} is not a number; {fix}")
    return parsed


def _are_measurements(labels: Sequence[Any]) -> bool:
    """Return whether labels look like measurements: finite numbers, some with a fraction.

    Texts such as '1.5' must be at least MIN_NUMBERS different numbers, because texts may also name classes. A number
    with a fraction in JSON or Parquet names no class.
    """
    names = {str(label).strip() for label in labels}
    if not all(NUMBER.fullmatch(name) for name in names):
        return False
    values = {float(name) for name in names}
    may_be_classes = len(values) < MIN_NUMBERS and all(isinstance(label, str) for label in labels)
    return not may_be_classes and all(map(math.isfinite, values)) and not all(value.is_integer() for value in values)


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    return text_features(examples, tokenizer, settings.max_seq_len, make_label_target("values", np.float32))


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    return Predictions(stack_in_example_order(features, [output[OUTPUT][0] for output in outputs]))


REGRESSION = TaskKind(
    fields=("text", "label"),
    optional_fields=("text_pair", "id"),
    label_fields=("label",),
    make_example=_make_example,
    features=_features,
    head="sequence_classification",
    fits_file=lambda text, labels, separator: isinstance(text, str) and not separator and _are_measurements(labels),
    pipeline_tag="text-classification",
    purpose="grading texts like those it was trained on",
    classes=1,
    activation="identity",
    loss=Loss("squared_error", ((OUTPUT, "values"),)),
    predict=_predict,
    to_json=lambda labels, example, value: {"label": float(value)},
    default_metrics=lambda labels: (("pearson", "spearman"), "pearson"),
)
