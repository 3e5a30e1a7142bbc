"""A run on a text whose rest is prepared meanwhile: whatever stops it and however long it waits, the same result."""

import contextlib
import fcntl
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.config import CheckpointConfig
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.metrics import read_metrics
from tests.helpers.preparation import text

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS, EVERY = 60, 5
TIMES = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")

RECIPE = f"""
from bert_jax.config import pretrain_config

def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=64, num_layers=1, num_heads=1, mlp_size=128, max_positions=32, vocab_size=50)
    config.data.update(sentence_pairs="full_sentences", snapshots=2)
    config.train.update(steps={STEPS}, batch_size=16, log_every=1)
    config.train.phases = ({{"seq_len": 32}},)
    config.evaluate.update(every=20, num_sequences=32, batch_size=32)
    config.checkpoint.update(every={EVERY}, max_time_fraction=None)
    return config
"""


def start(place: pathlib.Path, name: str) -> subprocess.Popen[str]:
    """A run with a work directory and a cache of its own, which the next of this name finds again."""
    command = [sys.executable, "-m", "bert_jax", "pretrain", f"--config={place}/recipe.py", f"--workdir={place / name}"]
    command += [f"--config.data.text={place}/texts/*.txt"]
    own = {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(place / f"{name}_cache")}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | own, stderr=subprocess.PIPE, text=True)


def until(run: subprocess.Popen[str], pattern: str) -> str:
    """Read what the run says up to a line; return the group in it."""
    assert run.stderr
    said = []
    for line in run.stderr:
        said.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(said)


def stopped(place: pathlib.Path, run: subprocess.Popen[str], number: int | None = None) -> tuple[int, str]:
    """Its status and the last lines that it said, once no process is left that prepares a text in `place`."""
    if number is not None:
        run.send_signal(number)
    said = run.communicate()[1]
    while preparing(place):
        time.sleep(0.1)
    return run.returncode, said


def preparing(place: pathlib.Path) -> list[str]:
    """The commands of the processes that prepare the rest of a text in `place`."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(path.read_text())
    return [one for one in found if "bert_jax.pretraining.background_preparation" in one and str(place) in one]


def outcome(workdir: pathlib.Path) -> tuple[dict[str, str], list[dict]]:
    """A digest of each leaf of the last state, and all metrics but the times."""
    checkpoints = Checkpoints(workdir, CheckpointConfig(), read_only=True)
    digests = checkpoints.record(STEPS)["digests"]
    checkpoints.close()
    lines = read_metrics(workdir / "metrics.jsonl")
    return digests, [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


@pytest.mark.slow
def test_a_run_that_is_killed_and_waits_is_the_run_that_never_was(tmp_path: pathlib.Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "texts").mkdir()
    for number in range(40):
        (tmp_path / "texts" / f"{number}.txt").write_text(text(random.Random(number), 60))
    whole = start(tmp_path, "whole")
    changes = int(until(whole, r"step (\d+): reading snapshot 2 of 2"))
    assert EVERY < changes < STEPS - 10
    assert stopped(tmp_path, whole)[0] == 0
    (name,) = (path.name for path in (tmp_path / "whole_cache" / "bert_jax" / "text").iterdir())
    place = tmp_path / "other_cache" / "bert_jax" / "text" / name
    place.mkdir(parents=True)
    with open(place / "rest.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as another run that prepares the rest, and takes its time
        for stop, number in ((1, signal.SIGKILL), (changes - 2, signal.SIGKILL), (changes - 1, signal.SIGINT)):
            run = start(tmp_path, "other")
            until(run, rf"^(step {stop})/")
            assert preparing(tmp_path)
            assert stopped(tmp_path, run, number)[0] == (0 if number == signal.SIGINT else -number)
    run = start(tmp_path, "other")
    assert int(until(run, r"resuming at step (\d+)")) <= changes
    until(run, rf"^(step {changes + 3})/")
    assert stopped(tmp_path, run, signal.SIGKILL)[0] == -signal.SIGKILL
    run = start(tmp_path, "other")
    assert f"step {STEPS}/{STEPS}" in stopped(tmp_path, run)[1]
    assert outcome(tmp_path / "other") == outcome(tmp_path / "whole")
