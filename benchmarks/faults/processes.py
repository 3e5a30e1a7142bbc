"""Faults of runs with several processes: a process is lost or slow, or another number of processes resumes the run."""

import pathlib
import random
import re
import signal
import socket
import time
from collections.abc import Sequence

from benchmarks.faults.outcome import DETECTED, HUNG, SILENT, SURVIVED, TRACEBACK, Outcome, broken
from benchmarks.faults.stops import close_to_right, seconds_of
from benchmarks.faults.world import SECONDS, Ended, Running, World, pretrain, start

FOUR = 4
COUNTS = (1, 2, 4)
LIMIT = 30  # seconds of each stage, after which a stopped process counts as lost
# Stage of process 0 -> beginning of the line that is printed right before the stage; "": the stage begins at once.
STAGES = {"start": "", "compile": "compiling the step", "step": "step 2/", "evaluate": "step 6/", "save": "step 4/"}


def lost(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Kill or stop one of four processes in a stage; three processes must name it and end; then four resume the run."""
    signum, victim, stage = rng.choice((signal.SIGKILL, signal.SIGSTOP)), rng.randrange(FOUR), rng.choice(list(STAGES))
    output, harm = scratch / "out", f"{signum.name} to process {victim} of {FOUR}, {stage}"
    limits = [f"--config.watchdog.{name}_seconds={LIMIT}" for name in ("start", "compile", "step", "save")]
    processes = _several(world, output, scratch, FOUR, *limits)
    _wait_for(processes[0], STAGES[stage])
    time.sleep(rng.uniform(0, 0.1) * seconds_of(world, "pretrain"))
    processes[victim].signal(signum)
    others = [process for process in processes if process is not processes[victim]]
    ends = [process.wait() for process in others]
    processes[victim].signal(signal.SIGKILL)
    processes[victim].wait()
    for ended in ends:
        if ended.status != 0 and (outcome := broken(ended, harm)):
            return outcome
    detected = any(ended.status for ended in ends)
    if detected and not any(f"process {victim}" in ended.text for ended in ends):
        harm += ", not named"
    if outcome := _unfinished(_wait(_several(world, output, scratch, FOUR)), harm):
        return outcome
    return Outcome((DETECTED if detected else SURVIVED) if close_to_right(world, output) else SILENT, harm)


def slow(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Pause one of two processes repeatedly, for seconds each: the watchdog must not count this process as lost."""
    victim, output, pauses = rng.randrange(2), scratch / "out", 0
    processes = _several(world, output, scratch, 2)
    end = time.monotonic() + SECONDS / 2
    while processes[victim].is_running() and time.monotonic() < end:
        for signum, seconds in ((signal.SIGSTOP, rng.uniform(0.2, 5)), (signal.SIGCONT, rng.uniform(0.2, 2))):
            processes[victim].signal(signum)
            time.sleep(seconds)
        pauses += 1
    ends = _wait(processes)
    harm = f"process {victim} of 2 stopped for a moment, {pauses} times"
    if ended := _unfinished(ends, harm):
        return Outcome(HUNG, f"{harm}: false alarm", ended.text)
    return Outcome(SURVIVED if close_to_right(world, output) else SILENT, harm)


def other_count(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Stop a run within an epoch by SIGTERM to one of its processes, and finish it with another number of processes."""
    first, second = rng.sample(COUNTS, 2)
    output, harm = scratch / "out", f"{first} then {second} processes"
    processes = _several(world, output, scratch, first)
    _wait_for(processes[0], f"step {rng.randint(1, 9)}/")
    rng.choice(processes).signal(signal.SIGTERM)
    for ends in (_wait(processes), _wait(_several(world, output, scratch, second))):
        if outcome := _unfinished(ends, harm):
            return outcome
    return Outcome(SURVIVED if close_to_right(world, output) else SILENT, harm)


def _several(world: World, output: pathlib.Path, scratch: pathlib.Path, count: int, *overrides: str) -> list[Running]:
    argv = pretrain(world, output, *overrides)
    if count == 1:
        return [start(argv, scratch)]
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    argv += ["--coordinator", address, "--num_processes", str(count), "--process_id"]
    return [start([*argv, str(process)], scratch, NPROC="64") for process in range(count)]


def _wait_for(process: Running, line: str) -> None:
    """Wait until a process has printed a line with this beginning, or has ended."""
    while process.is_running() and not re.search(f"^{line}", process.log.read_text(errors="replace"), re.MULTILINE):
        time.sleep(0.01)


def _wait(processes: Sequence[Running]) -> list[Ended]:
    return [process.wait() for process in processes]


def _unfinished(ends: Sequence[Ended], harm: str) -> Outcome | None:
    """Return the outcome if a process did not end with status 0, else None."""
    for ended in ends:
        if ended.status != 0:
            return broken(ended, harm) or Outcome(TRACEBACK, harm, f"cannot end the run: {ended.text}")
    return None
