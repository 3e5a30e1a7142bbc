"""launch/local.sh with a stand-in for bert-jax that prints its arguments."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.launch.cloud import HERE, ROOT, wait_for

LOCAL = ROOT / "launch" / "local.sh"
PEER = """#!/usr/bin/env bash
# One of several bert-jax processes: prints its arguments, waits while the file `wait` exists, exits with its status.
set -u
while (($# > 1)); do
    [[ $1 != --process_id ]] || id=$2
    [[ $1 != --coordinator ]] || echo "$2" >"$STANDIN_SCRIPT/coordinator-$$"
    shift
done
echo "process $id: GPU ${CUDA_VISIBLE_DEVICES-none}, ${XLA_FLAGS-}"
trap 'echo "process $id: TERM"; exit 0' TERM
trap 'echo "process $id: INT"; exit 0' INT
touch "$STANDIN_SCRIPT/up-$id"
while [[ -e $STANDIN_SCRIPT/wait ]]; do sleep 0.02; done
statuses=($STATUSES)
exit "${statuses[id]}"
"""


@pytest.fixture
def peers(tmp_path):
    """start(arguments...) -> the process of local.sh; `statuses` are the exit statuses of its processes."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "bert-jax").write_text(PEER)
    (tmp_path / "bin" / "bert-jax").chmod(0o755)

    def start(*argv: str, statuses: str = "0 0 0 0", **env: str) -> subprocess.Popen:
        path = f"{tmp_path / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        made = os.environ | {"PATH": path, "STANDIN_SCRIPT": str(tmp_path), "STATUSES": statuses} | env
        made = {"JAX_PLATFORMS": "cpu"} | made
        pipe = subprocess.PIPE
        return subprocess.Popen([LOCAL, *argv], env=made, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    return start


def ended(process: subprocess.Popen) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, sorted(out.splitlines()), err


def test_one_run_of_several_processes(peers, tmp_path) -> None:
    status, out, err = ended(peers("--cpu_devices", "2", "3", "--workdir", "w"))
    assert (status, err) == (0, "")
    flags = "--xla_force_host_platform_device_count=2"
    assert [line.split(", ")[0] for line in out] == [
        "[1] process 1: GPU none",
        "[2] process 2: GPU none",
        "process 0: GPU none",
    ]
    assert all(line.endswith(flags) for line in out)
    (coordinator,) = {path.read_text() for path in tmp_path.glob("coordinator-*")}
    assert coordinator.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ("0 0 0", 0),
        ("2 2 2", 2),
        ("124 124 1", 1),  # one crashed, the others missed it
        ("124 0 124", 124),
        ("0 134 124", 134),
        ("3 4 5", 3),
    ],
)
def test_the_exit_status_comes_from_the_failed_process(peers, statuses, expected) -> None:
    status, _, _ = ended(peers("3", statuses=statuses))
    assert status == expected


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "TERM"), (signal.SIGINT, "INT"), (signal.SIGHUP, "TERM")]
)
def test_signals_reach_every_process_once(peers, tmp_path, number, name) -> None:
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the signal is ignored, as under nohup, and a shell cannot trap it")
    (tmp_path / "wait").touch()
    process = peers("2")
    wait_for(lambda: len(list(tmp_path.glob("up-*"))) == 2)
    os.killpg(process.pid, number)  # as a terminal's Ctrl-C, which goes to the whole group
    status, out, _ = ended(process)
    assert status == 0
    assert [line for line in out if line.endswith(name)] == [f"[1] process 1: {name}", f"process 0: {name}"]


def test_nothing_is_killed_when_one_process_dies(peers, tmp_path) -> None:
    (tmp_path / "wait").touch()
    process = peers("2", statuses="124 0")
    wait_for(lambda: len(list(tmp_path.glob("up-*"))) == 2)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    commands = {int(pid): pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
    (victim,) = [pid for pid, words in commands.items() if b"--process_id" in words and words[-2] == b"1"]
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    (tmp_path / "wait").unlink()
    status, _, _ = ended(process)
    assert status == 137


def test_a_gpu_for_each_process(peers, tmp_path) -> None:
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/usr/bin/env bash\nprintf '%s\\n' 0 1\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    _, out, _ = ended(peers("2", JAX_PLATFORMS=""))
    assert [line.split(",")[0] for line in out] == ["[1] process 1: GPU 1", "process 0: GPU 0"]
    _, out, _ = ended(peers("2", JAX_PLATFORMS="", CUDA_VISIBLE_DEVICES="5,7"))
    assert [line.split(",")[0] for line in out] == ["[1] process 1: GPU 7", "process 0: GPU 5"]
    status, out, err = ended(peers("3", JAX_PLATFORMS=""))
    assert (status, out) == (2, [])
    assert "3 processes need as many GPUs, but there are 2" in err
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/usr/bin/env bash\necho No devices were found\nexit 6\n")
    status, out, err = ended(peers("2", JAX_PLATFORMS=""))  # as in an image for GPUs on a machine without them
    assert (status, err) == (0, "")
    assert [line.split(",")[0] for line in out] == ["[1] process 1: GPU none", "process 0: GPU none"]


@pytest.mark.parametrize("argv", [[], ["--workdir"], ["0"], ["two"], ["$(touch canary)"], ["--cpu_devices", "x", "2"]])
def test_mistakes_on_the_command_line(peers, argv) -> None:
    status, out, err = ended(peers(*argv))
    assert (status, out) == (2, [])
    assert err.startswith("local.sh: ")


def test_arguments_arrive_byte_for_byte(peers, tmp_path) -> None:
    trainer = (HERE / "trainer.py").read_text()
    (tmp_path / "bin" / "bert-jax").write_text(trainer)
    hostile = ["a 'b' \"c\"", "$(touch canary)", "; touch canary", "two\nlines", ""]
    status, _, _ = ended(peers("2", "--workdir", str(tmp_path / "a $(run)"), *hostile))
    assert status == 0
    for line in (tmp_path / "argv.jsonl").read_text().splitlines():
        _, *argv = json.loads(line)
        assert argv[: 3 + len(hostile)] == ["pretrain", "--workdir", str(tmp_path / "a $(run)"), *hostile]
    assert not list(tmp_path.rglob("canary*"))
