"""Sequence classification: a label for a text or a pair of texts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.tasks.features import FeaturesAndCounts
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, TaskKind
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.texts import make_class_predictor, make_label_target, round_for_json, text_features
from bert_jax.tasks.task import Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sequence_logits"


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    index = records.label_field(record, lambda value: records.class_index(record, task, value))
    return records.text_fields(record, task, tally) | index


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    return text_features(examples, tokenizer, settings.max_seq_len, make_label_target("labels", np.int32))


def _probabilities_by_label(labels: Sequence[str], probabilities: np.ndarray) -> dict[str, Any]:
    return {"probabilities": dict(zip(_distinct_label_names(labels), round_for_json(probabilities), strict=True))}


def _distinct_label_names(labels: Sequence[str]) -> list[str]:
    """Return the labels with distinct names: if several classes share a name, the number of the class is appended."""
    counts = Counter(labels)
    return [f"{label} ({i})" if counts[label] > 1 else label for i, label in enumerate(labels)]


SEQUENCE_CLASSIFICATION = TaskKind(
    fields=("text", "label"),
    optional_fields=("text_pair", "id"),
    label_fields=("label",),
    make_example=_make_example,
    features=_features,
    head="sequence_classification",
    settings=("labels", "class_weights", "focal_gamma", "oversample", "soft_temperature"),
    prompt_kind="prompt_classification",
    fits_file=lambda text, labels, separator: (
        isinstance(text, str)
        and not separator
        and not any(isinstance(label, list) for label in labels)
        and not records.has_answers(labels)
        and not REGRESSION.fits_file(text, labels, separator)
    ),
    pipeline_tag="text-classification",
    purpose="classifying texts like those it was trained on",
    classes=None,
    loss=Loss("cross_entropy", ((OUTPUT, "labels"),)),
    predict=make_class_predictor(OUTPUT),
    to_json=lambda labels, example, value: {"label": labels[int(value)]},
    details=_probabilities_by_label,
    default_metrics=lambda labels: (("accuracy", "macro_f1"), "accuracy"),
    label_names=lambda record, task: [records.normalize_label_name(record, "label", record.fields["label"])],
)
