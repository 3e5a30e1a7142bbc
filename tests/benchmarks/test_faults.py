"""The suite of faults counts its own processes, a failed process is no success, and goodput follows its definition."""

import importlib.util
import subprocess
import sys

from benchmarks.faults.__main__ import CLASSES, MODULES
from benchmarks.long_run import Life

CODE = """
import os
from benchmarks.faults.__main__ import in_processes

def work(number):
    if number == 1:
        raise ValueError("planted")
    if number == 2:
        os.kill(os.getpid(), 9)

print(in_processes(4, work))
"""


def test_modules_and_classes_of_the_suite_exist() -> None:
    names = [f"bert_jax.{name}" for name in MODULES] + [f"benchmarks.faults.{row.module}" for row in CLASSES.values()]
    assert not [name for name in names if importlib.util.find_spec(name) is None]


def test_processes_that_fail_are_counted_and_their_tracebacks_printed() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ended.stdout == "2\n"
    assert ended.stderr.count("ValueError: planted") == 1


def test_goodput_is_the_fraction_of_a_life_in_steps_that_count() -> None:
    """100 s: 8 s until the first step begins, 46 steps of 2 s, of which a checkpoint has 40."""
    life = Life(100.0, 500, tuple((8.0 + 2.0 * number, 500 + number) for number in range(1, 47)))
    assert (life.restart, life.step_seconds) == (8.0, 2.0)
    assert (life.lost(540), life.goodput(540)) == (12.0, 0.8)
