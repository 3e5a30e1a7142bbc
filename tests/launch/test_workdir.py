"""launch/workdir.py: the files that the launchers read and write, at a path and in a bucket."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.launch.cloud import PYTHON, ROOT, URL


@pytest.fixture(params=["path", "bucket"])
def place(request, tmp_path) -> tuple[str, pathlib.Path]:
    """A work directory, and where the stand-ins keep it."""
    if request.param == "path":
        return str(tmp_path / "run"), tmp_path / "run"
    return f"{URL}/", tmp_path / "buckets" / URL.removeprefix("gs://")


@pytest.fixture
def call(tmp_path):
    """call(words..., stdin=...) -> the process that has ended."""

    def called(*words: str, stdin: bytes = b"", modules: str = str(PYTHON)) -> subprocess.CompletedProcess[bytes]:
        env = os.environ | {"STANDIN_BUCKETS": str(tmp_path / "buckets"), "PYTHONPATH": modules}
        argv = [sys.executable, ROOT / "launch" / "workdir.py", *words]
        return subprocess.run(argv, env=env, input=stdin, capture_output=True, check=False)

    return called


def test_a_file_is_written_replaced_and_read(call, place) -> None:
    name, directory = place
    for content in (b"one\n", b"two\n\x00\xff"):
        assert call("write", name, "logs/a log", stdin=content).returncode == 0
        assert (directory / "logs" / "a log").read_bytes() == content
        done = call("read", name, "logs/a log")
        assert (done.returncode, done.stdout, done.stderr) == (0, content, b"")
    assert [path.name for path in (directory / "logs").iterdir()] == ["a log"]
    done = call("read", name, "requirements.lock")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_progress(call, place) -> None:
    name, directory = place

    def progress() -> tuple[int, bytes]:
        done = call("progress", name)
        assert done.stderr == b""
        return done.returncode, done.stdout

    def save(step: str) -> None:
        (directory / "checkpoints" / step / "state").mkdir(parents=True)
        (directory / "checkpoints" / step / "state" / "commit_success.txt").touch()
        (directory / "checkpoints" / step / "commit_success.txt").touch()

    assert progress() == (1, b"0 0\n")
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"config": {"train": {"steps": 100}}}))
    assert progress() == (1, b"0 100\n")
    for step in ("90", "8", "95.orbax-checkpoint-tmp"):
        save(step)
    assert progress() == (1, b"90 100\n")
    save("100")
    assert progress() == (0, b"100 100\n")
    (directory / "run.json").write_text("{")
    assert progress() == (1, b"0 0\n")


def test_a_checkpoint_in_a_bucket_is_complete_with_its_last_file(call, tmp_path) -> None:
    directory = tmp_path / "buckets" / URL.removeprefix("gs://")
    (directory / "checkpoints" / "100" / "state").mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps({"config": {"train": {"steps": 100}}}))
    (directory / "checkpoints" / "100" / "state" / "commit_success.txt").touch()
    assert call("progress", URL).stdout == b"0 100\n"
    (directory / "checkpoints" / "100" / "commit_success.txt").touch()
    assert call("progress", URL).stdout == b"100 100\n"


@pytest.mark.parametrize("verb", ["progress", "read", "write"])
def test_storage_that_fails_is_one_line(call, place, verb) -> None:
    name, directory = place
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("not a directory")
    done = call(verb, name, *(["file"] if verb != "progress" else []))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith(f"workdir.py: {name}: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [[], ["read"], ["read", "run"], ["copy", "run"], ["progress", "run", "more"]])
def test_mistakes_on_the_command_line(call, words) -> None:
    done = call(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"python3 launch/workdir.py progress WORKDIR" in done.stderr


def test_a_python_without_gcsfs_is_refused(call, tmp_path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "gcsfs.py").write_text("raise ImportError('none here')\n")
    done = call("check", URL, modules=str(tmp_path / "none"))
    assert done.returncode == 2
    first = f"workdir.py: {URL}: gs:// needs gcsfs: pip install 'bert-jax[storage]' for {sys.executable} ("
    assert done.stderr.decode().startswith(first)
    assert len(done.stderr.splitlines()) == 1
    assert call("check", URL).returncode == call("check", "runs/base").returncode == 0
