"""Several processes on one machine against one: losses, sequences, elastic resume, preemption, lost processes."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from bert_jax.training.metrics import read_metrics
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.mesh_run import STEPS

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIALS = int(os.environ.get("BERT_JAX_SIGTERM_TRIALS", "50"))


def environment(devices: int) -> dict[str, str]:
    # NPROC sizes XLA's thread pool (test_meshes.py).
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}


def free_address() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


class Processes:
    """Several processes of one command, each with its output in a file."""

    def __init__(self, commands: dict[int, list[str]], place: pathlib.Path, devices: int = 2) -> None:
        self.logs = {number: place / f"{time.monotonic_ns()}.{number}.log" for number in commands}
        self.processes = {}
        for number, command in commands.items():
            with open(self.logs[number], "w") as log:
                self.processes[number] = subprocess.Popen(
                    command, cwd=ROOT, env=environment(devices), stdout=log, stderr=subprocess.STDOUT
                )

    def said(self, number: int = 0) -> str:
        """Output of a process, its numbers without commas."""
        return re.sub(r"(?<=\d),(?=\d{3})", "", self.logs[number].read_text())

    def until(self, pattern: str) -> None:
        """Wait until process 0 prints the pattern, or a process ends."""
        while not re.search(pattern, self.said()) and all(p.poll() is None for p in self.processes.values()):
            time.sleep(0.02)

    def until_step(self, step: int) -> None:
        reached = rf"^step ({step}|{step + 1}|{step + 2}|{step + 3})/"
        self.until(f"(?m){reached}")

    def statuses(self, but: int | None = None) -> dict[int, int]:
        """Exit status of each process, after all have ended."""
        try:
            return {number: p.wait(240) for number, p in self.processes.items() if number != but}
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    def all_said(self) -> str:
        return "\n".join(f"--- {number}\n{self.said(number)[-3000:]}" for number in self.processes)


# The loop itself.


def fit(workdir: pathlib.Path, runs: dict[str, dict], processes: int, devices: int = 2) -> Processes:
    address = free_address()
    command = [
        sys.executable,
        "tests/helpers/distributed_run.py",
        str(workdir),
        json.dumps(runs),
        address,
        str(processes),
    ]
    started = Processes({number: [*command, str(number)] for number in range(processes)}, workdir, devices)
    statuses = started.statuses()
    assert set(statuses.values()) == {0}, started.all_said()
    return started


def losses(workdir: pathlib.Path, name: str) -> list[float]:
    lines = read_metrics(workdir / name / "metrics.jsonl")
    assert [line["step"] for line in lines if line["split"] == "train"] == list(range(1, len(lines) - 1))
    assert [line["step"] for line in lines if line["split"] == "heldout"] == [6, STEPS]
    return [line["loss"] for line in lines]


def sequences(workdir: pathlib.Path, name: str, processes: int) -> list[dict[str, list[int]]]:
    """The sequences that each process made for each step."""
    return [json.loads((workdir / f"{name}.sequences.{processes}.{i}.json").read_text()) for i in range(processes)]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("distributed")
    everywhere = {"mesh": [-1, 1, 1]}
    fit(place, {"one": everywhere}, 1)
    # The tensor axis of the first run spans two processes; the second run is stopped.
    fit(place, {"tensor": {"mesh": [1, 2, 4]}, "elastic": everywhere | {"stop_at": 2}}, 4)
    return place


@pytest.mark.slow
def test_four_processes_train_like_one_process(workdir: pathlib.Path) -> None:
    assert losses(workdir, "tensor") == pytest.approx(losses(workdir, "one"), rel=0, abs=1e-5)


def check_sequences(workdir: pathlib.Path, name: str, processes: int, parts: int) -> None:
    """Each process made its part of each batch, in `parts` parts, and nothing else."""
    made = sequences(workdir, name, processes)
    for step in range(STEPS):
        whole = list(range(step * 16, step * 16 + 16))
        slices = [part[str(step)] for part in made]
        assert slices == [whole[16 // parts * k :][: 16 // parts] for k in np.arange(processes) * parts // processes]


@pytest.mark.slow
def test_each_process_makes_its_own_sequences(workdir: pathlib.Path) -> None:
    check_sequences(workdir, "tensor", 4, 2)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_data_parallel_processes_train_like_one_process(workdir: pathlib.Path, processes: int) -> None:
    name = f"data over {processes}"
    fit(workdir, {name: {"mesh": [-1, 1, 1]}}, processes)
    assert losses(workdir, name) == pytest.approx(losses(workdir, "one"), rel=0, abs=1e-5)
    check_sequences(workdir, name, processes, processes)


@pytest.mark.slow
def test_four_processes_resume_as_one_and_as_two(workdir: pathlib.Path) -> None:
    """SIGTERM in the last process stops all of them; the last resumed run reaches the end."""
    first = newest(workdir / "elastic")
    assert 2 <= first <= 5
    one = fit(workdir, {"elastic": {"mesh": [1, 2, 1], "stop_at": 7}}, 1)
    assert f"resuming at step {first} " in one.said()
    second = newest(workdir / "elastic")
    two = fit(workdir, {"elastic": {"mesh": [-1, 1, 1]}}, 2)
    assert f"resuming at step {second} " in two.said()
    assert losses(workdir, "elastic") == pytest.approx(losses(workdir, "one"), rel=1e-5)
    assert min(sequences(workdir, "elastic", 2)[0], key=int) == str(second)
    assert min(sequences(workdir, "elastic", 1)[0], key=int) == str(first)


@pytest.mark.slow
def test_eight_devices_resume_as_one_two_and_four(workdir: pathlib.Path) -> None:
    fit(workdir, {"eight": {"mesh": [2, 2, 2], "stop_at": 6}}, 1, devices=8)
    assert newest(workdir / "eight") == 6
    for devices, mesh in ((1, [1, 1, 1]), (2, [1, 1, 2]), (4, [1, 4, 1])):
        shutil.copytree(workdir / "eight", workdir / f"on {devices}")
        resumed = fit(workdir, {f"on {devices}": {"mesh": mesh}}, 1, devices)
        assert "resuming at step 6 " in resumed.said()
        assert losses(workdir, f"on {devices}") == pytest.approx(losses(workdir, "one"), rel=1e-5)


def newest(workdir: pathlib.Path) -> int:
    return max(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())


# The command line.

RECIPE = """
from bert_jax.config import phases, pretrain_config

