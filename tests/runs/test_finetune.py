"""Fine-tuning from the command line: every kind to its end, interrupted and resumed runs, the effect of options."""

import dataclasses
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from bert_jax.cli.main import main
from bert_jax.console import Console
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.training.trackers.services import TRACKERS, Tracker
from tests.finetuning_runs import EXAMPLE, finetune, finetune_command, make_world, read_lines, stop_after, write_lines
from tests.tiny_models import save

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


def tensors(directory):
    return safetensors.numpy.load_file(directory / "model.safetensors")


def heldout(run):
    return {line["step"]: line for line in read_lines(run / "metrics.jsonl") if line["split"] == "heldout"}


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


def test_predictions_at_the_end_restart_the_watchdogs_clock(world, tmp_path, capsys, monkeypatch):
    """Of many test examples they take longer than `config.watchdog.save_seconds`."""
    shown, restarts, progress = [], [], Console.progress

    def recorded(console, what, *more):
        before = len(restarts)
        progress(console, what, *more)
        shown.append((what, len(restarts) - before))

    monkeypatch.setattr(Console, "progress", recorded)
    monkeypatch.setattr(Watchdog, "alive", lambda watchdog: restarts.append(1))
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


GRID = ("task.num_seeds=2", "task.learning_rates=(3e-3,1e-3)")


@pytest.fixture(scope="module")
def grid(world, tmp_path_factory):
    """Two learning rates with two seeds each, not interrupted: 10 steps each, evaluated after 5 and 10."""
    workdir = tmp_path_factory.mktemp("grid") / "run"

    def open_it(_workdir, name, _run_id, settings):
        run_id = f"{name} {settings['optimizer.peak_learning_rate']} {settings['seed']}"
        return Tracker(run_id, lambda *_: None, lambda: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TRACKERS, "planted", open_it)
        return workdir, finetune(world, workdir, "sequence_classification", *GRID, "train.tracker=planted")


def test_a_grid_has_means_and_standard_deviations(grid):
    workdir, results = grid
    runs = results["runs"]
    assert [(run["learning_rate"], run["seed"]) for run in runs] == [(3e-3, 0), (3e-3, 1), (1e-3, 0), (1e-3, 1)]
    assert all(set(heldout(workdir / "runs" / run["run"])) == {5, 10} for run in runs)
    for rate, key in ((3e-3, "0.003"), (1e-3, "0.001")):
        for name, found in results["mean"][key].items():
            scores = [run["scores"][name] for run in runs if run["learning_rate"] == rate]
            assert found["mean"] == pytest.approx(np.mean(scores))
            assert found["standard_deviation"] == pytest.approx(np.std(scores, ddof=1))
    assert results["best"] == max(runs, key=lambda run: run["scores"]["accuracy"])
    best = workdir / "runs" / results["best"]["run"] / f"best-{results['best']['step']}"
    assert (workdir / "model" / "model.safetensors").read_bytes() == (best / "model.safetensors").read_bytes()


def test_a_tracker_gets_name_and_settings_of_each_training(grid):
    for run in grid[1]["runs"]:
        run_id = (grid[0] / "runs" / run["run"] / "planted.id").read_text()
        assert run_id == f"run/runs/{run['run']} {run['learning_rate']} {run['seed']}\n"


def test_one_of_several_seeds_trains_as_that_seed_alone(grid, world, tmp_path):
    workdir, results = grid
    second = results["runs"][1]
    alone = finetune(world, tmp_path, "sequence_classification", "seed=1")
    assert alone["runs"][0]["scores"] == second["scores"]
    last = f"runs/{second['run']}/best-{second['step']}/model.safetensors"
    assert (tmp_path / last).read_bytes() == (workdir / last).read_bytes()


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGTERM, id="terminated"),
        pytest.param(RuntimeError("crash"), id="crashed", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_result(grid, world, tmp_path, monkeypatch, how):
    for steps in (3, 14):  # in the first training; in the second one, between its evaluations
        with monkeypatch.context() as patch:
            stop_after(patch, steps, how)
            if isinstance(how, int):
                assert finetune(world, tmp_path, "sequence_classification", *GRID) is None
            else:
                with pytest.raises(RuntimeError, match="crash"):
                    finetune(world, tmp_path, "sequence_classification", *GRID)
    workdir, results = grid
    assert finetune(world, tmp_path, "sequence_classification", *GRID) == results
    for name in ("model/model.safetensors", "predictions/custom-dev.jsonl"):
        assert (tmp_path / name).read_bytes() == (workdir / name).read_bytes()


def test_a_signal_in_the_last_evaluation_loses_nothing(grid, world, tmp_path, monkeypatch):
    """The evaluation is made up for, and the result is that of a run without a signal."""
    progress, seen = Console.progress, []

    def kill(self, what, done=0, *more):
        if what == "evaluating" and done == 1:
            seen.append(what)
            if len(seen) == 2:  # after the last step of the first training
                os.kill(os.getpid(), signal.SIGTERM)
        progress(self, what, done, *more)

    smaller = "evaluate.batch_size=8"  # three batches
    with monkeypatch.context() as patch:
        patch.setattr(Console, "progress", kill)
        assert finetune(world, tmp_path, "sequence_classification", *GRID, smaller) is None
    assert not list(tmp_path.rglob("result.json"))
    results = finetune(world, tmp_path, "sequence_classification", *GRID, smaller)
    assert [run["step"] for run in results["runs"]] == [run["step"] for run in grid[1]["runs"]]
    lines = read_lines(tmp_path / "runs" / results["runs"][0]["run"] / "metrics.jsonl")
    assert [line["step"] for line in lines if line["split"] == "heldout"] == [5, 10]


def test_the_scores_of_a_resumed_moving_average_are_scores_alone(world, tmp_path, monkeypatch):
    """At a rate of 0 the first evaluation is the best, and stands before the stop."""
    more = ("optimizer.ema_decay=0.5", "task.num_seeds=2", "optimizer.peak_learning_rate=0.0")
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        assert finetune(world, tmp_path, "sequence_classification", *more) is None
    results = finetune(world, tmp_path, "sequence_classification", *more)
    assert {frozenset(run["scores"]) for run in results["runs"]} == {frozenset({"accuracy", "macro_f1"})}


def test_a_student_learns_from_a_teacher_of_the_task(grid, world, tmp_path, monkeypatch, capsys):
    """From a teacher alone, at a low rate, the student comes closer to its teacher; stopped and resumed likewise."""
    teacher = grid[0]
    more = (f"task.teacher={teacher}", "task.soft_fraction=1.0", "task.soft_temperature=1.0", "task.num_seeds=1")
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert finetune(world, tmp_path / "run", "sequence_classification", *more) is None
    results = finetune(world, tmp_path / "run", "sequence_classification", *more)
    assert f"learning 100% from the bert in {teacher}" in capsys.readouterr().err
    lines = read_lines(tmp_path / "run" / "runs" / results["best"]["run"] / "metrics.jsonl")
    losses = [line["task_loss"] for line in lines if line["split"] == "train"]
    assert len(losses) == 10
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:3])
    capsys.readouterr()
    other = [one.replace("temperature=1.0", "temperature=3.0") for one in more]
    assert main(finetune_command(world, tmp_path / "run", "sequence_classification", *other)) == 2
    assert "soft_temperature" in capsys.readouterr().err


