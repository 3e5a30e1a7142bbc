"""Several trainings of a task: their means, and trainings that are stopped, damaged or good enough."""

import json
import math
import os
import shutil
import signal

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.cli.results_text import finetuning_table
from bert_jax.config import FinetuneTrainConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.finetuning import batch_shapes
from bert_jax.finetuning.inputs import read_task_inputs
from bert_jax.finetuning.results import summarize_trainings
from bert_jax.training.loop import _TrainingLoop
from bert_jax.training.trackers import TRACKERS, Tracker
from tests.helpers.finetuning_runs import (
    finetune,
    finetune_command,
    heldout,
    make_world,
    read_lines,
    stop_after,
    tensors,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


GRID = ("task.num_seeds=2", "task.learning_rates=(3e-3,1e-3)")


@pytest.fixture(scope="module")
def compiled_steps():
    """The learning rate and the seed of each compilation of a step in `grid`."""
    return []


@pytest.fixture(scope="module")
def grid(world, tmp_path_factory, compiled_steps):
    """Two learning rates with two seeds each, not interrupted: 10 steps each, evaluated after 5 and 10."""
    workdir = tmp_path_factory.mktemp("grid") / "run"

    def open_it(_workdir, name, _run_id, settings):
        run_id = f"{name} {settings['optimizer.peak_learning_rate']} {settings['seed']}"
        return Tracker(run_id, lambda *_: None, lambda: None)

    def compile_and_count(loop, *arguments):
        compiled_steps.append((loop.plan.optimizer.peak_learning_rate, loop.plan.seed))
        return compile_step(loop, *arguments)

    compile_step = _TrainingLoop._compile
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TRACKERS, "planted", open_it)
        patch.setattr(_TrainingLoop, "_compile", compile_and_count)
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


def test_seeds_of_a_learning_rate_share_the_compiled_steps(grid, compiled_steps):
    assert {*compiled_steps} == {(3e-3, 0), (1e-3, 0)}


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


def test_the_inputs_of_a_training_do_not_depend_on_its_seed(world):
    data = {"data": str(world / "sequence_classification"), "train": "train.jsonl", "dev": "dev.jsonl"}
    settings = TaskConfig(name="custom", kind="sequence_classification", **data, oversample=True, max_seq_len=24)
    first, second = (
        read_task_inputs(str(world / "start"), settings, FinetuneTrainConfig(), False, seed, Console(silent=True))
        for seed in (0, 1)
    )
    assert len(first.train[0].features) > len(first.train[0].examples)
    assert first.fingerprint == second.fingerprint


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


@pytest.mark.slow
def test_a_run_in_rows_resumes_to_the_same_weights(world, tmp_path, monkeypatch, capsys):
    """Without given buckets, sequences lie end to end in rows; dropout is at work."""
    in_rows = ("task.buckets=None", "task.dropout=0.1")
    results = finetune(world, tmp_path / "once", "sequence_classification", *in_rows)
    assert "sequences, end to end in" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert finetune(world, tmp_path / "twice", "sequence_classification", *in_rows) is None
    assert finetune(world, tmp_path / "twice", "sequence_classification", *in_rows) == results
    for name in ("model/model.safetensors", "predictions/custom-dev.jsonl"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "once" / name).read_bytes()


def test_a_resumed_run_sees_the_same_batches_or_is_refused(world, tmp_path, monkeypatch, capsys):
    """Micro-batches may change: the weights are those of the run that was not stopped. Rows and padding may not."""
    in_rows = ("task.buckets=None", "task.dropout=0.0")
    finetune(world, tmp_path / "once", "sequence_classification", *in_rows)
    with monkeypatch.context() as patch:
        stop_after(patch, 3)  # in the middle of an epoch of 5 steps
        assert finetune(world, tmp_path / "twice", "sequence_classification", *in_rows) is None
    with monkeypatch.context() as patch:
        patch.setattr(batch_shapes, "row_limits", lambda *_: None)  # as on a device where padding is cheaper
        assert main(finetune_command(world, tmp_path / "twice", "sequence_classification", *in_rows)) == 2
    assert "(batches: sequences in rows -> sequences padded to the longest); restore them" in capsys.readouterr().err
    finetune(world, tmp_path / "twice", "sequence_classification", *in_rows, "train.grad_accum_steps=2")
    once, twice = (tensors(tmp_path / name / "model") for name in ("once", "twice"))
    assert all(np.abs(once[name] - twice[name]).max() < 1e-4 for name in once)


@pytest.mark.slow
def test_a_signal_in_the_last_evaluation_loses_nothing(grid, world, tmp_path, monkeypatch):
    """The evaluation is made up for, and the result is that of a run without a signal."""
    progress, seen = Console.progress, []

    def kill(self, what, done=0, *more):
        if what == "evaluating" and done == 1:
            seen.append(what)
            if len(seen) == 2:  # after the last step of the first training
                os.kill(os.getpid(), signal.SIGTERM)
        progress(self, what, done, *more)

    smaller = "evaluate.batch_size=2"  # several batches
    with monkeypatch.context() as patch:
        patch.setattr(Console, "progress", kill)
        assert finetune(world, tmp_path, "sequence_classification", *GRID, smaller) is None
    assert not list(tmp_path.rglob("result.json"))
    results = finetune(world, tmp_path, "sequence_classification", *GRID, smaller)
    assert [run["step"] for run in results["runs"]] == [run["step"] for run in grid[1]["runs"]]
    lines = read_lines(tmp_path / "runs" / results["runs"][0]["run"] / "metrics.jsonl")
    assert [line["step"] for line in lines if line["split"] == "heldout"] == [5, 10]


