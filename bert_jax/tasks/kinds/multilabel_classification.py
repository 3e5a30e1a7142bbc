"""Multi-label classification: a yes or a no for each label, for a text or a pair of texts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.tasks.features import Features, FeaturesAndCounts
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, Outputs, Predictions, TaskKind, Threshold, Tuned
from bert_jax.tasks.kinds.multilabel_score import DEFAULT_THRESHOLD, best_f1_threshold, multilabel_scores
from bert_jax.tasks.kinds.texts import round_for_json, stack_in_example_order, text_features
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sequence_logits"


def _label_names(record: Record, task: Task) -> list[str]:
    """Return the names of a record's labels, which may be a list, a text with separators, or a single label."""
    value = record.fields["label"]
    if isinstance(value, list):
        return records.label_names_field(record, "label")
    if isinstance(value, str) and task.label_separator:
        return [name for part in value.split(task.label_separator) if (name := part.strip())]
    return [records.normalize_label_name(record, "label", value)]


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    """Return the example of a record; the example's label is a bool array `[labels]`, True for the record's labels."""
    example = records.text_fields(record, task, tally)
    if record.fields.get("label") is None:
        return example
    label_set = np.zeros(len(task.labels), bool)
    label_set[[records.class_index(record, task, name) for name in _label_names(record, task)]] = True
    return example | {"label": label_set}


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return the features of the texts; their `targets` have the key `label_set`, float32 `[1, labels]`."""

    def label_set_target(example: Example) -> dict[str, Any]:
        return {"label_set": example["label"].astype(np.float32)[None]} if "label" in example else {}

    return text_features(examples, tokenizer, settings.max_seq_len, label_set_target)


def _predict(
    examples: Examples,
    features: Sequence[Features],
    outputs: Sequence[Outputs],
    settings: TaskConfig,
    threshold: Threshold,
) -> Predictions:
    """Return the predicted labels, bool `[n, labels]`: True if the probability of the label reaches its threshold."""
    logits = stack_in_example_order(features, [output[OUTPUT] for output in outputs]).astype(np.float64)
    probabilities = 1.0 / (1.0 + np.exp(-logits))
    if threshold is None:
        threshold = settings.threshold or DEFAULT_THRESHOLD
    return Predictions(probabilities >= np.asarray(threshold), probabilities)


def _tune_thresholds(examples: Examples, predictions: Predictions, settings: TaskConfig) -> Tuned:
    """Choose a common threshold and thresholds per label, by F1; apply the kind of threshold that the settings name.

    The result also has the scores that the other kind of threshold would give. A label without examples gets the common
    threshold.
    """
    gold, probabilities = np.stack([example["label"] for example in examples]), np.asarray(predictions.details)
    num_labels = gold.shape[1]
    if settings.threshold is not None:
        return Tuned(predictions, (settings.threshold,) * num_labels, {})
    shared = best_f1_threshold(probabilities.ravel(), gold.ravel())
    for_each = [
        best_f1_threshold(probabilities[:, label], gold[:, label]) if gold[:, label].any() else shared
        for label in range(num_labels)
    ]
    by_name = {"one_threshold": [shared] * num_labels, "threshold_per_label": for_each}
    chosen, rejected = reversed(by_name) if settings.threshold_per_label else by_name
    scores = multilabel_scores(gold, probabilities >= np.array(by_name[rejected]))
    return Tuned(
        predictions._replace(values=probabilities >= np.array(by_name[chosen])),
        tuple(by_name[chosen]),
        {f"{name}_{rejected}": score for name, score in scores.items()} | {"threshold": shared},
    )


MULTILABEL_CLASSIFICATION = TaskKind(
    fields=("text", "label"),
    optional_fields=("text_pair", "id"),
    label_fields=("label",),
    column_lists={"label": "label"},  # label0, label1, ... in files with a column of 0 and 1 for each label
    make_example=_make_example,
    features=_features,
    head="sequence_classification",
    problem="multi_label_classification",
    settings=(
        "labels",
        "label_separator",
        "threshold",
        "threshold_per_label",
        "class_weights",
        "focal_gamma",
        "oversample",
    ),
    fits_file=lambda text, labels, separator: (
        isinstance(text, str)
        and (bool(separator) or any(isinstance(label, list) for label in labels))
        and not records.has_answers(labels)
    ),
    pipeline_tag="text-classification",
    purpose="giving labels to texts like those it was trained on",
    classes=None,
    loss=Loss("binary_cross_entropy", ((OUTPUT, "label_set"),)),
    predict=_predict,
    tune=_tune_thresholds,
    to_json=lambda labels, example, value: {"label": [labels[index] for index in np.flatnonzero(value).tolist()]},
    details=lambda labels, probabilities: {
        "probabilities": dict(zip(labels, round_for_json(probabilities), strict=True))
    },
    default_metrics=lambda labels: (("multilabel",), "micro_f1"),
    label_names=_label_names,
    label_indices=lambda example: np.flatnonzero(example["label"]).tolist(),
)
