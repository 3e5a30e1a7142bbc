"""launch/tpu_worker.sh on a pretended host, without a cloud around it."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.launch.cloud import HERE, PYTHON, ROOT, URL


class Host:
    """A HOME, and storage that it shares with other hosts."""

    def __init__(self, place: pathlib.Path) -> None:
        self.home, self.workdir = place / "home", place / "shared" / "a 'run'; $(touch canary)"
        self.in_bucket = place / "buckets" / URL.removeprefix("gs://")
        self.place = self.home / "bert_jax"
        self.place.mkdir(parents=True)
        for name in ("tpu_worker.sh", "pretrain.sh", "workdir.py"):
            shutil.copy(ROOT / "launch" / name, self.place)
        path = f"{HERE / 'worker_bin'}:{pathlib.Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        self.env = {"HOME": str(self.home), "PATH": path, "HOST": "3", "TRAINER": str(HERE / "trainer.py")}
        self.env |= {"STANDIN_SCRIPT": str(place), "STANDIN_BUCKETS": str(place / "buckets"), "PYTHONPATH": str(PYTHON)}

    def call(self, *words: str | os.PathLike, status: int = 0) -> str:
        """stdout and stderr together."""
        argv = ["bash", self.place / "tpu_worker.sh", *words]
        done = subprocess.run(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == status, done.stdout
        return done.stdout

    def installed(self) -> str:
        """The last call of uv."""
        return (self.home / "uv.log").read_text().splitlines()[-1]


@pytest.fixture
def host(tmp_path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize("in_bucket", [False, True])
def test_setup_installs_the_versions_that_the_run_began_with(host, in_bucket) -> None:
    host.workdir.parent.mkdir()
    workdir, directory = (URL, host.in_bucket) if in_bucket else (str(host.workdir), host.workdir)
    host.call("setup", "bert-jax[tpu,storage]", workdir)
    assert host.installed() == "pip install --quiet --python venv/bin/python -- bert-jax[tpu,storage]"
    directory.mkdir(parents=True)
    (directory / "requirements.lock").write_text("# versions\njax==0.10.2\nml-dtypes==0.6.0rc1\n")
    host.call("setup", "bert-jax[tpu,storage]", workdir)
    assert host.installed().endswith(" --constraint constraint.txt -- bert-jax[tpu,storage]")
    # A copy: uv splits longer paths at spaces.
    assert (host.place / "constraint.txt").read_text() == (directory / "requirements.lock").read_text()
    before = "pip install --quiet --python venv/bin/python gcsfs"  # which reads the versions in a bucket
    assert (host.home / "uv.log").read_text().splitlines().count(before) == (2 if in_bucket else 0)
    host.env["STANDIN_PIP_FAILS"] = "bert-jax"
    out = host.call("setup", "bert-jax[tpu,storage]", workdir, status=1)
    assert out == f"host-3: bert-jax was not installed; remove {workdir}/requirements.lock to install other versions\n"
    assert not list(host.home.parent.rglob("canary*"))


def test_other_versions_are_not_installed_where_the_bucket_cannot_be_read(host) -> None:
    host.in_bucket.parent.mkdir(parents=True)
    host.in_bucket.write_text("not a directory")
    out = host.call("setup", "bert-jax[tpu,storage]", URL, status=1)
    assert out.endswith(f"host-3: {URL}/requirements.lock cannot be read\n")
    assert not (host.place / "ready").exists()


def test_questions_at_the_same_time_do_not_look_like_a_run(host) -> None:
    (host.place / "ready").touch()
    with open(host.place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # as another `state` holds it
        assert " ready 0 0" in host.call("state", host.workdir)
        assert "nothing is running here" in host.call("stop")
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a run holds it
        assert " running 0 0" in host.call("state", host.workdir)


def test_a_host_is_bare_where_another_package_or_half_a_package_is_installed(host) -> None:
    host.workdir.parent.mkdir()
    host.env["BERT_JAX_PACKAGE"] = "1-2"
    host.call("setup", "bert-jax[tpu]", host.workdir)
    assert " ready 0 0" in host.call("state", host.workdir)
    host.env["BERT_JAX_PACKAGE"] = "3-4"
    assert " bare 0 0" in host.call("state", host.workdir)
    with open(host.place / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert " running 0 0" in host.call("state", host.workdir)
    del host.env["BERT_JAX_PACKAGE"]
    assert " ready 0 0" in host.call("state", host.workdir)
    host.env["STANDIN_PIP_FAILS"] = "bert-jax"
    host.call("setup", "bert-jax[tpu]", host.workdir, status=1)
    assert " bare 0 0" in host.call("state", host.workdir)


def test_a_finished_run_stays_finished_whatever_the_package_is_now(host) -> None:
    host.workdir.parent.mkdir()
    host.env |= {"BERT_JAX_PACKAGE": "1-2", "BERT_JAX_RUN": "5-6"}
    host.call("setup", "bert-jax[tpu]", host.workdir)
    (host.place / "run_id").write_text("5-6")
    (host.place / "status").write_text("0\n")
    host.env["BERT_JAX_PACKAGE"] = "3-4"
    assert " 0 0 0" in host.call("state", host.workdir)
    (host.place / "status").write_text("1\n")
    assert " bare 0 0" in host.call("state", host.workdir)
    (host.place / "status").write_text("0\n")
    host.env["BERT_JAX_RUN"] = "7-8"
    assert " bare 0 0" in host.call("state", host.workdir)


def test_a_path_that_is_not_mounted_is_refused(host) -> None:
    """Else each host would train in a directory of its own disk."""
    says = f"host-3: {host.workdir.parent} does not exist here: mount it, or give gs://BUCKET/NAME\n"
    assert host.call("setup", "bert-jax[tpu]", host.workdir, status=1) == says
    host.workdir.parent.mkdir()
    host.call("setup", "bert-jax[tpu]", host.workdir)
    host.workdir.parent.rmdir()  # the host was restarted
    assert host.call("start", host.workdir, status=1) == says
    assert not host.workdir.parent.exists()


@pytest.mark.parametrize(
    "line", ["--index-url https://elsewhere.example", "jax @ https://elsewhere.example/jax.whl", "-r more", "jax==1 x"]
)
def test_a_lock_holds_versions_alone(host, line) -> None:
    host.workdir.mkdir(parents=True)
    (host.workdir / "requirements.lock").write_text(f"jax==0.10.2\n{line}\n")
    assert "requirements.lock: a line is not NAME==VERSION" in host.call("setup", "bert-jax", host.workdir, status=1)
    assert host.installed().startswith("venv ")
    assert not (host.place / "ready").exists()
