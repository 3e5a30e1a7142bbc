"""Failures of a single write, sync or rename: a full disk, an input/output error, or half a write."""

import errno
import json
import pathlib
import random

from benchmarks.faults.outcome import DETECTED, SILENT, SURVIVED, TRACEBACK, Outcome, broken, same_result
from benchmarks.faults.stops import WEIGHTS
from benchmarks.faults.world import VERBS, Fault, World, start

FAULTS = {
    "full disk from write": (0, errno.ENOSPC),
    "error of write": (0, errno.EIO),
    "half of write": (0, 0),
    "error of fsync": (1, errno.EIO),
    "full disk from rename": (2, errno.ENOSPC),
    "error of rename": (2, errno.EIO),
}


def counts_of(world: World, name: str, scratch: pathlib.Path) -> list[int]:
    """Return the numbers of writes, syncs and renames of an undisturbed verb."""
    start(VERBS[name].command(world, scratch / "out"), scratch, Fault(-1, 0, 0)).wait()
    return list(json.loads((scratch / "counts").read_text()))


def failing(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Run a verb in which an operation fails: the verb must succeed or end with a message, and succeed if repeated."""
    counts = json.loads((world.directory / "counts.json").read_text())
    fault = rng.choice(list(FAULTS))
    (name,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
    operation, kind = FAULTS[fault]
    if not counts[name][operation]:
        return failing(rng, world, scratch)
    nth = rng.randint(1, counts[name][operation])
    verb, output, harm = VERBS[name], scratch / "out", f"{name}: {fault} {nth} of {counts[name][operation]}"
    argv = verb.command(world, output)
    first = start(argv, scratch, Fault(operation, nth, kind)).wait()
    if outcome := broken(first, harm):
        return outcome
    if first.status == 0 and not same_result(verb, world, output):
        return Outcome(SILENT, harm, first.text)
    if first.status != 0 and (verb.resumes or not output.exists()):
        again = start(argv, scratch).wait()
        if again.status != 0:
            return broken(again, harm) or Outcome(TRACEBACK, harm, f"cannot be started again: {again.text}")
    if not same_result(verb, world, output):
        return Outcome(SILENT, harm, first.text)
    return Outcome(DETECTED if first.status else SURVIVED, harm)
