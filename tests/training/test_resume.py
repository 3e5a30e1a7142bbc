"""Runs that are stopped through the command line's own process and started again, against a run that never was.

SIGTERM saves and exits with 0; SIGKILL stops at once. After both, the same command resumes, and ends with
the same parameters and optimizer state, bit by bit, and the same metrics, no line missing or twice.

Other objectives are stopped in this process: by SIGTERM, and by an exception, after which nothing is saved.
"""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import CheckpointConfig
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.metrics import read_metrics
from tests.helpers.finetuning_runs import stop_after
from tests.helpers.generated_corpus import generated_corpus

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, EVERY = 24, 4
TIMES = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")

TWO_PHASES = 'phases({"seq_len": 32, "fraction": 0.6}, {"seq_len": 64, "fraction": 0.4})'
RECIPE = f"""
from bert_jax.config import phases, pretrain_config

def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=64, num_layers=2, num_heads=2, mlp_size=128, max_positions=64)
    config.data.corpus = {{corpus!r}}
    config.train.update(steps={STEPS}, batch_size=32, log_every=1)
    config.train.phases = {TWO_PHASES.replace("{", "{{").replace("}", "}}")}
    config.evaluate.update(every=12, num_sequences=32, batch_size=32)
    config.checkpoint.update(every={EVERY}, keep=2)
    return config
"""


