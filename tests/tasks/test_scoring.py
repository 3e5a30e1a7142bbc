"""Metrics against closed forms, and nervaluate on real labels."""

import sys

import numpy as np
import pytest
from nervaluate.evaluator import Evaluator
from published_data import sentences

from bert_jax.errors import UserError
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.token_classification import entity_spans
from bert_jax.tasks.scoring import METRICS, score_predictions
from bert_jax.tasks.task import Task


def task(kind, metrics, labels=()):
    return Task(name="mine", kind=kind, sets={}, metrics=metrics, best=metrics[0], labels=labels)


def labeled(labels):
    return [{"id": str(number), "label": label} for number, label in enumerate(labels)]


def test_classification_by_hand():
    gold, predicted = [1, 1, 1, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1, 0, 1]
    scores = score_predictions(
        task("sequence_classification", ("accuracy", "f1", "macro_f1", "matthews"), ("no", "yes")),
        labeled(gold),
        np.array(predicted),
    )
    right, wrong, missed, left = 3, 1, 1, 3
    assert scores == pytest.approx(
        {
            "accuracy": 6 / 8,
            "f1": 2 * right / (2 * right + wrong + missed),
            "macro_f1": (2 * right / (2 * right + 2) + 2 * left / (2 * left + 2)) / 2,
            "matthews": (right * left - wrong * missed) / (4 * 4 * 4 * 4) ** 0.5,
        }
    )
    assert score_predictions(task("multiple_choice", ("accuracy",)), labeled([0, 3, 2]), np.array([0, 3, 1])) == {
        "accuracy": 2 / 3
    }


def test_regression_by_hand():
    gold, predicted = [0.0, 1.0, 2.0, 5.0], np.array([0.1, 0.9, 4.0, 3.5], np.float32)
    scores = score_predictions(task("regression", ("pearson", "spearman")), labeled(gold), predicted)
    assert scores["pearson"] == pytest.approx(np.corrcoef(gold, predicted.astype(float))[0, 1])
    assert scores["spearman"] == pytest.approx(1 - 6 * (1 + 1) / (4 * 15))


@pytest.mark.parametrize("predicted", [[0, 0, 0], [1, 1, 1]])
@pytest.mark.parametrize("gold", [[0, 0, 0], [1, 1, 1], [0, 1, 1]])
def test_undefined_metrics_are_numbers_without_a_warning(gold, predicted):
    names = ("accuracy", "f1", "macro_f1", "matthews")
    scores = score_predictions(
        task("sequence_classification", names, ("no", "yes")), labeled(gold), np.array(predicted)
    )
    assert scores["accuracy"] == np.mean(np.array(gold) == predicted)
    assert scores["matthews"] == 0.0
    assert 0 <= scores["f1"] <= 1
    assert score_predictions(task("regression", ("pearson", "spearman")), labeled(gold), np.array(predicted)) == {
        "pearson": 0.0,
        "spearman": 0.0,
    }


def corrupted(labels, count, share, seed):
    random = np.random.default_rng(seed)
    return [
        np.where(random.random(len(one)) < share, random.integers(0, count, len(one)), one).tolist() for one in labels
    ]


def literal_entities(sentences):
    """(sentence, first word, last word, type), by the rule of conlleval for IOB labels."""
    found = set()
    for number, labels in enumerate(sentences):
        start = None
        for place, label in enumerate([*labels, "O"]):
            goes_on = start is not None and label.startswith("I-") and label[2:] == start[1]
            if start is not None and not goes_on:
                found.add((number, start[0], place - 1, start[1]))
            if label == "O":
                start = None
            elif not goes_on:
                start = (place, label[2:])
    return found


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 1.0])
def test_entity_scores_of_wnut17_equal_nervaluate(real_data, share):
    examples = sentences(real_data, "wnut17")
    names = sorted({label for example in examples for label in example["labels"]})
    assert len(names) == 13
    numbered = [example | {"labels": [names.index(label) for label in example["labels"]]} for example in examples]
    golds = [example["labels"] for example in numbered]
    predicted = corrupted(golds, len(names), share, 0)
    scores = score_predictions(
        task("token_classification", ("entities", "token_accuracy"), tuple(names)), numbered, predicted
    )
    in_words = [example["labels"] for example in examples], [[names[label] for label in one] for one in predicted]
    types = sorted({name[2:] for name in names if name != "O"})
    report = Evaluator(*in_words, tags=types, loader="list").evaluate()["overall"]["strict"]
    assert scores["entity_precision"] == pytest.approx(report.precision)
    assert scores["entity_recall"] == pytest.approx(report.recall)
    assert scores["entity_f1"] == pytest.approx(report.f1)
    assert scores["entity_f1"] == 1.0 if share == 0 else scores["entity_f1"] < 1
    found = literal_entities([[names[label] for label in one] for one in predicted])
    wanted = literal_entities([example["labels"] for example in examples])
    assert len(wanted) == {"samples": 218 + 238 + 200, "data": 1975 + 836 + 1079}[real_data.name]
    assert scores["entity_f1"] == pytest.approx(2 * len(found & wanted) / (len(found) + len(wanted)))
    flat = [a == b for gold, one in zip(golds, predicted, strict=True) for a, b in zip(gold, one, strict=True)]
    assert scores["token_accuracy"] == pytest.approx(np.mean(flat))


