"""launch/pretrain.sh at gs://, as Cloud TPU hosts and GKE pods call it, with gcsfs and bert-jax themselves."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.gcs.bucket import Bucket
from tests.gcs.test_object_storage import MARK, PLACE, URL, check_same_run, command, commits, wait_for
from tests.helpers.commands import World

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
COMMAND = f'#!/bin/sh\nexec "{sys.executable}" -m bert_jax "$@"\n'


@pytest.fixture
def environment(bucket: Bucket, tmp_path: pathlib.Path) -> dict[str, str]:
    """That of a host whose python3 and bert-jax are those of this virtual environment."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bert-jax").write_text(COMMAND)
    (tmp_path / "bin" / "bert-jax").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    return bucket.process_environment(tmp_path / "cache of the host") | {"PATH": path}


def start(world: World, environment: dict[str, str], *more: str) -> subprocess.Popen:
    _, *arguments = command(world, *more)
    at = arguments.index("--workdir")
    argv = [LAUNCH / "pretrain.sh", "--keep_log", "0.5", arguments[at + 1], *arguments[:at], *arguments[at + 2 :]]
    return subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def workdir(environment: dict[str, str], verb: str, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, LAUNCH / "workdir.py", verb, URL, *more]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def logs(bucket: Bucket) -> list[str]:
    return [content.decode() for content in bucket.files(f"{PLACE}/logs").values()]


def test_a_preempted_run_keeps_its_log_and_the_next_host_finishes_it(world, bucket, environment) -> None:
    process = start(world, environment, "--config.train.log_every=1")
    wait_for(lambda: bool(commits(bucket)), process)
    os.killpg(process.pid, signal.SIGTERM)
    first, _ = process.communicate()
    assert process.returncode == 75
    assert logs(bucket) == [first]
    newest = max(int(name.split("/")[1]) for name in commits(bucket))
    done = workdir(environment, "progress")
    assert (done.returncode, done.stdout) == (1, f"{newest} 6\n")
    process = start(world, environment)
    second, _ = process.communicate()
    assert process.returncode == 0, second
    assert logs(bucket) == [first, second]
    assert f"resuming at step {newest} from {URL}" in second
    assert workdir(environment, "progress").stdout == "6 6\n"
    lock = workdir(environment, "read", "requirements.lock")
    assert lock.stdout.encode() == bucket.files(PLACE)["requirements.lock"]
    check_same_run(world, bucket)


def test_a_checkpoint_that_is_not_complete_is_no_progress(world, bucket, environment) -> None:
    bucket.fail(f"POST.*checkpoints/4/{MARK}")
    process = start(world, environment)
    wait_for(lambda: any(left < -1 for _, left in bucket.failing), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    bucket.failing.clear()
    assert any(name.startswith("checkpoints/4/") for name in bucket.files(PLACE))
    assert workdir(environment, "progress").stdout == "2 6\n"


def test_absent_files_are_empty_and_a_failing_bucket_is_an_error(bucket, environment) -> None:
    done = workdir(environment, "progress")
    assert (done.returncode, done.stdout, done.stderr) == (1, "0 0\n", "")
    done = workdir(environment, "read", "requirements.lock")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    bucket.server.shutdown()
    bucket.server.server_close()
    done = workdir(environment, "read", "requirements.lock")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"workdir.py: {URL}: ")
    assert len(done.stderr.splitlines()) == 1
