"""A model's outputs -> what it says of each example: one row a kind of task."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.tasks.row import Example, Row
from bert_jax.tasks.span import Found, find_answers
from bert_jax.tasks.tagging import word_labels

Outputs = Mapping[str, np.ndarray]


class Predictions(NamedTuple):
    """Of examples in their order; `values` are what scoring.score and submission take."""

    values: Any  # int [n] | float [n] | list of int lists, one a word | dict id -> text
    probabilities: Any  # float [n, classes] | None | list of float lists, of each word's label | list of Found


def predictions(
    kind: str,
    examples: Sequence[Example],
    rows: Sequence[Row],
    outputs: Sequence[Outputs],
    settings: TaskConfig,
    null_threshold: float | None = None,
) -> Predictions:
    """What the outputs of all rows of the examples say.

    Args:
        kind: of the task.
        examples: those that the rows are of.
        rows: in any order.
        outputs: of each row, as inference.py gives them.
        settings: of spans, how long answers are and how many are kept.
        null_threshold: of spans, how much better no answer has to be than the best one; None: there always is one.
    """
    if kind == "span":
        starts, ends = ([one[name] for one in outputs] for name in ("start_logits", "end_logits"))
        found = find_answers(examples, rows, starts, ends, settings, null_threshold is not None)
        return span_predictions(examples, found, null_threshold)
    return DECODERS[kind](examples, rows, outputs)


def span_predictions(examples: Sequence[Example], found: Sequence[Found], threshold: float | None) -> Predictions:
    """The best answers at a threshold."""
    answers = {example["id"]: one.text(threshold) for example, one in zip(examples, found, strict=True)}
    return Predictions(answers, list(found))


def _classes(name: str) -> Callable[[Sequence[Example], Sequence[Row], Sequence[Outputs]], Predictions]:
    def decode(_: Sequence[Example], rows: Sequence[Row], outputs: Sequence[Outputs]) -> Predictions:
        logits = np.stack([one[name] for one in outputs])[np.argsort([row.example for row in rows])]
        return Predictions(logits.argmax(1), _softmax(logits))

    return decode


def _values(_: Sequence[Example], rows: Sequence[Row], outputs: Sequence[Outputs]) -> Predictions:
    values = np.stack([one["classification_logits"][0] for one in outputs])
    return Predictions(values[np.argsort([row.example for row in rows])], None)


def _tags(examples: Sequence[Example], rows: Sequence[Row], outputs: Sequence[Outputs]) -> Predictions:
    every = [_softmax(one["tagging_logits"]) for one in outputs]
    labels = word_labels(rows, [one.argmax(1) for one in every], len(examples))
    return Predictions(labels, word_labels(rows, [one.max(1) for one in every], len(examples)))


def _softmax(logits: np.ndarray) -> np.ndarray:
    likely = np.exp(logits - logits.max(-1, keepdims=True))
    return likely / likely.sum(-1, keepdims=True)


DECODERS = {
    "classification": _classes("classification_logits"),
    "choice": _classes("choice_logits"),
    "regression": _values,
    "tagging": _tags,
}


def as_record(kind: str, labels: Sequence[str], example: Example, made: Predictions, number: int) -> dict[str, Any]:
    """What `predict` prints of one example: JSON values."""
    record: dict[str, Any] = {"id": example["id"]}
    if kind == "classification":
        likely = made.probabilities[number]
        return record | {
            "label": labels[int(made.values[number])],
            "probabilities": {label: round(float(p), 6) for label, p in zip(labels, likely, strict=True)},
        }
    if kind == "regression":
        return record | {"value": float(made.values[number])}
    if kind == "choice":
        likely = [round(float(p), 6) for p in made.probabilities[number]]
        return record | {"choice": int(made.values[number]), "probabilities": likely}
    if kind == "tagging":
        return record | {
            "tokens": list(example["tokens"]),
            "labels": [labels[label] for label in made.values[number]],
            "probabilities": [round(float(p), 6) for p in made.probabilities[number]],
        }
    found: Found = made.probabilities[number]
    return record | {
        "answer": made.values[example["id"]],
        "n_best": [answer._asdict() for answer in found.answers],
        "null_margin": found.null_margin if math.isfinite(found.null_margin) else None,
    }
