"""launch/pretrain.sh --keep_log: the output of a run in its work directory, beside where it is printed."""

import os
import pathlib
import signal
import subprocess

import pytest

from tests.launch.cloud import HERE, ROOT, wait_for


@pytest.fixture
def start(tmp_path):
    """Start launch/pretrain.sh with a stand-in for bert-jax."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bert-jax").symlink_to(HERE / "trainer.py")
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "STANDIN_SCRIPT": str(tmp_path)}

    def started(workdir: pathlib.Path, seconds: str) -> subprocess.Popen[str]:
        argv = [ROOT / "launch" / "pretrain.sh", "--keep_log", "0.1", workdir]
        return subprocess.Popen(
            argv,
            env=env | {"STANDIN_SECONDS": seconds},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return started


def test_the_log_grows_while_the_run_lasts_and_has_its_end(start, tmp_path) -> None:
    """SIGTERM to the whole process group, as tpu_worker.sh sends it."""
    workdir = tmp_path / "a 'run'; $(touch canary)"
    process, seen = start(workdir, "0.05"), [""]

    def grown() -> bool:
        seen.extend(path.read_text() for path in workdir.glob("logs/*.log"))
        return len(set(seen)) > 3

    wait_for(grown)
    os.killpg(process.pid, signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 75
    (kept,) = (workdir / "logs").iterdir()
    assert kept.read_text() == out
    assert all(later.startswith(earlier) for earlier, later in zip(seen, [*seen[1:], out], strict=True))
    assert not list(tmp_path.rglob("canary*"))


def test_a_copy_that_fails_ends_no_run(start, tmp_path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "logs").write_text("not a directory")
    process = start(tmp_path / "run", "0.02")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.count("pretrain.sh: the log is not copied to ") == 1
    assert "step 40/40" in out