@pytest.mark.slow
def test_the_scores_of_a_resumed_moving_average_are_scores_alone(world, tmp_path, monkeypatch):
    """At a rate of 0 the first evaluation is the best, and stands before the stop."""
    more = ("optimizer.ema_decay=0.5", "task.num_seeds=2", "optimizer.peak_learning_rate=0.0")
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        assert finetune(world, tmp_path, "sequence_classification", *more) is None
    results = finetune(world, tmp_path, "sequence_classification", *more)
    assert {frozenset(run["scores"]) for run in results["runs"]} == {frozenset({"accuracy", "macro_f1"})}


@pytest.mark.slow
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
    assert f"{run}: metrics.jsonl has no line for the best model; remove this directory" in capsys.readouterr().err


def with_scores(patch, scores):
    """Let each evaluation return the next of these scores."""

    def evaluate_nothing(_evaluate, _scorer):
        return lambda params, frozen, batches: len(list(batches)) and {"accuracy": scores.pop(0), "macro_f1": 0.0}

    patch.setattr("bert_jax.finetuning.finetune.with_retrieval_scores", evaluate_nothing)


@pytest.mark.slow
def test_the_best_model_survives_a_kill_before_the_checkpoint_of_its_successor(world, tmp_path, monkeypatch):
    """The resumed run evaluates the successor again. On a GPU, its score may then be lower."""
    saved, steps = _TrainingLoop._save, []

    def save(self, step, *more):
        steps.append(step)
        if step == 10:
            raise RuntimeError("killed")
        saved(self, step, *more)

    run = tmp_path / "runs" / "lr0.003_seed0"
    with monkeypatch.context() as patch:
        patch.setattr(_TrainingLoop, "_save", save)
        with_scores(patch, [0.5, 0.6])
        with pytest.raises(RuntimeError, match="killed"):
            finetune(world, tmp_path, "sequence_classification")
    assert (steps, {path.name for path in run.glob("best-*")}) == ([5, 10], {"best-5", "best-10"})
    best = (run / "best-5" / "model.safetensors").read_bytes()
    with_scores(monkeypatch, [0.4])
    results = finetune(world, tmp_path, "sequence_classification")
    assert (results["best"]["step"], results["best"]["scores"]["accuracy"]) == (5, 0.5)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == best
    assert [path.name for path in run.glob("best-*")] == ["best-5"]


@pytest.mark.parametrize("scores", [pytest.param([math.nan, 0.2], marks=pytest.mark.slow), [0.2, math.nan]])
def test_a_score_that_is_not_finite_never_wins(world, tmp_path, monkeypatch, scores):
    """The run is stopped between both evaluations, so that the first score is read from metrics.jsonl."""
    with_scores(monkeypatch, [*scores])
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        assert finetune(world, tmp_path, "sequence_classification") is None
    results = finetune(world, tmp_path, "sequence_classification")
    assert results["best"]["step"] == 5 * (1 + scores.index(0.2))
    assert results["best"]["scores"]["accuracy"] == 0.2


def test_a_diverged_training_neither_wins_nor_enters_the_means():
    scores = [(1e-2, math.nan), (1e-2, None), (1e-3, 0.4), (1e-3, 0.6), (1e-3, None)]
    trainings = [{"learning_rate": rate, "scores": {"accuracy": score}, "run": ""} for rate, score in scores]
    summary = summarize_trainings("task", "accuracy", trainings)
    assert summary["best"]["scores"] == {"accuracy": 0.6}
    assert summary["mean"]["0.001"]["accuracy"]["mean"] == pytest.approx(0.5)
    assert summary["mean"]["0.01"]["accuracy"] == {"mean": None, "standard_deviation": None}
    summary["runs"] = [{"seed": 0, "step": 5} | training for training in trainings]
    assert "- ± -" in finetuning_table(summary | {"best": summary["runs"][3]}, "run", [])


@pytest.mark.slow
def test_patience_stops_a_training_also_after_a_resume(world, tmp_path):
    # At a learning rate of 0 no score improves.
    settings = ("optimizer.peak_learning_rate=0.0", "task.epochs=6", "task.patience=2", "train.log_every=100")
    results = finetune(world, tmp_path, "sequence_classification", *settings)
    run = tmp_path / "runs" / "lr0_seed0"
    assert set(heldout(run)) == {5, 10, 15}
    assert results["best"]["step"] == 5
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [15]  # the last step, as of a whole training
    written = (run / "metrics.jsonl").read_bytes()
    (run / "result.json").unlink()  # as if the process had been killed after early stopping
    shutil.rmtree(tmp_path / "model")
    assert finetune(world, tmp_path, "sequence_classification", *settings) == results
    assert (run / "metrics.jsonl").read_bytes() == written
    # The initial weights, except for the new head.
    start, end = tensors(world / "start"), tensors(tmp_path / "model")
    assert set(end) - set(start) == {"classifier.weight", "classifier.bias"}
    assert all(np.array_equal(start[name], end[name]) for name in end.keys() & start.keys())
