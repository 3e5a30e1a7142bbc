"""Faults in time: signals at random moments, clocks that jump, and runs that resume on another mesh."""

import json
import pathlib
import random
import signal
import time
from collections.abc import Callable

from benchmarks.faults.outcome import (
    DETECTED,
    HUNG,
    MESSAGES,
    SILENT,
    SURVIVED,
    TRACEBACK,
    Outcome,
    broken,
    same_result,
)
from benchmarks.faults.world import STEPS, VERBS, Ended, World, pretrain, run_of, start

MOST_STOPS = 3
STOP_SECONDS = 5.0  # seconds within which Ctrl-C must end a verb
WEIGHTS = {"tokenizer": 3, "prepare": 3, "pretrain": 3, "export": 2, "finetune": 1}  # finetune takes longest
TOLERANCE = 1e-4  # relative difference of a loss that is summed in another order


def stopped(signum: signal.Signals, rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Send a verb a signal up to three times and start it again: its result must equal the undisturbed result."""
    (name,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    verb, output, harm = VERBS[name], scratch / "out", f"{signum.name} {name}"
    argv = verb.command(world, output)
    for _ in range(rng.randint(1, MOST_STOPS)):
        process = start(argv, scratch)
        time.sleep(rng.uniform(0, seconds_of(world, name)))
        sent = time.monotonic()
        process.signal(signum)
        ended = process.wait()
        late = signum == signal.SIGKILL and ended.status == 0
        harm += f" {'too late at' if late else 'after'} {sent - process.began:.2f} s"
        if outcome := _badly(ended, signum, name, time.monotonic() - sent, harm):
            return outcome
        if output.exists() and not verb.resumes:  # a signal after the final rename was also too late
            break
    if verb.resumes or not output.exists():
        ended = start(argv, scratch).wait()
        if ended.status != 0:
            return broken(ended, harm) or Outcome(TRACEBACK, harm, f"cannot be started again: {ended.text}")
    return Outcome(SURVIVED if same_result(verb, world, output) else SILENT, harm, ended.text)


def _badly(ended: Ended, signum: signal.Signals, name: str, seconds: float, harm: str) -> Outcome | None:
    """Return the outcome if a signal did not end a verb as it should, else None."""
    if signum == signal.SIGINT:
        if seconds > STOP_SECONDS and ended.status == 130:
            return Outcome(HUNG, f"{harm}: {seconds:.1f} s until it ended")
        return broken(ended, harm)
    if ended.status in (-signum, 0):
        return None
    return broken(ended, harm) or Outcome(TRACEBACK, f"{harm}: status {ended.status}", ended.text)


def seconds_of(world: World, name: str) -> float:
    """Return 1.1 times the seconds that a verb takes on this machine without a fault."""
    return 1.1 * float(json.loads((world.directory / "seconds.json").read_text())[name])


def killed(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Stop a verb by SIGKILL."""
    return stopped(signal.SIGKILL, rng, world, scratch)


def terminated(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Stop a verb by SIGTERM."""
    return stopped(signal.SIGTERM, rng, world, scratch)


def interrupted(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Stop a verb by Ctrl-C."""
    return stopped(signal.SIGINT, rng, world, scratch)


JUMPS = (-3e7, -3_600.0, -1.0, 0.0, 1.0, 3_600.0, 3e7)  # seconds, a year at most


def other_clock(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Kill a run and resume it; each of the two processes has a clock that is wrong and jumps once."""
    output, harm, ended = scratch / "out", "", None
    for last in (False, True):
        wrong, jump, after = rng.choice(JUMPS), rng.choice(JUMPS), rng.uniform(0, seconds_of(world, "pretrain"))
        harm += f"{' then ' * last}{wrong:g} s, {jump:g} s more after {after:.1f} s"
        process = start(pretrain(world, output), scratch, clock=_jumping(wrong, jump, after))
        if not last:
            time.sleep(rng.uniform(0.5, 1) * seconds_of(world, "pretrain"))
            process.signal(signal.SIGKILL)
        ended = process.wait()
        if ended.status != -signal.SIGKILL and (outcome := broken(ended, harm)):
            return outcome
        refused = ended.status in MESSAGES  # for example, a jump of a year exceeds Orbax's time limit of a save
        if refused:
            ended = start(pretrain(world, output), scratch).wait()
    same = same_result(VERBS["pretrain"], world, output)
    return Outcome((DETECTED if refused else SURVIVED) if same else SILENT, harm, ended.text if ended else "")


def _jumping(wrong: float, jump: float, after: float) -> Callable[[], float]:
    """Return a `time.time` that is wrong by `wrong` seconds, and in `after` seconds jumps by `jump` seconds."""
    right, began = time.time, time.monotonic()
    return lambda: right() + wrong + (jump if time.monotonic() - began > after else 0.0)


MESHES = ((1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (4, 1, 1))  # data, fsdp, tensor


def other_mesh(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Stop a run within an epoch by SIGTERM, and finish the run on another mesh of virtual devices."""
    harm, output, ended = "", scratch / "out", None
    for last in (False, True):
        sizes = rng.choice(MESHES)
        harm += f"{' then ' * last}{'x'.join(map(str, sizes))}"
        mesh = [f"--config.mesh.{axis}={size}" for axis, size in zip(("data", "fsdp", "tensor"), sizes, strict=True)]
        flags = f"--xla_force_host_platform_device_count={sizes[0] * sizes[1] * sizes[2]}"
        process = start(pretrain(world, output, *mesh), scratch, XLA_FLAGS=flags, NPROC="64")
        if not last:
            time.sleep(rng.uniform(0.3, 1.5) * seconds_of(world, "pretrain"))
            process.signal(signal.SIGTERM)
        ended = process.wait()
        if ended.status not in (0, -signal.SIGTERM):
            return broken(ended, harm) or Outcome(TRACEBACK, harm, ended.text)
    return Outcome(SURVIVED if close_to_right(world, output) else SILENT, harm, ended.text if ended else "")


def close_to_right(world: World, output: pathlib.Path) -> bool:
    """Return whether a run ended at the last step with the undisturbed losses, up to rounding by the order of sums."""
    actual, expected = run_of(output), run_of(world.run)
    pairs = list(zip(actual["metrics"], expected["metrics"], strict=True))
    near = all(abs(a["loss"] - b["loss"]) <= TOLERANCE * b["loss"] and a["step"] == b["step"] for a, b in pairs)
    return bool(actual["step"] == STEPS and near)
