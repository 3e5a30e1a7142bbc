"""F1 of sets of labels, and the threshold with the best F1."""

import numpy as np

DEFAULT_THRESHOLD = 0.5  # as in transformers


def multilabel_scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return micro, macro and sample F1, and the fraction of examples whose labels are all right.

    F1 is 2 TP / (2 TP + FP + FN), as in scikit-learn's `f1_score`. Micro F1 is computed from the decisions about all
    labels together. Macro F1 is the mean over the labels; a label that neither occurs nor is predicted has the F1 0.
    Sample F1 is the mean over the examples; an example that has neither labels nor predicted labels has the F1 1.

    Args:
        gold: bool `[examples, labels]`.
        predicted: bool `[examples, labels]`.
    """
    right, total = gold & predicted, gold.astype(np.int64) + predicted
    return {
        "micro_f1": float(2 * right.sum() / max(total.sum(), 1)),
        "macro_f1": float(np.mean(2 * right.sum(0) / np.maximum(total.sum(0), 1))),
        "sample_f1": float(np.mean(np.where(total.sum(1), 2 * right.sum(1) / np.maximum(total.sum(1), 1), 1.0))),
        "all_right": float(np.mean((gold == predicted).all(1))),
    }


def best_f1_threshold(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Return the threshold of probabilities that gives the best F1; of equally good thresholds, return the highest.

    A probability above the threshold means "yes". The threshold is midway between the lowest probability that becomes a
    "yes" and the highest probability that becomes a "no", so it is above 0 and below 1; it is 0.5 if all probabilities
    are 0.

    Args:
        probabilities: float `[n]`, from 0 to 1.
        gold: bool `[n]`.
    """
    order = np.argsort(-probabilities, kind="stable")
    sorted_probabilities = np.append(probabilities[order], 0.0)
    scores = 2 * np.cumsum(gold[order]) / (np.arange(1, len(gold) + 1) + gold.sum())
    # No threshold separates equal probabilities.
    scores[sorted_probabilities[:-1] == sorted_probabilities[1:]] = -1.0
    best = int(scores.argmax())
    return float((sorted_probabilities[best] + sorted_probabilities[best + 1]) / 2) or DEFAULT_THRESHOLD
