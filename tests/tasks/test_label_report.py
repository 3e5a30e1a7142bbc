"""The report on labels beside scikit-learn, and the calibration error beside its definition."""

import tracemalloc

import numpy as np
import pytest
from sklearn import metrics

from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions
from bert_jax.tasks.label_report import calibration_error_and_bins, label_report

LABELS = ("a", "b", "c", "d")


def check_scores(report, gold, predicted):
    expected = metrics.precision_recall_fscore_support(gold, predicted, labels=range(4), zero_division=0)
    for index, row in enumerate(report["labels"]):
        assert row["label"] == LABELS[index]
        values = row["precision"], row["recall"], row["f1"], row["support"]
        assert values == pytest.approx([column[index] for column in expected])


def softmax(rng, rows):
    logits = np.exp(rng.normal(size=(rows, 4)))
    return logits / logits.sum(1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_texts_with_a_label(seed):
    rng = np.random.default_rng(seed)
    gold, probabilities = rng.integers(0, 3, 40), softmax(rng, 40)  # the last label does not occur
    examples = [{"id": str(n), "text": f"text {n}", "label": label} for n, label in enumerate(gold.tolist())]
    predicted = probabilities.argmax(1)
    report = label_report(KINDS["sequence_classification"], LABELS, examples, Predictions(predicted, probabilities))
    check_scores(report, gold, predicted)
    assert report["confusion"] == metrics.confusion_matrix(gold, predicted, labels=range(4)).tolist()
    assert [row["predicted"] for row in report["labels"]] == np.bincount(predicted, minlength=4).tolist()
    of_gold = probabilities[np.arange(40), gold]
    wrong = [n for n in np.argsort(of_gold) if gold[n] != predicted[n]][:20]
    assert [error["id"] for error in report["errors"]] == [str(n) for n in wrong]
    first = report["errors"][0]
    assert (first["text"], first["gold"]) == (f"text {wrong[0]}", [LABELS[gold[wrong[0]]]])
    assert first["predicted"] == [LABELS[predicted[wrong[0]]]]
    assert first["probability"] == pytest.approx(of_gold[wrong[0]], abs=1e-6)


def test_words():
    rng = np.random.default_rng(0)
    sizes = [3, 1, 5]
    gold = [rng.integers(0, 4, size).tolist() for size in sizes]
    probabilities = [softmax(rng, size) for size in sizes]
    predicted = [one.argmax(1).tolist() for one in probabilities]
    examples = [{"id": str(n), "tokens": ["x"] * len(one), "labels": one} for n, one in enumerate(gold)]
    details = [one.max(1).tolist() for one in probabilities]
    report = label_report(KINDS["token_classification"], LABELS, examples, Predictions(predicted, details))
    check_scores(report, np.concatenate(gold), np.concatenate(predicted))
    assert sum(count for *_, count in report["calibration"]["bins"]) == sum(sizes)
    assert "errors" not in report


def test_sets_of_labels():
    rng = np.random.default_rng(0)
    gold, probabilities = rng.random((30, 4)) < 0.3, rng.random((30, 4))
    examples = [{"id": str(n), "text": "x", "text_pair": "y", "label": row} for n, row in enumerate(gold)]
    predicted = probabilities >= 0.4
    report = label_report(KINDS["multilabel_classification"], LABELS, examples, Predictions(predicted, probabilities))
    check_scores(report, gold, predicted)
    assert "confusion" not in report
    assert report["errors"][0]["text"] == "x | y"
    lowest = np.where(gold, probabilities, 1 - probabilities).min(1)
    assert report["errors"][0]["probability"] == pytest.approx(min(lowest[(gold != predicted).any(1)]), abs=1e-6)


def test_kinds_without_labels_have_no_report():
    examples = [{"id": "0", "text": "x", "label": 1.5}]
    assert label_report(KINDS["regression"], (), examples, Predictions(np.array([1.0]))) is None


@pytest.mark.parametrize("seed", range(5))
def test_calibration_by_its_definition(seed):
    rng = np.random.default_rng(seed)
    confidences, right = rng.random(200), rng.random(200) < 0.5
    confidences[:3] = 0.0, 1.0, 1 / 15
    expected = 0.0
    for n in range(15):
        chosen = [i for i, p in enumerate(confidences) if n / 15 < p <= (n + 1) / 15 or (n == 0 and p == 0.0)]
        if chosen:
            expected += abs(sum(right[i] for i in chosen) - sum(confidences[i] for i in chosen)) / 200
    assert calibration_error_and_bins(confidences, right)["ece"] == pytest.approx(expected)


def test_memory_does_not_grow_with_the_square_of_the_labels():
    labels = [str(label) for label in range(10_000)]
    examples = [{"id": str(n), "text": "x", "label": n} for n in range(20)]
    predictions = Predictions([0] * 20, np.full((20, 10_000), 1e-4, np.float32))
    tracemalloc.start()
    report = label_report(KINDS["sequence_classification"], labels, examples, predictions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [sum(row[key] for row in report["labels"]) for key in ("support", "predicted")] == [20, 20]
    assert peak < 50e6
