"""launch/slurm.sbatch with stand-ins for srun and scontrol, and launch/pretrain.sh below it."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import pytest

from tests.launch.cloud import HERE, PYTHON, ROOT, URL, wait_for

SRUN = """#!/usr/bin/env bash
# Two tasks; the highest of their statuses.
printf '%s\\n' "$*" >>"$STANDIN_SCRIPT/srun"
[[ $* != *" --export=ALL "* && -v SLURM_EXPORT_ENV ]] && unset BERT_JAX_TOKEN
while [[ $1 == --* ]]; do options+="$1 "; shift; done
[[ $options == "--cpus-per-task=12 --kill-on-bad-exit=0 --gpu-bind=none --export=ALL " ]] || exit 99
HOST=1 "$@" & other=$!
HOST=0 "$@" & first=$!
trap 'kill -TERM $first $other' TERM
wait $first $other; wait $first; one=$?; wait $other; two=$?
exit $((one > two ? one : two))
"""
SQUEUE = """#!/bin/sh
[ "$*" = "--noheader --jobs 17 --format %T" ] && echo "${STANDIN_STATE:-RUNNING}"
"""


class Cluster:
    def __init__(self, place: pathlib.Path) -> None:
        self.place, self.workdir = place, place / "a 'run' $(touch canary)"
        self.name = str(self.workdir)
        (place / "bin").mkdir()
        standins = {
            "sleep": "#!/bin/sh\n",
            "srun": SRUN,
            "scontrol": '#!/bin/sh\necho "$@" >>"$STANDIN_SCRIPT/scontrol"\n',
            "squeue": SQUEUE,
        }
        for name, text in standins.items():
            (place / "bin" / name).write_text(text)
            (place / "bin" / name).chmod(0o755)
        (place / "bin" / "bert-jax").symlink_to(HERE / "trainer.py")
        path = f"{place / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = os.environ | {"PATH": path, "STANDIN_SCRIPT": str(place)}
        self.env |= {"STANDIN_BUCKETS": str(place / "buckets"), "PYTHONPATH": str(PYTHON)}
        self.env |= {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "12"}

    def use_bucket(self) -> None:
        """Give URL as the work directory; `workdir` is where the stand-ins keep it."""
        self.name, self.workdir = URL, self.place / "buckets" / URL.removeprefix("gs://")

    def start(self, *more: str) -> subprocess.Popen:
        """A job; Slurm runs a copy of the script."""
        argv = ["bash", "-s", self.name, *more]
        with open(ROOT / "launch" / "slurm.sbatch") as script:
            return subprocess.Popen(
                argv,
                stdin=script,
                env=self.env,
                cwd=self.place,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def job(self, *more: str) -> tuple[int, str]:
        process = self.start(*more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out + err

    def requeued(self) -> int:
        path = self.place / "scontrol"
        return path.read_text().splitlines().count("requeue 17") if path.exists() else 0

    def script_of(self, *starts: tuple[int, int | None]) -> None:
        (self.place / "next").write_text(json.dumps(starts))


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path)


def test_requeued_until_finished(cluster) -> None:
    cluster.script_of((124, 15), (1, 25))
    for number in (1, 2):
        status, out = cluster.job("--config", "x; touch canary", "two\nlines")
        assert status == 0, out
        assert cluster.requeued() == number
    status, out = cluster.job("--config", "x; touch canary", "two\nlines")
    assert status == 0
    assert "finished: step 40 is saved" in out
    assert cluster.requeued() == 2
    lines = [json.loads(line) for line in (cluster.place / "argv.jsonl").read_text().splitlines()]
    expected = ["pretrain", "--workdir", str(cluster.workdir), "--config", "x; touch canary", "two\nlines"]
    assert [line[1:] for line in lines] == [expected] * 6
    tokens = (cluster.place / "tokens").read_text().split()  # two processes in each of three starts
    assert {len(token) for token in tokens} == {64}
    assert len(set(tokens)) == 3
    steps = [json.loads(line)["step"] for line in (cluster.workdir / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 41))
    assert not list(cluster.place.rglob("canary*"))


def test_the_secret_reaches_the_tasks_after_a_submission_without_the_environment(cluster) -> None:
    cluster.env["SLURM_EXPORT_ENV"] = "PATH,HOME"  # as `sbatch --export=PATH,HOME` leaves it to srun
    assert cluster.job()[0] == 0
    assert {len(token) for token in (cluster.place / "tokens").read_text().split()} == {64}


def test_the_time_limit(cluster) -> None:
    """Slurm sends TERM to the tasks, and to the script too when it preempts."""
    cluster.env["STANDIN_SECONDS"] = "0.1"
    process = cluster.start()
    wait_for(lambda: (cluster.workdir / "metrics.jsonl").exists() and (cluster.workdir / "metrics.jsonl").read_text())
    pids = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "srun"], capture_output=True, text=True
    ).stdout.split()
    process.send_signal(signal.SIGTERM)
    for pid in pids:
        os.kill(int(pid), signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "status 75 after step" in err
    assert cluster.requeued() == 1


def test_a_cancelled_job_stays_cancelled(cluster) -> None:
    """After `scancel` Slurm would take a requeue of the job, which says COMPLETING."""
    cluster.env["STANDIN_STATE"] = "COMPLETING"
    cluster.script_of((124, 15))
    status, out = cluster.job()
    assert (status, cluster.requeued()) == (0, 0)
    assert "of 40; the job is COMPLETING, not requeued by this script (Slurm itself requeues a preempted job)" in out


@pytest.mark.parametrize("in_bucket", [pytest.param(False, marks=pytest.mark.slow), True])
def test_failures_without_a_new_checkpoint_end_it(cluster, in_bucket) -> None:
    if in_bucket:
        cluster.use_bucket()
    cluster.script_of((1, 15), (1, 16), (1, 17))
    assert [cluster.job()[0] for _ in range(3)] == [0, 0, 1]
    assert cluster.requeued() == 2
    cluster.script_of()
    assert cluster.job()[0] == 0  # sent again by hand, it begins to count anew
    assert (cluster.workdir / "checkpoints" / "40").is_dir()


def test_a_failure_where_nothing_can_be_written_ends_it(cluster) -> None:
    """The count of failures would stay 0, and the job would be requeued forever."""
    (cluster.workdir / "slurm_failures").mkdir(parents=True)  # as on a full disk, this file cannot be written
    cluster.script_of((75, 15), (1, 15))
    assert cluster.job()[0] == 0  # a new checkpoint is saved: there is no failure to count
    status, out = cluster.job()
    assert (status, cluster.requeued()) == (1, 1)
    assert f"{cluster.workdir} cannot be written; not requeued" in out


def test_a_write_that_fails_once_is_repeated(cluster) -> None:
    record = cluster.workdir / "slurm_failures"
    record.mkdir(parents=True)  # the first write fails
    (cluster.place / "bin" / "sleep").write_text(f"#!/bin/sh\nrmdir {shlex.quote(str(record))}\n")
    cluster.script_of((1, 15))
    assert cluster.job()[0] == 0
    assert (cluster.requeued(), record.read_text()) == (1, "1\n")


def test_a_mistake_of_the_user_is_not_repeated(cluster) -> None:
    cluster.script_of((2, None))
    status, out = cluster.job()
    assert status == 2
    assert "no such directory; prepare one" in out
    assert cluster.requeued() == 0


@pytest.mark.parametrize("url", ["hdfs://bucket/run", "s3://bucket", "gs:/bucket/run"])
def test_another_url_is_refused_before_a_task_starts(cluster, url) -> None:
    cluster.name = url
    says = f"workdir.py: {url}: a work directory is gs://BUCKET/NAME, s3://BUCKET/NAME or a path\n"
    assert cluster.job() == (2, says)
    assert not (cluster.place / "srun").exists()
