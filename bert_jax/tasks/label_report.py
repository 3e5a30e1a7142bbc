"""Report on a classifier: scores of each label, confusion, calibration, and the worst errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.tasks.kinds.kind import Predictions, TaskKind
from bert_jax.tasks.task import Example

NUM_BINS = 15  # number of bins of probabilities, as in Guo et al. 2017
MAX_CONFUSION = 50  # maximum number of labels in a confusion matrix
MAX_ERRORS = 20  # maximum number of examples in the list of errors


def label_report(
    kind: TaskKind, labels: Sequence[str], examples: Sequence[Example], predictions: Predictions
) -> dict[str, Any] | None:
    """Return the report on a labeled set as JSON values; None for a kind without labels.

    The report has the following keys.

        labels: for each label, its name, precision, recall, F1, number of gold occurrences (support), and number of
            predictions.
        confusion: matrix with a row per gold label and a column per predicted label; the report has this key only if
            each example or word has exactly one label, and the task has at most `MAX_CONFUSION` labels.
        calibration: `ece`, the expected calibration error (Guo et al. 2017), and a list `bins`; each bin has the mean
            confidence, the fraction of right decisions and the number of decisions. A decision is the predicted label
            of an example or word; for sets of labels, each label of an example is a decision, yes or no, at 0.5 and not
            at the tuned threshold.
        errors: the wrongly predicted examples whose gold labels have the lowest probabilities, each with its id, text,
            gold label, predicted label and probability; token classification has no errors in the report.
    """
    if kind.label_names is None or predictions.details is None:
        return None
    if kind.problem:
        gold, predicted = (np.stack(list(sets)).astype(bool) for sets in (map(kind.gold, examples), predictions.values))
        of_label = np.asarray(predictions.details)
        of_truth = np.where(gold, of_label, 1.0 - of_label)
        confidences, right = np.maximum(of_label, 1.0 - of_label).ravel(), (of_truth >= 0.5).ravel()
        lowest, is_wrong = of_truth.min(1), (gold != predicted).any(1)
        counts = [sets.sum(0) for sets in (gold & predicted, gold, predicted)]
    else:
        gold, predicted = (
            np.concatenate([np.ravel(value) for value in values]).astype(int)
            for values in (map(kind.gold, examples), predictions.values)
        )
        right = gold == predicted
        is_of_words = len(gold) != len(examples) or np.ndim(kind.gold(examples[0])) > 0
        of_label = np.concatenate(predictions.details) if is_of_words else np.asarray(predictions.details)
        confidences = of_label if is_of_words else of_label.max(1)
        lowest, is_wrong = None if is_of_words else of_label[np.arange(len(gold)), gold], ~right
        counts = [np.bincount(indices, minlength=len(labels)) for indices in (gold[right], gold, predicted)]

    def label_names(of_example: np.ndarray) -> list[str]:
        """Return the names of a set of labels, bool `[labels]`, or of a single label, which is an index."""
        indices = np.flatnonzero(of_example) if kind.problem else np.atleast_1d(of_example)
        return [labels[label] for label in indices.tolist()]

    report: dict[str, Any] = {
        "labels": _scores_by_label(labels, *counts),
        "calibration": calibration_error_and_bins(confidences, right),
    }
    if not kind.problem and len(labels) <= MAX_CONFUSION:
        pairs = np.bincount(gold * len(labels) + predicted, minlength=len(labels) ** 2)
        report["confusion"] = pairs.reshape(len(labels), len(labels)).tolist()
    if lowest is not None:
        wrong = np.flatnonzero(is_wrong)
        worst = wrong[np.argsort(lowest[wrong], kind="stable")][:MAX_ERRORS]
        report["errors"] = [
            {
                "id": examples[index]["id"],
                "text": " | ".join(
                    str(examples[index][field]) for field in kind.text_fields if field in examples[index]
                ),
                "gold": label_names(gold[index]),
                "predicted": label_names(predicted[index]),
                "probability": round(float(lowest[index]), 6),
            }
            for index in worst.tolist()
        ]
    return report


def _scores_by_label(
    labels: Sequence[str], right: np.ndarray, support: np.ndarray, given: np.ndarray
) -> list[dict[str, Any]]:
    """Return the scores of each label; an undefined score is 0.

    For each label, the array `right` has the number of right predictions, `support` the number of gold occurrences, and
    `given` the number of all predictions; each array is int `[labels]`.
    """
    return [
        {
            "label": name,
            "precision": float(right[index] / max(given[index], 1)),
            "recall": float(right[index] / max(support[index], 1)),
            "f1": float(2 * right[index] / max(given[index] + support[index], 1)),
            "support": int(support[index]),
            "predicted": int(given[index]),
        }
        for index, name in enumerate(labels)
    ]


def calibration_error_and_bins(confidences: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Return a dict with the expected calibration error as `ece`, and the bins of confidence as `bins`.

    The error is the mean distance between confidence and accuracy over bins of equal width.

    Args:
        confidences: probabilities of the decisions, float `[n]`.
        right: whether each decision is right, bool `[n]`.
    """
    numbers = np.clip(np.ceil(confidences * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
    bins = [
        [float(confidences[chosen].mean()), float(right[chosen].mean()), int(chosen.sum())]
        for chosen in (numbers == index for index in range(NUM_BINS))
        if chosen.any()
    ]
    return {"ece": sum(abs(mean - share) * count for mean, share, count in bins) / len(right), "bins": bins}
