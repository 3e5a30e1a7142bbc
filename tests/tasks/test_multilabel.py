"""Multi-label classification: labels from files, scores beside scikit-learn, thresholds beside a search of all."""

import numpy as np
import pytest
from sklearn import metrics

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions
from bert_jax.tasks.kinds.multilabel_score import best_f1_threshold, multilabel_scores
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import resolve_task

KIND = KINDS["multilabel_classification"]


def read(tmp_path, name, content, **settings):
    (tmp_path / name).write_text(content)
    config = TaskConfig(name="custom", kind="multilabel_classification", train=str(tmp_path / name), **settings)
    task = resolve_task(config)
    return task, read_task_examples(task, config, "train", lambda line: None)


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("a.csv", "text,label\nx,a; b\ny,c\nz,b;\nw,b;a;b\n", {"label_separator": ";"}),
        ("a.csv", "text;label\nx;a|b\ny;c\nz;b\nw;b|a\n", {"label_separator": "|"}),
        (
            "a.jsonl",
            '{"text": "x", "label": ["a", "b"]}\n{"text": "y", "label": "c"}\n{"text": "z", "label": ["b"]}\n'
            '{"text": "w", "label": ["b", "a"]}\n',
            {},
        ),
    ],
)
def test_labels_of_files(tmp_path, name, content, settings):
    task, examples = read(tmp_path, name, content, **settings)
    assert task.labels == ("a", "b", "c")
    assert [KIND.label_indices(example) for example in examples] == [[0, 1], [2], [1], [0, 1]]
    assert KIND.to_json(task.labels, examples[0], examples[0]["label"]) == {"label": ["a", "b"]}


def test_an_empty_list_is_no_label_and_not_missing(tmp_path):
    _, examples = read(tmp_path, "a.jsonl", '{"text": "x", "label": []}\n{"text": "y", "label": ["a", "b"]}\n')
    assert [KIND.label_indices(example) for example in examples] == [[], [0, 1]]
    with pytest.raises(UserError, match=r"a\.csv:3: has no label"):
        read(tmp_path, "a.csv", "text,label\nx,a;b\ny,\n", label_separator=";")


@pytest.mark.parametrize("seed", range(20))
def test_scores_equal_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    gold, predicted = (rng.random((30, 5)) < rate for rate in (0.3, 0.4))
    gold[:, 4], predicted[:, 4] = False, seed % 2 == 0  # a label that does not occur
    examples = [{"id": str(n), "label": row} for n, row in enumerate(gold)]
    (path_free_task,) = [resolve_task(TaskConfig(name="custom", kind="multilabel_classification", labels="a,b,c,d,e"))]
    scores = score_predictions(path_free_task, examples, list(predicted))
    for average, zero in (("micro", 0), ("macro", 0), ("samples", 1)):
        expected = metrics.f1_score(gold, predicted, average=average, zero_division=zero)
        assert scores[f"{average.removesuffix('s')}_f1"] == pytest.approx(expected)
    assert scores["all_right"] == pytest.approx(metrics.accuracy_score(gold, predicted))


@pytest.mark.parametrize("seed", range(30))
def test_thresholds_are_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    gold = rng.random(40) < 0.3
    gold[0] = True
    probabilities = np.clip(0.4 * gold + rng.random(40) * 0.6, 0.01, 0.99)
    probabilities = np.round(probabilities, 1 if seed % 2 else 6)  # with equal probabilities, and without

    def f1(threshold):
        return metrics.f1_score(gold, probabilities >= threshold, zero_division=0)

    threshold = best_f1_threshold(probabilities, gold)
    assert 0 < threshold < 1
    assert f1(threshold) == pytest.approx(max(f1(cut) for cut in probabilities))


def test_the_threshold_of_probabilities_of_0_is_a_probability():
    """`predict` refuses a threshold of 0; a sigmoid in float32 may be 0."""
    assert best_f1_threshold(np.zeros(2, np.float32), np.array([True, False])) == 0.5


@pytest.mark.parametrize("per_label", [False, True])
def test_both_kinds_of_thresholds_are_reported_and_the_chosen_kind_is_used(per_label):
    rng = np.random.default_rng(0)
    gold = rng.random((50, 3)) < [0.1, 0.5, 0.0]
    probabilities = np.clip(gold * [0.2, 0.5, 0.0] + rng.random((50, 3)) * [0.4, 0.6, 0.3], 0.001, 0.999)
    examples = [{"id": str(n), "label": row} for n, row in enumerate(gold)]
    tuned = KIND.tune(
        examples, Predictions(probabilities > 0.5, probabilities), TaskConfig(threshold_per_label=per_label)
    )
    one = best_f1_threshold(probabilities.ravel(), gold.ravel())
    each = [best_f1_threshold(probabilities[:, n], gold[:, n]) for n in range(2)] + [
        one
    ]  # the last label has no example
    assert tuned.threshold == pytest.approx(each if per_label else [one] * 3)
    np.testing.assert_array_equal(tuned.predictions.values, probabilities >= np.array(tuned.threshold))
    other, thresholds = ("one_threshold", one) if per_label else ("threshold_per_label", each)
    expected = multilabel_scores(gold, probabilities >= np.array(thresholds))
    assert tuned.scores == {f"{name}_{other}": score for name, score in expected.items()} | {"threshold": one}
    fixed = KIND.tune(examples, Predictions(probabilities > 0.5, probabilities), TaskConfig(threshold=0.7))
    assert fixed.threshold == (0.7, 0.7, 0.7)
    assert fixed.scores == {}