# conlleval's rule for two neighbors of one type: whether the second label begins an entity.
BEGINS = {
    "O": {"B": True, "I": True, "E": True, "S": True},
    "B": {"B": True, "I": False, "E": False, "S": True},
    "I": {"B": True, "I": False, "E": False, "S": True},
    "E": {"B": True, "I": True, "E": True, "S": True},
    "S": {"B": True, "I": True, "E": True, "S": True},
}


@pytest.mark.parametrize("before", BEGINS)
@pytest.mark.parametrize("after", "BIES")
def test_neighbors_of_iobes_by_the_table_of_conlleval(before, after):
    labels = ["O", before if before == "O" else f"{before}-A", f"{after}-A", "O"]
    joined = [(1, 3, "A")]
    apart = [(2, 3, "A")] if before == "O" else [(1, 2, "A"), (2, 3, "A")]
    assert entity_spans(labels) == (apart if BEGINS[before][after] else joined)
    another_type = [*labels[:2], f"{after}-B", "O"]
    assert entity_spans(another_type) == ([] if before == "O" else [(1, 2, "A")]) + [(2, 3, "B")]


def test_entities_by_hand():
    names = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    examples = [{"id": "1", "labels": [1, 2, 0, 3]}, {"id": "2", "labels": [0, 0]}]
    predicted = [[1, 2, 0, 1], [2, 0]]  # correct, wrong type, and an extra entity that begins with I
    scores = score_predictions(task("token_classification", ("entities",), names), examples, predicted)
    assert scores == pytest.approx({"entity_precision": 1 / 3, "entity_recall": 1 / 2, "entity_f1": 2 / 5})
    nothing = score_predictions(task("token_classification", ("entities",), names), examples[1:], [[0, 0]])
    assert nothing == {"entity_precision": 0.0, "entity_recall": 0.0, "entity_f1": 0.0}


def test_entity_scores_of_bilou_equal_the_scores_of_iob():
    names, bilou = ("O", "B-PER", "I-PER"), ("O", "B-PER", "I-PER", "L-PER", "U-PER")
    golds, predicted = [[1, 2, 2, 0, 1], [1, 2, 0, 1, 1]], [[1, 2, 2, 0, 0], [1, 0, 0, 1, 1]]
    in_bilou = {"golds": [[1, 2, 3, 0, 4], [1, 3, 0, 4, 4]], "predicted": [[1, 2, 3, 0, 0], [4, 0, 0, 4, 4]]}
    assert KINDS["token_classification"].default_metrics(bilou) == (("entities", "token_accuracy"), "entity_f1")
    assert KINDS["token_classification"].default_metrics(("B-X", "NOUN"))[1] == "token_accuracy"
    scores = [
        score_predictions(
            task("token_classification", ("entities",), labels),
            [{"id": str(number), "labels": one} for number, one in enumerate(gold)],
            found,
        )
        for labels, gold, found in ((names, golds, predicted), (bilou, in_bilou["golds"], in_bilou["predicted"]))
    ]
    assert scores[0] == scores[1]
    assert 0 < scores[0]["entity_f1"] < 1


def test_question_answering_is_scored_by_the_rule_of_squad():
    examples = [{"id": "a", "answers": [{"text": "the cat"}]}]
    assert score_predictions(task("question_answering", ("squad",)), examples, ["Cat."]) == {
        "exact": 100.0,
        "f1": 100.0,
    }


@pytest.mark.parametrize(
    ("kind", "metrics", "labels", "examples", "message"),
    [
        ("sequence_classification", ("accuracy",), (), [], "task 'mine': the set to evaluate on is empty"),
        ("sequence_classification", ("accuracy",), (), [{"id": "7"}], "example '7' has no label"),
        ("token_classification", ("entities",), (), [{"id": "7"}], "example '7' has no labels"),
        ("sequence_classification", ("acuracy",), (), labeled([0]), "no metric 'acuracy'; did you mean 'accuracy'"),
        ("sequence_classification", ("f1",), ("a", "b", "c"), labeled([0]), "metric 'f1' needs two labels, not 3"),
        (
            "token_classification",
            ("entities",),
            ("NOUN", "O"),
            [{"id": "7", "labels": [0]}],
            "not 'NOUN'; use token_accuracy",
        ),
        ("token_classification", ("token_accuracy",), ("O",), [{"id": "7", "labels": []}], "have no words"),
    ],
)
def test_refused(kind, metrics, labels, examples, message):
    with pytest.raises(UserError, match=message):
        score_predictions(
            task(kind, metrics, labels),
            examples,
            [[0]] * len(examples) if kind == "token_classification" else [0] * len(examples),
        )


@pytest.mark.parametrize(
    ("kind", "metric", "module", "package"),
    [
        ("sequence_classification", "accuracy", "sklearn.metrics", "scikit-learn"),
        ("regression", "pearson", "scipy.stats", "scipy"),
    ],
)
def test_the_message_names_a_missing_library(monkeypatch, kind, metric, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    examples = [{"id": str(n), "label": n, "labels": [0]} for n in range(2)]
    with pytest.raises(UserError, match=f"needs {package}: pip install {package}"):
        score_predictions(
            task(kind, (metric,), ("O",)), examples, [[0], [0]] if kind == "token_classification" else [0, 1]
        )


def test_each_example_needs_a_prediction():
    with pytest.raises(ValueError, match="1 predictions for 2 examples"):
        score_predictions(task("sequence_classification", ("accuracy",)), labeled([0, 1]), [0])
    assert set(METRICS) >= {"accuracy", "f1", "matthews", "pearson", "spearman", "entities", "squad"}
