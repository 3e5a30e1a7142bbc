"""Files for benchmarks, read back by the standard library and our readers."""

import csv
import dataclasses
import json
import tarfile
import tracemalloc

import numpy as np
import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.submission import submission_file_name, write_submission
from bert_jax.tasks.table import TASKS, resolve_task


def examples(*ids, **fields):
    return [{"id": name, **fields} for name in ids]


def test_file_names_equal_the_names_that_the_glue_server_expects():
    names = {
        submission_file_name(task, split) for task in TASKS.values() for split in task.sets if task.submission == "glue"
    }
    tests = {name for name in names if "-train" not in name and "-dev" not in name}
    assert tests == {"CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "QQP.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv",
                     "QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"}  # fmt: skip
    assert submission_file_name(TASKS["mnli"], "dev_mismatched") == "mnli-dev_mismatched.tsv"
    assert submission_file_name(TASKS["squad1"], "dev") == "squad1-dev.json"
    assert submission_file_name(TASKS["klue-nli"], "dev") == "klue-nli-dev.jsonl"


@pytest.mark.parametrize(
    ("task", "predictions", "lines"),
    [
        ("cola", np.array([1, 0]), ["0\t1", "1\t0"]),
        ("mnli", np.array([2, 0]), ["0\tcontradiction", "1\tentailment"]),
        ("ax", np.array([1, 1]), ["0\tneutral", "1\tneutral"]),
        ("rte", np.array([1, 0]), ["0\tnot_entailment", "1\tentailment"]),
        ("stsb", np.array([4.99951, -0.2], np.float32), ["0\t5.000", "1\t-0.200"]),
    ],
)
def test_glue(task, predictions, lines, tmp_path):
    write_submission(TASKS[task], examples("0", "1"), predictions, tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_text() == "\n".join(["index\tprediction", *lines, ""])


def test_glue_is_in_the_order_of_the_index(tmp_path):
    write_submission(TASKS["rte"], examples("10", "9", "2"), [0, 1, 1], tmp_path / "a.tsv")
    assert (tmp_path / "a.tsv").read_text().split()[2::2] == ["2", "9", "10"]


def test_squad_has_the_format_of_published_predictions(real_data, tmp_path):
    with tarfile.open(real_data / "squad" / "published-predictions.tar.gz") as archive:
        members = {member.name: member for member in archive if member.isfile() and "2.0" in member.name}
        published = json.load(archive.extractfile(next(iter(members.values()))))
    config = TaskConfig(name="squad2", data=str(real_data / "squad"), dev="dev-v2.0.recon.json")
    questions = read_task_examples(TASKS["squad2"], config, "dev")
    write_submission(
        TASKS["squad2"], questions, [published[question["id"]] for question in questions], tmp_path / "a.json"
    )
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == published


def test_tags_are_read_back_by_the_reader(real_data, tmp_path):
    """The second column of labels is the prediction, the first the published one."""
    task = TASKS["wnut17"]
    config = TaskConfig(name="wnut17", data=str(real_data / "ner" / "wnut17"))
    dev = read_task_examples(task, config, "dev")
    turned = [[(label + 1) % 13 for label in example["labels"]] for example in dev]
    write_submission(task, dev, turned, tmp_path / "a.conll")
    lines = [line.split("\t") for line in (tmp_path / "a.conll").read_text(encoding="utf-8").split("\n") if line]
    for column, labels in ((1, [example["labels"] for example in dev]), (2, turned)):
        assert [line[column] for line in lines] == [task.labels[label] for sentence in labels for label in sentence]
    settings = {"name": "custom", "kind": "token_classification", "data": str(tmp_path), "columns": "labels=1"}
    config = TaskConfig(**settings, dev="a.conll", labels=",".join(task.labels))
    assert read_task_examples(resolve_task(config), config, "dev") == dev


def test_tags_of_a_test_set_have_no_published_column(tmp_path):
    write_submission(TASKS["conll2003"], examples("0", tokens=["Ada", "is"]), [[1, 0]], tmp_path / "a.conll")
    assert (tmp_path / "a.conll").read_text() == "Ada B-PER\nis O\n\n"


def test_choices(tmp_path):
    write_submission(TASKS["swag"], examples("0", "1"), np.array([3, 0]), tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        assert list(csv.DictReader(file)) == [{"id": "0", "label": "3"}, {"id": "1", "label": "0"}]


@pytest.mark.parametrize(
    ("task", "fields", "predictions", "line"),
    [
        ("klue-nli", {}, np.array([2]), {"label": "contradiction"}),
        ("klue-sts", {}, np.array([2.5]), {"label": 2.5}),
        ("wnut17", {"tokens": ["ü"]}, [[0]], {"tokens": ["ü"], "entities": [], "labels": ["O"]}),
        ("squad1", {}, ["Köln"], {"answer": "Köln"}),
        ("swag", {}, np.array([1]), {"label": 1}),
    ],
)
def test_json_lines_of_every_kind(task, fields, predictions, line, tmp_path):
    write_submission(
        dataclasses.replace(TASKS[task], submission="json_lines"),
        examples("x", **fields),
        predictions,
        tmp_path / "a.jsonl",
    )
    (written,) = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(written) == {"id": "x"} | line


def test_values_that_json_or_utf_8_cannot_hold_are_written(tmp_path):
    """Half of a surrogate pair, which UTF-8 has not, and a number that is not finite, which JSON has not."""
    task = resolve_task(TaskConfig(name="custom", kind="sequence_classification", labels="a,b", train="a.csv"))
    row = {"text": "x", "note": "\ud83d", "weight": float("nan")}
    write_submission(task, examples("0", label=0, row=row), np.array([0]), tmp_path / "a.jsonl", np.array([[0.9, 0.1]]))
    (line,) = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["input"] == {"text": "x", "note": "\ud83d", "weight": None}


def test_a_file_of_many_labels_is_written_an_example_at_a_time(tmp_path):
    """10^5 examples with 10^3 labels would need tens of gigabytes."""
    labels = tuple(f"label {n}" for n in range(500))
    task = dataclasses.replace(TASKS["sst2"], labels=labels, codes=(), published=False)
    probabilities = np.full((400, 500), 1 / 500, np.float32)
    rows = [{"id": str(n), "text": "x", "label": n} for n in range(400)]
    tracemalloc.start()
    write_submission(task, rows, [7] * 400, tmp_path / "a.jsonl", probabilities)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(line["id"], line["label"], line["gold"]) for line in lines] == [
        (str(n), "label 7", f"label {n}") for n in range(400)
    ]
    assert lines[3]["probabilities"] == dict.fromkeys(labels, 0.002)
    assert peak < (tmp_path / "a.jsonl").stat().st_size / 4


def test_predictions_of_other_examples_are_refused(tmp_path):
    with pytest.raises(ValueError, match="3 predictions for 2 examples"):
        write_submission(TASKS["rte"], examples("0", "1"), [0, 1, 1], tmp_path / "a.tsv")
    with pytest.raises(ValueError, match="0 predictions for 1 examples"):
        write_submission(TASKS["squad1"], examples("a"), [], tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.tsv"
    write_submission(TASKS["rte"], examples("0"), [0], path)
    before = path.read_text()
    with pytest.raises(IndexError):
        write_submission(TASKS["rte"], examples("0"), [7], path)
    with pytest.raises(UserError, match=r"absent/a.tsv: cannot be written"):
        write_submission(TASKS["rte"], examples("0"), [0], tmp_path / "absent" / "a.tsv")
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.tsv"]
