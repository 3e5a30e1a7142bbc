"""Fine-tuning from the command line: every kind to its end, and the effect of options."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import sentence_transformers
import torch
import transformers

import bert_jax
from bert_jax.cli.main import main
from bert_jax.cli.results_text import finetuning_table
from bert_jax.console import Console
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.parallel.watchdog import Watchdog
from tests.helpers.finetuning_runs import (
    EXAMPLE,
    finetune,
    finetune_command,
    heldout,
    make_world,
    read_lines,
    tensors,
    write_lines,
)
from tests.helpers.tiny_models import save

AUTO = {
    "sequence_classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "token_classification": "AutoModelForTokenClassification",
    "question_answering": "AutoModelForQuestionAnswering",
    "multiple_choice": "AutoModelForMultipleChoice",
}
METRIC = {
    "sequence_classification": "accuracy",
    "regression": "pearson",
    "token_classification": "entity_f1",
    "question_answering": "f1",
    "multiple_choice": "accuracy",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("finetune"))


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        *((kind, "start") for kind in EXAMPLE),
        pytest.param("sequence_classification", "modern", marks=pytest.mark.slow),
        pytest.param("question_answering", "modern", marks=pytest.mark.slow),
    ],
)
def test_a_task_from_files_to_the_predictions_of_transformers(world, tmp_path, capsys, kind, start):
    workdir, answers = tmp_path / "run", tmp_path / "answers.jsonl"
    results = finetune(world, workdir, kind, "task.test=test.jsonl", start=world / start)
    assert json.loads(capsys.readouterr().out) == results
    metric, best = METRIC[kind], results["best"]
    assert results["metric"] == metric
    measured = heldout(workdir / "runs" / best["run"])
    assert set(measured) == {5, 10}  # 37 sequences, 8 per step, two epochs
    assert best["scores"][metric] == measured[best["step"]][metric] == max(line[metric] for line in measured.values())

    assert main(["predict", "--model", str(workdir), "--input", str(world / kind / "dev.jsonl"),
                 "--output", str(answers)]) == 0  # fmt: skip
    dev, found = read_lines(world / kind / "dev.jsonl"), read_lines(answers)
    model = getattr(transformers, AUTO[kind]).from_pretrained(workdir / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(workdir / "model")
    with torch.no_grad():
        for example, answer in zip(dev, found, strict=True):
            COMPARE[kind](model, tokenizer, example, answer)
    # The scores are those of the exported model.
    if metric == "accuracy":
        correct = [example["label"] == answer["label"] for example, answer in zip(dev, found, strict=True)]
        assert best["scores"][metric] == pytest.approx(np.mean(correct))
    if kind == "regression":
        values = np.corrcoef([one["label"] for one in dev], [one["label"] for one in found])
        assert best["scores"][metric] == pytest.approx(values[0, 1], abs=1e-5)
    written = read_lines(workdir / "predictions" / "custom-dev.jsonl")
    name = {"question_answering": "answer", "token_classification": "labels"}.get(kind, "label")
    for one, line in zip(found, written, strict=True):
        assert one[name] == (pytest.approx(line[name], abs=1e-5) if kind == "regression" else line[name])
    assert len(read_lines(workdir / "predictions" / "custom-test.jsonl")) == 5
    capsys.readouterr()
    assert main(["score", "--model", str(workdir), "--labeled", str(world / kind / "dev.jsonl"), "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["results"]
    assert report["examples"] == len(dev)
    assert report["scores"] == pytest.approx({name: best["scores"][name] for name in report["scores"]}, abs=1e-6)
    assert metric in report["scores"]


@pytest.mark.parametrize("kind", ["sequence_classification", "token_classification"])
def test_a_labeled_test_set_is_scored_by_the_best_model(world, tmp_path, capsys, kind):
    """A test set with the examples of the dev set has the scores of the dev set."""
    lines = read_lines(world / kind / "dev.jsonl")
    write_lines(world / kind / "labeled.jsonl", lines)
    results = finetune(world, tmp_path / "run", kind, "task.test=labeled.jsonl")
    said = capsys.readouterr()
    assert results["test"] == {"test": pytest.approx(results["best"]["scores"])}
    if kind == "sequence_classification":
        written = read_lines(tmp_path / "run" / "predictions" / "custom-test.jsonl")
        right = [line["label"] == given["label"] for line, given in zip(written, lines, strict=True)]
        assert results["test"]["test"]["accuracy"] == pytest.approx(np.mean(right))
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == results == json.loads(said.out)
    assert "\ntest scores of this model: " in finetuning_table(results, "run", [])
    assert main(["report", "--workdir", str(tmp_path / "run"), "--output", str(tmp_path / "page.html")]) == 0
    assert "test scores" in (tmp_path / "page.html").read_text()
    for line in lines[:2]:
        del line["labels" if kind == "token_classification" else "label"]
    write_lines(world / kind / "partly.jsonl", lines)
    assert main(finetune_command(world, tmp_path / "other", kind, "task.test=partly.jsonl")) == 2
    error = capsys.readouterr().err
    assert re.search(r"2 rows have no labels?: .*partly.jsonl.*skip_unlabeled=True", error), error


def test_predictions_at_the_end_restart_the_watchdogs_clock(world, tmp_path, capsys, monkeypatch):
    """Of many test examples they take longer than `config.watchdog.save_seconds`."""
    shown, restarts, progress = [], [], Console.progress

    def recorded(console, what, *more):
        before = len(restarts)
        progress(console, what, *more)
        shown.append((what, len(restarts) - before))

    monkeypatch.setattr(Console, "progress", recorded)
    monkeypatch.setattr(Watchdog, "restart_clock", lambda watchdog: restarts.append(1))
    finetune(world, tmp_path / "run", "regression", "task.test=test.jsonl")
    assert {("predicting dev", 1), ("predicting test", 1)} <= {*shown}


def test_where_all_questions_have_answers_each_is_answered(world, tmp_path, capsys):
    """A threshold tuned on them would leave out the questions above the last right answer, and new ones like them."""
    answered = [one for one in read_lines(world / "question_answering" / "dev.jsonl") if one["answers"]]
    write_lines(world / "question_answering" / "answered.jsonl", answered)
    workdir, answers = tmp_path / "run", tmp_path / "answers.jsonl"
    results = finetune(world, workdir, "question_answering", "task.dev=answered.jsonl", "task.test=test.jsonl")
    assert results["best"]["scores"]["f1"] < 100, "a threshold would leave something out"
    for name in ("custom-dev.jsonl", "custom-test.jsonl"):
        assert all(line["answer"] for line in read_lines(workdir / "predictions" / name))
    assert json.loads((workdir / "model" / "task.json").read_text())["impossible"] is False
    source = world / "question_answering" / "dev.jsonl"
    assert main(["predict", "--model", str(workdir), "--input", str(source), "--output", str(answers)]) == 0
    assert all(line["answer"] for line in read_lines(answers))


def compare_classes(model, tokenizer, example, answer):
    logits = model(**tokenizer(example["text"], example["text_pair"], return_tensors="pt")).logits[0]
    expected = dict(zip(model.config.id2label.values(), torch.softmax(logits, 0).tolist(), strict=True))
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)
    assert answer["label"] == max(expected, key=expected.get)


def compare_values(model, tokenizer, example, answer):
    assert model(**tokenizer(example["text"], return_tensors="pt")).logits.item() == pytest.approx(
        answer["label"], abs=1e-4
    )


def compare_tags(model, tokenizer, example, answer):
    encoded = tokenizer(example["tokens"], is_split_into_words=True, return_tensors="pt")
    likely = torch.softmax(model(**encoded).logits[0], 1)
    first = [encoded.word_ids().index(word) for word in range(len(example["tokens"]))]
    assert answer["tokens"] == example["tokens"]
    assert answer["labels"] == [model.config.id2label[n] for n in likely[first].argmax(1).tolist()]
    assert answer["probabilities"] == pytest.approx(likely[first].max(1).values.tolist(), abs=1e-5)


def compare_answers(model, tokenizer, example, answer):
    encoded = tokenizer(example["question"], example["context"], return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    out = model(**encoded)
    start, end = out.start_logits[0], out.end_logits[0]
    inside = [n for n, sequence in enumerate(encoded.sequence_ids()) if sequence == 1]
    spans = {(a, b): (start[a] + end[b]).item() for a in inside for b in inside if a <= b}
    first, last = max(spans, key=spans.get)
    best = answer["n_best"][0]
    assert best["text"] == example["context"][offsets[first][0] : offsets[last][1]]
    assert best["score"] == pytest.approx(spans[first, last], abs=1e-4)
    null = (start[0] + end[0]).item()
    assert answer["null_margin"] == pytest.approx(null - spans[first, last], abs=1e-4)
    assert answer["answer"] in (best["text"], "")


def compare_choices(model, tokenizer, example, answer):
    inputs = tokenizer([example["text"]] * 3, example["choices"], padding=True, return_tensors="pt")
    likely = torch.softmax(model(**{name: x[None] for name, x in inputs.items()}).logits[0], 0)
    assert answer["probabilities"] == pytest.approx(likely.tolist(), abs=1e-5)
    assert answer["label"] == likely.argmax().item()


COMPARE = {
    "sequence_classification": compare_classes,
    "regression": compare_values,
    "token_classification": compare_tags,
    "question_answering": compare_answers,
    "multiple_choice": compare_choices,
}


def test_sentence_transformers_scores_pairs_as_predict_does(world, tmp_path):
    """The default of a CrossEncoder with one score is a sigmoid, which the squared error is not trained for."""
    for split in ("train", "dev"):
        records = read_lines(world / "regression" / f"{split}.jsonl")
        write_lines(tmp_path / f"{split}.jsonl", [record | {"text_pair": "abc"} for record in records])
    finetune(world, tmp_path / "run", "regression", f"task.data={tmp_path}", "task.epochs=1")
    pairs = [(record["text"], "abc") for record in records]
    expected = [answer["label"] for answer in bert_jax.load(tmp_path / "run").predict(pairs)]
    assert min(expected) < 0  # no sigmoid gives such a score
    bert_jax.export(tmp_path / "run", tmp_path / "export")
    for directory in (tmp_path / "run" / "model", tmp_path / "export"):
        scorer = sentence_transformers.CrossEncoder(str(directory), device="cpu")
        np.testing.assert_allclose(scorer.predict(pairs), expected, rtol=0, atol=1e-5)


def test_a_frozen_encoder_keeps_its_bits(world, tmp_path):
    finetune(world, tmp_path, "sequence_classification", "optimizer.freeze_encoder=True", "task.epochs=1")
    start, end = tensors(world / "start"), tensors(tmp_path / "model")
    moved = {name for name in end.keys() & start.keys() if not np.array_equal(start[name], end[name])}
    assert moved == {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}


def test_random_weights_keep_only_the_architecture(world, tmp_path, capsys):
    finetune(world, tmp_path, "sequence_classification", "task.random_weights=True")
    assert "no parameter" in capsys.readouterr().err
    name = "bert.embeddings.word_embeddings.weight"
    start, end = (tensors(place)[name] for place in (world / "start", tmp_path / "model"))
    assert start.shape == end.shape
    assert np.std(end) < 0.05 < 0.1 < np.std(start)
    end_norm = tensors(tmp_path / "model")["bert.encoder.layer.0.output.LayerNorm.weight"]
    np.testing.assert_allclose(end_norm, 1.0, atol=0.05)


@pytest.mark.slow
def test_a_bilstm_is_added_below_the_head_and_stays_with_the_model(world, tmp_path, capsys):
    kind, settings = "token_classification", ("task.bilstm=True", "task.epochs=1")
    assert main(finetune_command(world, tmp_path / "no", kind, *settings)) == 2
    assert "no bert of transformers has model.bilstm=True" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    found = load_model(world / "start")
    research = dataclasses.replace(found.config, family="research")
    export_model(found.params, research, found.heads, world / "start", tmp_path / "start")
    finetune(world, tmp_path / "one", kind, *settings, start=tmp_path / "start")
    one = load_model(tmp_path / "one" / "model")
    assert one.config.bilstm
    assert "bilstm" in one.params
    # At a rate of 0 the second training returns what it read.
    finetune(world, tmp_path / "two", kind, "task.epochs=1", "optimizer.peak_learning_rate=0.0", start=tmp_path / "one")
    jax.tree.map(np.testing.assert_array_equal, load_model(tmp_path / "two" / "model").params, one.params)


@pytest.mark.slow
def test_each_length_is_compiled_once(world, tmp_path, capsys):
    finetune(world, tmp_path, "sequence_classification", "task.buckets=(12,16,24)")
    compiled = [line for line in capsys.readouterr().err.splitlines() if line.startswith("compiled the step")]
    assert sorted(line.split()[4] for line in compiled) == ["12", "16", "24"]


def test_two_dev_sets_are_scored_and_predicted_each(world, tmp_path):
    data = tmp_path / "glue" / "MNLI"
    data.mkdir(parents=True)
    for split in ("train", "dev_matched", "dev_mismatched"):
        rng = np.random.default_rng(len(split))
        rows = ["index\tsentence1\tsentence2\tgold_label"]
        for number in range(20):
            label = ("entailment", "neutral", "contradiction")[rng.integers(3)]
            rows.append(f"{number}\t{'abc'[rng.integers(3)] * 3}\t{'def'[rng.integers(3)] * 2}\t{label}")
        (data / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    argv = ["finetune", f"--config={world / 'recipe.py'}", f"--workdir={tmp_path / 'run'}"]
    argv += [f"--config.init_from={world / 'start'}", f"--config.task.data={tmp_path / 'glue'}"]
    argv += ["--config.task.name=mnli", "--config.task.metric=accuracy_mismatched"]
    assert main(argv) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["metric"] == "accuracy_mismatched"
    for name, split in (("accuracy", "dev_matched"), ("accuracy_mismatched", "dev_mismatched")):
        part = "dev" + name.removeprefix("accuracy")
        gold = [line.split("\t")[3] for line in (data / f"{split}.tsv").read_text().splitlines()[1:]]
        written = (tmp_path / "run" / "predictions" / f"mnli-{part}.tsv").read_text().splitlines()[1:]
        found = [line.split("\t")[1] for line in written]
        assert results["best"]["scores"][name] == pytest.approx(np.mean(np.array(gold) == np.array(found)))


@pytest.mark.slow
def test_a_head_is_kept_if_it_has_as_many_classes_as_the_task(world, tmp_path, capsys):
    for classes, new in ((5, True), (3, False)):
        start = tmp_path / f"of{classes}"
        save(start, "bert", "ForSequenceClassification", num_labels=classes)
        finetune(world, tmp_path / f"run{classes}", "sequence_classification", start=start)
        err = capsys.readouterr().err
        assert ("randomly initialized: sequence_classification/bias, sequence_classification/kernel" in err) == new, err
        assert ("not used: classifier.bias, classifier.weight" in err) == new, err