def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=1, num_heads=2, mlp_size=32, max_positions=16)
    config.data.corpus = {corpus!r}
    config.train.update(steps=100000, batch_size=24, log_every=1)
    config.train.phases = phases({{"seq_len": 16}})
    config.evaluate.update(every=50, num_sequences=240, batch_size=24)
    config.checkpoint.update(every=None, keep=2)
    config.watchdog.update(start_seconds=90, compile_seconds=200, step_seconds=8, save_seconds=90)
    return config
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("recipe")
    path = place / "recipe.py"
    path.write_text(RECIPE.format(corpus=str(generated_corpus(place))))
    return path


def pretrain(
    recipe: pathlib.Path,
    workdir: pathlib.Path,
    count: int,
    absent: int | None = None,
    all_get: str = "",
    one_gets: str = "",
) -> Processes:
    """`pretrain` in `count` processes without the absent one; an override for all, and one only for process 1."""
    command = [sys.executable, "-m", "bert_jax", "pretrain", f"--config={recipe}", f"--workdir={workdir}"]
    command += ["--coordinator", free_address(), "--num_processes", str(count), *filter(None, [all_get])]
    commands = {number: [*command, "--process_id", str(number)] for number in range(count) if number != absent}
    if one_gets:
        commands[1].append(one_gets)
    return Processes(commands, recipe.parent)


def terminate(recipe: pathlib.Path, workdir: pathlib.Path, count: int, trial: int, saved: int) -> tuple[int, float]:
    """Send SIGTERM to one of `count` processes; return the saved step and the seconds until all ended."""
    rng = np.random.default_rng(trial)
    victim, moment = rng.integers(count), trial % 5
    run = pretrain(recipe, workdir, count, all_get="--config.profile.steps=0:1")
    if moment == 4:
        run.until("model 1 layers")  # before the loop
    else:
        run.until_step(saved + int(rng.integers(1, 60)))
    time.sleep(rng.uniform(0, 0.5))
    said = re.findall(r"(?m)^step (\d+)/", run.said())
    run.processes[victim].send_signal(signal.SIGTERM)
    began = time.monotonic()
    statuses = run.statuses()
    seconds = time.monotonic() - began
    assert set(statuses.values()) == {0}, run.all_said()
    stopped = re.search(r"SIGTERM: stopped (?:after step (\d+)|before the first step)", run.said())
    assert stopped, run.all_said()
    step = int(stopped[1] or saved)
    assert step >= int(said[-1]) if said else step >= saved
    if step:
        assert newest(workdir) == step
    if saved and said:
        assert f"resuming at step {saved} " in run.said()
    print(f"trial {trial}: process {victim} of {count}, saved step {step}, all ended after {seconds:.1f} s")
    return step, seconds


def terminate_often(recipe: pathlib.Path, workdir: pathlib.Path, count: int, trials: range) -> None:
    saved, times = 0, []
    for trial in trials:
        saved, seconds = terminate(recipe, workdir, count, trial, saved)
        times.append(seconds)
    print(
        f"{len(times)} trials: all saved the same step; ended after {np.median(times):.1f} s (at most {max(times):.1f})"
    )