class Run:
    """`python -m bert_jax pretrain` in a work directory, its lines read as they come."""

    def __init__(self, recipe: pathlib.Path, workdir: pathlib.Path) -> None:
        self.workdir = workdir
        command = [sys.executable, "-m", "bert_jax", "pretrain", f"--config={recipe}", f"--workdir={workdir}"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []

    def until_step(self, step: int) -> None:
        """Until the run says that it did `step`; at once where it resumed after it."""
        for line in self.process.stderr:
            self.said.append(line)
            found = re.match(r"step (\d+)/", line)
            if found and int(found[1]) >= step:
                return

    def until_writing(self) -> None:
        """Until a checkpoint is half written, or the run is over."""
        while self.process.poll() is None and not half_written(self.workdir):
            pass

    def stop(self, number: int) -> int:
        self.process.send_signal(number)
        return self.finish()

    def finish(self) -> int:
        self.said += self.process.stderr.readlines()
        self.process.stderr.close()
        return self.process.wait()

    def number(self, pattern: str) -> int | None:
        """The number in the line that matches, if there is one."""
        found = re.search(pattern, "".join(self.said))
        return int(found[1]) if found else None


def half_written(workdir: pathlib.Path) -> list[pathlib.Path]:
    return list((workdir / "checkpoints").glob("*checkpoint-tmp*"))


class Outcome(NamedTuple):
    record: dict
    lines: list[dict]


def outcome(workdir: pathlib.Path, steps: int = STEPS) -> Outcome:
    """The record of the last checkpoint, with a digest of each leaf of the state, and all metrics but the times."""
    checkpoints = Checkpoints(workdir, CheckpointConfig(), read_only=True)
    record = checkpoints.record(steps)
    assert max(checkpoints.complete_steps()) == steps
    checkpoints.close()
    lines = read_metrics(workdir / "metrics.jsonl")
    return Outcome(record, [{key: value for key, value in line.items() if key not in TIMES} for line in lines])


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("resume")
    path = place / "recipe.py"
    path.write_text(RECIPE.format(corpus=str(generated_corpus(place))))
    return path


@pytest.fixture(scope="module")
def whole(recipe: pathlib.Path) -> Outcome:
    """The run that was never stopped."""
    run = Run(recipe, recipe.parent / "whole")
    assert run.finish() == 0, run.said
    found = outcome(run.workdir)
    steps = [line["step"] for line in found.lines if line["split"] == "train"]
    assert steps == list(range(1, STEPS + 1))
    assert any("mu" in name or "nu" in name for name in found.record["digests"])
    assert f"\njax=={jax.__version__}\n" in (run.workdir / "requirements.lock").read_text()
    return found


def finish_and_compare(recipe: pathlib.Path, workdir: pathlib.Path, whole: Outcome, resumes_at: int | None) -> None:
    run = Run(recipe, workdir)
    assert run.finish() == 0, run.said
    assert run.number(r"resuming at step (\d+)") == resumes_at
    found = outcome(workdir)
    assert found.record == whole.record
    assert found.lines == whole.lines
    assert not half_written(workdir)


def newest_whole(workdir: pathlib.Path) -> int | None:
    """Step of the newest checkpoint that was written to its end."""
    return max((int(path.name) for path in (workdir / "checkpoints").glob("*") if path.name.isdigit()), default=None)


def stops(trial: int) -> int:
    """How often the run of a trial is stopped: every third one twice."""
    return 1 + (trial % 3 == 2)


def terminate(recipe: pathlib.Path, workdir: pathlib.Path, whole: Outcome, trial: int) -> None:
    """SIGTERM after a random step, then the end."""
    rng = np.random.default_rng(trial)
    steps = np.sort(rng.choice(np.arange(1, STEPS - 3), stops(trial), replace=False))
    saved = None
    for step in steps:
        run = Run(recipe, workdir)
        run.until_step(step)
        time.sleep(rng.uniform(0, 0.01))  # somewhere within the step
        assert run.stop(signal.SIGTERM) == 0, run.said
        assert run.number(r"resuming at step (\d+)") == saved
        saved = run.number(r"SIGTERM: stopped after step (\d+)")
        assert saved is not None, run.said
        assert step <= saved == newest_whole(workdir)
    finish_and_compare(recipe, workdir, whole, saved)


def kill_at_once(run: Run, rng: np.random.Generator) -> None:
    """Before the first checkpoint."""
    run.until_step(rng.integers(1, EVERY - 1))


def kill_anywhere(run: Run, rng: np.random.Generator) -> None:
    """At some time in or between two steps."""
    run.until_step(rng.integers(1, STEPS - 3))
    time.sleep(rng.uniform(0, 0.05))


def kill_while_writing(run: Run, rng: np.random.Generator) -> None:
    """Some time into the writing of the first, second, ... checkpoint."""
    run.until_step(EVERY * rng.integers(1, STEPS // EVERY) - 1)
    run.until_writing()
    time.sleep(rng.uniform(0, 0.03))


MOMENTS: tuple[Callable[[Run, np.random.Generator], None], ...] = (kill_while_writing, kill_at_once, kill_anywhere)


class Killed(NamedTuple):
    """What the kills of a trial left."""

    nothing: int
    half_written: int


def kill(recipe: pathlib.Path, workdir: pathlib.Path, whole: Outcome, trial: int) -> Killed:
    """SIGKILL at one moment, or at one and then another, then the end."""
    rng = np.random.default_rng(100 + trial)
    nothing = half = 0
    for moment in itertools.islice(itertools.cycle(MOMENTS), trial, trial + stops(trial)):
        run = Run(recipe, workdir)
        moment(run, rng)
        assert run.stop(signal.SIGKILL) == -signal.SIGKILL, "it finished before it could be killed"
        nothing += newest_whole(workdir) is None
        half += bool(half_written(workdir))
    finish_and_compare(recipe, workdir, whole, newest_whole(workdir))
    return Killed(nothing, half)


def test_a_run_that_is_terminated_and_then_killed_resumes_bit_identically(
    recipe: pathlib.Path, tmp_path: pathlib.Path, whole: Outcome
) -> None:
    run = Run(recipe, tmp_path)
    run.until_step(6)
    assert run.stop(signal.SIGTERM) == 0, run.said
    saved = run.number(r"SIGTERM: stopped after step (\d+)")
    assert saved == newest_whole(tmp_path)
    run = Run(recipe, tmp_path)
    run.until_step(3 * EVERY - 1)
    run.until_writing()
    assert run.stop(signal.SIGKILL) == -signal.SIGKILL, "it finished before it could be killed"
    assert run.number(r"resuming at step (\d+)") == saved
    finish_and_compare(recipe, tmp_path, whole, newest_whole(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(22))
def test_terminated_runs_resume_bit_identically(
    recipe: pathlib.Path, tmp_path: pathlib.Path, whole: Outcome, trial: int
) -> None:
    terminate(recipe, tmp_path, whole, trial)


@pytest.mark.slow
def test_many_killed_runs_resume_bit_identically(recipe: pathlib.Path, tmp_path: pathlib.Path, whole: Outcome) -> None:
    kills = [kill(recipe, tmp_path / str(trial), whole, trial) for trial in range(22)]
    nothing, half = np.sum(kills, axis=0)
    print(f"{nothing} kills before the first checkpoint, {half} during the writing of one")
    assert nothing >= 3
    assert half >= 3


# One short phase, with a checkpoint after the third and the sixth of seven steps.
SHORT = ("train.steps=7", "train.batch_size=8", "evaluate.every=None", "evaluate.num_sequences=8", "checkpoint.every=3")
OTHERS = {
    "left to right": ("objective=left_to_right", "model.causal=True", "data.sentence_pairs=full_sentences"),
    "sentence order": ("data.sentence_pairs=sentence_order",),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_objectives_resume_bit_identically(
    recipe: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Stopped before a checkpoint is due, then crashed three steps after one, whose lines are written again."""
    one_phase = recipe.read_text().replace(TWO_PHASES, 'phases({"seq_len": 32})')
    (tmp_path / "recipe.py").write_text(one_phase)

    def train(workdir: pathlib.Path) -> None:
        overrides = [f"--config.{value}" for value in (*SHORT, *OTHERS[name])]
        assert main(["pretrain", f"--config={tmp_path / 'recipe.py'}", f"--workdir={workdir}", *overrides]) == 0

    train(tmp_path / "whole")
    whole = outcome(tmp_path / "whole", 7)
    assert [line["step"] for line in whole.lines if line["split"] == "train"] == list(range(1, 8))
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        train(tmp_path / "stopped")
    assert newest_whole(tmp_path / "stopped") == 2
    with monkeypatch.context() as patch:
        stop_after(patch, 4, RuntimeError("crash"))  # of steps 3 to 6, the last as its checkpoint is begun
        with pytest.raises(RuntimeError, match="crash"):
            train(tmp_path / "stopped")
    assert newest_whole(tmp_path / "stopped") == 3
    train(tmp_path / "stopped")
    assert outcome(tmp_path / "stopped", 7) == whole
