"""Possible outcomes of a trial."""

import pathlib
import re
from typing import NamedTuple

from benchmarks.faults.world import Ended, Verb, World

SURVIVED, DETECTED, SILENT, TRACEBACK, HUNG = "survived", "detected", "silent", "traceback", "hung"
OUTCOMES = (SURVIVED, DETECTED, SILENT, TRACEBACK, HUNG)
FAILURES = (SILENT, TRACEBACK, HUNG)
MESSAGES = (2, 1, 124)  # exit statuses of a verb that ends with a message
# Messages of a verb that finds damage and continues without it.
NOTICES = re.compile(r"(?<!un)damaged|differs from")  # no undisturbed verb prints such a message


class Outcome(NamedTuple):
    """One of OUTCOMES, a description of the fault, and the messages of the process."""

    outcome: str
    harm: str
    text: str = ""


def broken(ended: Ended, harm: str) -> Outcome | None:
    """Return the outcome of a process that hung or ended in a traceback or by an unexpected status; else None."""
    if ended.status is None:
        return Outcome(HUNG, harm, ended.text)
    if "Traceback (most recent" in ended.text or ended.status not in (0, 130, *MESSAGES):
        return Outcome(TRACEBACK, harm, f"{ended.text}\nstatus {ended.status}")
    return None


def compared(ended: Ended, harm: str, same: bool) -> Outcome:
    """Return the outcome of a process; `same` is True if the result equals the undisturbed result."""
    if outcome := broken(ended, harm):
        return outcome
    if ended.status != 0:
        return Outcome(DETECTED, harm)
    if same:
        return Outcome(SURVIVED, harm)
    return Outcome(DETECTED if NOTICES.search(ended.text) else SILENT, harm, ended.text)


def same_result(verb: Verb, world: World, output: pathlib.Path) -> bool:
    """Return whether a verb's result equals its undisturbed result."""
    try:
        return verb.result(output) == verb.result(getattr(world, verb.output))
    except (OSError, ValueError, KeyError, IndexError, RuntimeError):  # the verb has no readable result
        return False
