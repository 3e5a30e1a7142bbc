"""launch/tpu_worker.sh on a pretended host, without a cloud around it."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.launch.cloud import HERE, ROOT


class Host:
    """A HOME, and storage that it shares with other hosts."""

    def __init__(self, place: pathlib.Path) -> None:
        self.home, self.workdir = place / "home", place / "shared" / "a 'run'; $(touch canary)"
        self.place = self.home / "bert_jax"
        self.place.mkdir(parents=True)
        for name in ("tpu_worker.sh", "pretrain.sh", "progress.py"):
            shutil.copy(ROOT / "launch" / name, self.place)
        path = f"{HERE / 'worker_bin'}:{pathlib.Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        self.env = {"HOME": str(self.home), "PATH": path, "HOST": "3", "TRAINER": str(HERE / "trainer.py")}
        self.env |= {"STANDIN_SCRIPT": str(place)}

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


def test_setup_installs_the_versions_that_the_run_began_with(host) -> None:
    host.call("setup", "bert-jax[tpu]", "", host.workdir)
    assert host.installed() == "pip install --quiet --python venv/bin/python -- bert-jax[tpu]"
    host.workdir.mkdir(parents=True)
    lock = host.workdir / "requirements.lock"
    lock.write_text("# versions\njax==0.10.2\nml-dtypes==0.6.0rc1\n")
    host.call("setup", "bert-jax[tpu]", "", host.workdir)
    assert host.installed().endswith(" --constraint requirements.lock -- bert-jax[tpu]")
    assert (host.place / "requirements.lock").read_text() == lock.read_text()  # uv splits longer paths at spaces
    host.env["STANDIN_PIP_FAILS"] = "1"
    out = host.call("setup", "bert-jax[tpu]", "", host.workdir, status=1)
    assert out == f"host-3: bert-jax was not installed; remove {lock} to install other versions\n"
    assert not list(host.home.parent.rglob("canary*"))


@pytest.mark.parametrize(
    "line", ["--index-url https://elsewhere.example", "jax @ https://elsewhere.example/jax.whl", "-r more", "jax==1 x"]
)
def test_a_lock_holds_versions_alone(host, line) -> None:
    host.workdir.mkdir(parents=True)
    (host.workdir / "requirements.lock").write_text(f"jax==0.10.2\n{line}\n")
    assert "requirements.lock: a line is not NAME==VERSION" in host.call(
        "setup", "bert-jax", "", host.workdir, status=1
    )
    assert host.installed().startswith("venv ")
    assert not (host.place / "ready").exists()
