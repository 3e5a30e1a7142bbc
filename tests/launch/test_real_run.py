"""The launchers with bert-jax itself: several processes train, are preempted, killed, and finish."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.helpers.generated_corpus import generated_corpus
from tests.launch.cloud import NAME, ROOT, Cloud, wait_for

STEPS = 300
RECIPE = f"""
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.train.update(steps={STEPS}, batch_size=8, log_every=1)
    config.train.phases = phases({{"seq_len": 24}})
    config.evaluate.update(every=None, num_sequences=16, batch_size=8)
    config.checkpoint.every = 50
    return config
"""
# A host of a pod finds these values by itself.
TRAINER = f"""#!/usr/bin/env bash
exec {sys.executable} -m bert_jax "$@" --coordinator "127.0.0.1:$PORT" --num_processes "$HOSTS" --process_id "$HOST"
"""
FAST = ("--poll", "0.2", "--delete_when_done")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def cloud(tmp_path, corpus):
    (tmp_path / "bert-jax").write_text(TRAINER)
    (tmp_path / "bert-jax").chmod(0o755)
    made = Cloud(tmp_path, tmp_path / "bert-jax")
    made.env |= {"JAX_PLATFORMS": "cpu", "NPROC": "64"}
    (tmp_path / "recipe.py").write_text(RECIPE)
    made.workdir = made.workdir.with_name('it\'s a "run"; $(touch canary)')
    made.settings |= {"CORPUS": str(corpus), "WORKDIR": str(made.workdir), "OVERRIDE": "--config.seed=7"}
    yield made
    for host in range(2):  # left behind by a failed test
        with contextlib.suppress(OSError, ValueError):
            made.kill(host)


def babysat(cloud: Cloud, accident) -> str:
    """Run from nothing, through an accident in the middle, to the last step."""
    process = cloud.start("babysit", *FAST)
    try:
        wait_for(lambda: len(cloud.steps()) > 120, 240)
        assert len(cloud.steps()) < STEPS
        accident()
        out, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            print(cloud.interrupt(process))
    print(out)
    assert process.returncode == 0
    assert cloud.steps() == list(range(1, STEPS + 1))
    assert (cloud.workdir / "checkpoints" / str(STEPS)).is_dir()
    assert not (cloud.cloud / NAME).exists()
    assert not list(cloud.place.rglob("canary*"))
    return out


@pytest.mark.slow
def test_a_preempted_slice(cloud) -> None:
    out = babysat(cloud, cloud.preempt)
    assert "the slice is gone (" in out
    assert cloud.verbs().count("create") == 2


@pytest.mark.slow
def test_a_killed_host(cloud) -> None:
    """The watchdog of the other ends it with status 124."""
    out = babysat(cloud, lambda: cloud.kill(1))
    assert "failure 1 of 3 without a new checkpoint" in out
    assert cloud.verbs().count("create") == 1


@pytest.mark.slow
def test_a_signal_to_one_host(cloud) -> None:
    """All save the same step, and the run resumes there."""
    out = babysat(cloud, lambda: cloud.kill(0, signal.SIGTERM))
    assert "failure" not in out


@pytest.mark.slow
def test_processes_on_this_machine(tmp_path, corpus) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    run = ["--config", tmp_path / "recipe.py", "--workdir", tmp_path / "run", f"--config.data.corpus={corpus}"]
    env = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    argv = [ROOT / "launch" / "local.sh", "--cpu_devices", "2", "2", *run, "--config.train.steps=20"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "checkpoints" / "20").is_dir()
    assert "4 x cpu" in done.stderr
