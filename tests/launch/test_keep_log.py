"""launch/pretrain.sh --keep_log: the output of a run in its work directory, beside where it is printed."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.launch.cloud import HERE, PYTHON, ROOT, URL, wait_for


@pytest.fixture
def start(tmp_path):
    """Start launch/pretrain.sh with a stand-in for bert-jax."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bert-jax").symlink_to(HERE / "trainer.py")
    path = f"{tmp_path / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "STANDIN_SCRIPT": str(tmp_path)}
    env |= {"STANDIN_BUCKETS": str(tmp_path / "buckets"), "PYTHONPATH": str(PYTHON)}

    def started(workdir: str | pathlib.Path, seconds: str) -> subprocess.Popen[str]:
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


@pytest.fixture(params=[URL, "a 'run'; $(touch canary)"])
def place(request, tmp_path) -> tuple[str, pathlib.Path]:
    """A work directory, and where the stand-ins keep it."""
    if request.param == URL:
        return URL, tmp_path / "buckets" / URL.removeprefix("gs://")
    return str(tmp_path / request.param), tmp_path / request.param


def test_the_log_grows_while_the_run_lasts_and_has_its_end(start, place, tmp_path) -> None:
    """SIGTERM to the whole process group, as tpu_worker.sh sends it."""
    name, workdir = place
    process, seen = start(name, "0.2"), [""]

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


def test_the_copied_log_outlives_a_host_that_is_lost_without_a_signal(start, place) -> None:
    name, workdir = place
    process = start(name, "0.05")
    wait_for(lambda: any(path.read_text() for path in workdir.glob("logs/*.log")))
    os.killpg(process.pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    (kept,) = (workdir / "logs").glob("*.log")
    assert kept.read_text().startswith("step 1/40\n")
    assert out.startswith(kept.read_text()) or kept.read_text().startswith(out)  # which was ahead


def test_a_copy_that_fails_ends_no_run(start, place) -> None:
    name, workdir = place
    workdir.mkdir(parents=True)
    (workdir / "logs").write_text("not a directory")
    process = start(name, "0.02")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.count(f"pretrain.sh: the log is not copied to {name}/logs/") == 1
    assert "step 40/40" in out


@pytest.mark.parametrize("url", ["hdfs://bucket/run", "gs://bucket", "s3://bucket/", "gs:///run", "gs:/bucket/run"])
def test_another_url_is_refused_in_one_line(start, tmp_path, url) -> None:
    process = start(url, "0.02")
    out, _ = process.communicate(timeout=60)
    says = f"workdir.py: {url}: a work directory is gs://BUCKET/NAME, s3://BUCKET/NAME or a path\n"
    assert (process.returncode, out) == (2, says)
    assert not (tmp_path / "argv.jsonl").exists()
