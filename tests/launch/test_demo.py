"""launch/demo.sh with a stand-in for bert-jax: the directory that it writes into."""

import os
import pathlib
import subprocess

import pytest

from tests.launch.cloud import ROOT

# Ends the demo at its first command, after the directory was checked and cleared.
STOP = "#!/usr/bin/env bash\nexit 9\n"


@pytest.fixture
def demo(tmp_path: pathlib.Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bert-jax").write_text(STOP)
    (tmp_path / "bin" / "bert-jax").chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def run(directory: pathlib.Path | str) -> subprocess.CompletedProcess[str]:
        argv = [ROOT / "launch" / "demo.sh", directory]
        return subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_it_replaces_an_earlier_demo(demo, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "a demo"
    assert demo(directory).returncode == 9
    (directory / "run").mkdir()
    assert demo(directory).returncode == 9
    assert not (directory / "run").exists()


def test_a_relative_directory_is_a_directory_of_the_caller(demo, tmp_path: pathlib.Path) -> None:
    assert demo("tried").returncode == 9
    assert (tmp_path / "tried").is_dir()


def test_it_fills_an_empty_directory(demo, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    assert demo(tmp_path / "empty").returncode == 9


def test_it_refuses_a_directory_with_other_files(demo, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "thesis"
    directory.mkdir()
    (directory / "chapter1.tex").write_text("years of work")
    done = demo(directory)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("choose another directory: launch/demo.sh DIR")
    assert not done.stdout
    assert (directory / "chapter1.tex").read_text() == "years of work"
    done = demo(directory / "chapter1.tex")
    assert done.returncode == 2
    assert (directory / "chapter1.tex").read_text() == "years of work"