def test_sigterm_to_one_stops_all(recipe: pathlib.Path, tmp_path: pathlib.Path) -> None:
    terminate_often(recipe, tmp_path / "run", 2, range(3, 4))
    # The first run traces step 0: a file of each process, though both have the name of one host.
    traces = list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))
    assert sorted(path.relative_to(tmp_path).parts[2] for path in traces) == ["process_0", "process_1"]
    assert len({path.name for path in traces}) == 1


@pytest.mark.slow
def test_sigterm_to_one_stops_all_many_times(recipe: pathlib.Path, tmp_path: pathlib.Path) -> None:
    terminate_often(recipe, tmp_path / "run", 4, range(TRIALS))


@pytest.mark.slow
def test_two_processes_start_with_the_vectors_of_one_process(recipe: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Only the first process computes the vectors of the corpus."""
    text = recipe.read_text().replace("steps=100000", "steps=3")
    (tmp_path / "recipe.py").write_text(text.replace("    return", "    config.corpus_vectors = True\n    return"))
    found = []
    for count in (1, 2):
        run = pretrain(tmp_path / "recipe.py", tmp_path / f"{count}", count)
        assert set(run.statuses().values()) == {0}, run.all_said()
        found.append([line["loss"] for line in read_metrics(tmp_path / f"{count}" / "metrics.jsonl")])
    assert found[1] == pytest.approx(found[0], rel=0, abs=1e-5)


def kill(run: Processes, victim: int) -> None:
    run.until_step(10)
    run.processes[victim].send_signal(signal.SIGKILL)


def stop(run: Processes, victim: int) -> None:
    run.until_step(10)
    run.processes[victim].send_signal(signal.SIGSTOP)


@pytest.mark.parametrize(
    ("count", "victim", "harm", "message"),
    [
        (2, 1, kill, r"process 1 \(.+\) died; it was in its step \d+"),
        pytest.param(
            2,
            0,
            stop,
            r"process 0 \(.+\), the coordinator, has not answered for \d+ s; it was in its step \d+",
            marks=pytest.mark.slow,
        ),
        pytest.param(3, 0, kill, r"process 0 \(.+\), the coordinator, died", marks=pytest.mark.slow),
        pytest.param(3, 1, stop, r"process 1 \(.+\) has not answered for \d+ s", marks=pytest.mark.slow),
    ],
)
def test_the_others_name_a_lost_process(
    recipe: pathlib.Path,
    tmp_path: pathlib.Path,
    count: int,
    victim: int,
    harm: Callable[[Processes, int], None],
    message: str,
) -> None:
    run = pretrain(recipe, tmp_path / "run", count)
    harm(run, victim)
    assert set(run.statuses(but=victim).values()) == {124}, run.all_said()
    for other in set(range(count)) - {victim}:
        assert re.search(message, run.said(other)), run.all_said()


@pytest.mark.slow
@pytest.mark.parametrize(("absent", "name"), [(0, r"process 0 \(the coordinator, .+\)"), (1, "process 1 of 3")])
def test_the_others_name_a_process_that_never_started(
    recipe: pathlib.Path, tmp_path: pathlib.Path, absent: int, name: str
) -> None:
    run = pretrain(recipe, tmp_path / "run", 3, absent, all_get="--config.watchdog.start_seconds=5")
    assert set(run.statuses().values()) == {124}, run.all_said()
    for other in run.processes:
        assert re.search(f"{name} never started", run.said(other)), run.all_said()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_sigterm_ends_the_wait_for_a_missing_process(recipe: pathlib.Path, tmp_path: pathlib.Path, victim: int) -> None:
    run = pretrain(recipe, tmp_path / "run", 3, absent=2)
    port = run.processes[0].args[run.processes[0].args.index("--coordinator") + 1].rpartition(":")[2]
    connection = f"{int(port):04X} 0100007F:"  # from the side of process 0
    while not re.search(rf"{connection}(?!0000)", pathlib.Path("/proc/net/tcp").read_text()):
        time.sleep(0.05)
    run.processes[victim].send_signal(signal.SIGTERM)
    assert set(run.statuses().values()) == {0}, run.all_said()
    for number in run.processes:
        assert "SIGTERM: stopped before the first step; the same command starts" in run.said(number), run.all_said()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("one_gets", "message"),
    [
        pytest.param("--config.data.corpus=missing", "missing: no such corpus directory", marks=pytest.mark.slow),
        ("--config.seed=7", r"process 1 \(.+\) differs from process 0 \(.+\) \(config.seed: 0 -> 7\)"),
        pytest.param("--config.sed=7", "config has no key 'sed'", marks=pytest.mark.slow),
    ],
)
def test_a_mistake_in_one_process_ends_all(
    recipe: pathlib.Path, tmp_path: pathlib.Path, one_gets: str, message: str
) -> None:
    run = pretrain(recipe, tmp_path / "run", 2, one_gets=one_gets)
    assert set(run.statuses().values()) == {2}, run.all_said()
    for number in run.processes:
        assert re.search(message, run.said(number)), run.all_said()
        assert "Traceback" not in run.said(number)
