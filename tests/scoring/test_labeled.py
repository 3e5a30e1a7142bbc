"""Scores of models that `finetune` did not make, and files with labels that do not fit a model."""

import csv
import json

import pytest
import sklearn.metrics
import torch

import bert_jax
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import TASK_FILE
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


PAIR_FILES = {
    "fields.jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    "fields.csv": lambda path, rows: write_csv(path, [row.values() for row in rows], rows[0]),
    "columns.csv": lambda path, rows: write_csv(
        path, [row.values() for row in rows], ("#1 String", "#2 String", "Quality")
    ),
    "columns.tsv": lambda path, rows: path.write_text(
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        + "".join(f"{LABELS_OF_PAIRS.index(row['label'])}\t0\t0\t{row['text']}\t{row['text_pair']}\n" for row in rows)
    ),
}
LABELS_OF_PAIRS = ("not_equivalent", "equivalent")


@pytest.mark.parametrize("name", PAIR_FILES)
def test_a_model_of_a_published_task_of_pairs_reads_both_texts(tmp_path, name):
    """The labels are the answers of transformers for the pairs, so every answer must be right."""
    names = dict(enumerate(LABELS_OF_PAIRS))
    model, tokenizer = save(tmp_path / "model", "bert", "ForSequenceClassification", id2label=names, num_labels=2)
    settings = {"name": "mrpc", "max_seq_len": 16}
    task = {"kind": "sequence_classification", "config": settings, "labels": LABELS_OF_PAIRS, "task": {"name": "mrpc"}}
    (tmp_path / "model" / TASK_FILE).write_text(json.dumps(task))
    pairs = [(first, f"{second} {first}") for first in LETTERS[:6] for second in LETTERS]
    with torch.no_grad():
        logits = torch.stack([model(**tokenizer(*pair, return_tensors="pt")).logits[0] for pair in pairs])
        difference = logits[:, 1] - logits[:, 0]
        model.classifier.bias[1] -= difference.median()  # both answers occur
    model.save_pretrained(tmp_path / "model")
    answers = [LABELS_OF_PAIRS[int(value)] for value in difference > difference.median()]
    rows = [
        {"text": first, "text_pair": second, "label": label}
        for (first, second), label, gap in zip(pairs, answers, difference, strict=True)
        if abs(gap - difference.median()) > 1e-4
    ]
    assert len({(row["text"], row["label"]) for row in rows}) > 6  # the answers depend on the second text
    PAIR_FILES[name](tmp_path / name, rows)
    (report,) = bert_jax.score(tmp_path / "model", labeled=tmp_path / name)["results"]
    assert report["scores"]["accuracy"] == 1.0


def test_the_choices_of_a_published_task_may_have_the_names_of_the_fields(tmp_path):
    """With `start` and the list `choices`, or with a column for each choice as in SWAG."""
    model, tokenizer = save(tmp_path / "model", "bert", "ForMultipleChoice")
    task = {"kind": "multiple_choice", "config": {"name": "swag", "max_seq_len": 16}, "task": {"name": "swag"}}
    (tmp_path / "model" / TASK_FILE).write_text(json.dumps(task))
    rows, by_column = [], []
    for index, letter in enumerate(LETTERS):
        choices = [LETTERS[(index + step) % len(LETTERS)] for step in (1, 3, 4, 7)]
        row = {"text": letter, "start": LETTERS[index - 1]}
        with torch.no_grad():
            second = [f"{row['start']} {choice}" for choice in choices]
            encoded = tokenizer([letter] * 4, second, return_tensors="pt", padding=True)
            row["label"] = int(model(**{key: value[None] for key, value in encoded.items()}).logits[0].argmax())
        rows.append(row | {"choices": choices})
        by_column.append(row | {f"choice{number}": choice for number, choice in enumerate(choices)})
    for name, objects in {"list.jsonl": rows, "columns.jsonl": by_column}.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in objects))
        (report,) = bert_jax.score(tmp_path / "model", labeled=tmp_path / name)["results"]
        assert report["scores"]["accuracy"] == 1.0


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
