"""The status of a child that ends at the same moment as its launcher gets a signal: bash's `wait` can lose it."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.launch.cloud import ROOT, wait_for

CHILD = """#!/bin/sh
trap 'exit 75' TERM
touch "$STANDIN_UP/$$"
while :; do sleep 1; done
"""


@pytest.mark.parametrize(
    "launcher",
    [pytest.param(["pretrain.sh", "run"], marks=pytest.mark.slow), ["pretrain.sh", "--keep_log", "9", "run"]],
)
def test_a_child_that_ends_with_the_signal_keeps_its_status(tmp_path, launcher) -> None:
    """A race: with `wait` alone, several of 40 runs end with 255, or hang where another child is left."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "up").mkdir()
    (tmp_path / "bin" / "bert-jax").write_text(CHILD)
    (tmp_path / "bin" / "bert-jax").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "STANDIN_UP": str(tmp_path / "up"), "JAX_PLATFORMS": "cpu"}
    argv = [ROOT / "launch" / launcher[0], *launcher[1:]]
    runs = [subprocess.Popen(argv, env=env, cwd=tmp_path, start_new_session=True) for _ in range(40)]
    try:
        wait_for(lambda: len(list((tmp_path / "up").iterdir())) == len(runs))
        for run in runs:
            os.killpg(run.pid, signal.SIGTERM)
        assert {run.wait(60) for run in runs} == {75}
    finally:
        for run in runs:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