def test_a_damaged_result_is_made_again(grid, world, tmp_path, capsys):
    """From metrics.jsonl, of which a damaged line is set aside."""
    workdir, results = grid
    place = shutil.copytree(workdir, tmp_path / "run")
    runs = [place / "runs" / one["run"] for one in results["runs"]]
    (runs[0] / "result.json").write_text("")
    (runs[1] / "result.json").write_text('{"step": 5, "scores": {}}')
    with open(runs[0] / "metrics.jsonl", "a") as file:
        file.write("\0\0\n")
    capsys.readouterr()
    assert finetune(world, place, "sequence_classification", *GRID) == results
    said = capsys.readouterr().err
    assert said.count("result.json: damaged (") == 2
    for run in runs:
        name = f"{run.name}/result.json"
        assert (run / "result.json").read_bytes() == (workdir / "runs" / name).read_bytes()
    assert (runs[0] / "metrics.damaged").read_bytes() == b"\0\0\n"
    assert main(["verify", str(place)]) == 0
    model, best = place / "model" / "model.safetensors", place / "runs" / results["best"]["run"] / "result.json"
    model.write_bytes(model.read_bytes()[:-1])
    best.write_text("")
    assert main(["verify", str(place)]) == 1
    assert f"{model}: differs from SHA256SUMS" in (said := capsys.readouterr().out)
    assert f"{best}: " in said


def test_a_lost_line_of_the_best_model_is_refused(grid, world, tmp_path, capsys):
    workdir, results = grid
    place = shutil.copytree(workdir, tmp_path / "run")
    run = place / "runs" / results["best"]["run"]
    (run / "result.json").unlink()
    lines = read_lines(run / "metrics.jsonl")
    kept = [line for line in lines if (line["step"], line["split"]) != (results["best"]["step"], "heldout")]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    with pytest.raises(AssertionError):
        finetune(world, place, "sequence_classification", *GRID)
    assert f"{run}: metrics.jsonl lost the line of its best model; remove this directory" in capsys.readouterr().err


@pytest.mark.slow
def test_patience_stops_a_training_also_after_a_resume(world, tmp_path):
    # At a learning rate of 0 no score improves.
    settings = ("optimizer.peak_learning_rate=0.0", "task.epochs=6", "task.patience=2")
    results = finetune(world, tmp_path, "sequence_classification", *settings)
    run = tmp_path / "runs" / "lr0_seed0"
    assert set(heldout(run)) == {5, 10, 15}
    assert results["best"]["step"] == 5
    written = (run / "metrics.jsonl").read_bytes()
    (run / "result.json").unlink()  # as if the process had been killed after early stopping
    shutil.rmtree(tmp_path / "model")
    assert finetune(world, tmp_path, "sequence_classification", *settings) == results
    assert (run / "metrics.jsonl").read_bytes() == written
    # The initial weights, except for the new head.
    start, end = tensors(world / "start"), tensors(tmp_path / "model")
    assert set(end) - set(start) == {"classifier.weight", "classifier.bias"}
    assert all(np.array_equal(start[name], end[name]) for name in end.keys() & start.keys())


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


def test_a_head_is_kept_if_it_has_as_many_classes_as_the_task(world, tmp_path, capsys):
    for classes, new in ((5, True), (3, False)):
        start = tmp_path / f"of{classes}"
        save(start, "bert", "ForSequenceClassification", num_labels=classes)
        finetune(world, tmp_path / f"run{classes}", "sequence_classification", start=start)
        err = capsys.readouterr().err
        assert ("randomly initialized: sequence_classification/bias, sequence_classification/kernel" in err) == new, err
        assert ("not used: classifier.bias, classifier.weight" in err) == new, err
