"""Scores of models that `finetune` did not make, and files with labels that do not fit a model."""

import csv
import json

import pytest
import sklearn.metrics
import torch

import bert_jax
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from tests.helpers.tiny_models import LETTERS, save

LABELS = ("cold", "hot", "warm")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A directory of transformers, its model and its tokenizer."""
    place = tmp_path_factory.mktemp("classifier")
    model, tokenizer = save(place, "bert", "ForSequenceClassification", id2label=dict(enumerate(LABELS)), num_labels=3)
    return place, model.eval(), tokenizer


def write_csv(path, rows, header=("text", "label")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


ROWS = [(letter * (1 + n % 5), LABELS[n % 3]) for n, letter in enumerate(LETTERS)]


def test_scores_of_a_model_of_transformers_equal_sklearn_on_its_predictions(tmp_path, classifier, capsys):
    place, model, tokenizer = classifier
    path = write_csv(tmp_path / "test.csv", ROWS)
    gold = [LABELS.index(label) for _, label in ROWS]
    with torch.no_grad():
        probabilities = [model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(0) for text, _ in ROWS]
    predicted = [int(row.argmax()) for row in probabilities]
    assert main(["score", "--model", str(place), "--labeled", str(path), "--output", str(tmp_path / "all.json")]) == 0
    printed = capsys.readouterr().out
    (report,) = json.loads((tmp_path / "all.json").read_text())["results"]
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(gold, predicted),
        "macro_f1": sklearn.metrics.f1_score(gold, predicted, average="macro", labels=range(3), zero_division=0),
    }
    assert report["scores"] == pytest.approx(expected)
    assert report["confusion"] == sklearn.metrics.confusion_matrix(gold, predicted, labels=range(3)).tolist()
    wrong = [index for index, (a, b) in enumerate(zip(gold, predicted, strict=True)) if a != b]
    worst = min(wrong, key=lambda index: float(probabilities[index][gold[index]]))
    assert report["errors"][0]["text"] == ROWS[worst][0]
    assert f"labeled {path}: {len(ROWS)} examples" in printed
    assert [line.split()[0] for line in printed.splitlines()[-3:]] == [*LABELS]
    assert bert_jax.score(place, labeled=path)["results"][0]["scores"] == report["scores"]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([("a", "mild")], ("text", "label"), "test.csv:2: label 'mild' is not among cold, hot, warm"),
        ([("a", "hot")], ("text", "topic"), "no column 'label' for label"),
        ([("a", "hot")], ("body", "label"), "no column 'text' for text"),
        ([("a", ""), ("b", "")], ("text", "label"), "has no example"),
        ([("", "hot")], ("text", "label"), "test.csv:2: text is empty"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, classifier, capsys, rows, header, message):
    path = write_csv(tmp_path / "test.csv", rows, header)
    assert main(["score", "--model", str(classifier[0]), "--labeled", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error, error
    assert "Traceback" not in error


def test_a_model_without_a_task_and_options_without_effect_are_refused(tmp_path, classifier):
    path = write_csv(tmp_path / "test.csv", ROWS)
    save(tmp_path / "encoder", "bert", "ForPreTraining")
    with pytest.raises(UserError, match="fine-tune it first"):
        bert_jax.score(tmp_path / "encoder", labeled=path)
    with pytest.raises(UserError, match="--temperature has no effect on --labeled"):
        bert_jax.score(classifier[0], labeled=path, temperature=2.0)
    with pytest.raises(UserError, match=r"absent\.csv: no such file"):
        bert_jax.score(classifier[0], labeled=tmp_path / "absent.csv")
