"""launch/demo.sh with a stand-in for bert-jax: the directory that it writes into."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from tests.launch.cloud import ROOT, alive, wait_for

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


def test_ctrl_c_also_ends_the_training_in_the_background(tmp_path: pathlib.Path) -> None:
    """Before bert-jax has a handler of its own: bash starts a command in the background with SIGINT ignored.

    The command in the foreground handles Ctrl-C and ends with status 0, as a `sleep` at its end may: bash takes that
    for a Ctrl-C that was meant for the command alone, unless the script has a trap.
    """
    # The demo sleeps where it waits for the training. The training lasts longer than the test waits.
    sleep = shutil.which("sleep")
    for name, script in {
        "bert-jax": f"[[ $1 != pretrain ]] || {{ echo $$ >'{tmp_path}/pid'; exec '{sleep}' 600; }}",
        "sleep": f"trap '' INT; touch '{tmp_path}/waiting'; exec '{sleep}' \"$@\"",
    }.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    argv = [ROOT / "launch" / "demo.sh", tmp_path / "demo"]
    pid = tmp_path / "pid"
    with subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            wait_for(lambda: pid.exists() and pid.read_text().endswith("\n") and (tmp_path / "waiting").exists())
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 130
            wait_for(lambda: not alive(int(pid.read_text())), 20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(int(pid.read_text()), signal.SIGKILL)
