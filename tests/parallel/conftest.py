"""Programs of several devices or processes get every core, not the worker's share of them (tests/conftest.py)."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def every_core() -> Iterator[None]:
    """On one core a process that waits for others keeps them from their turn, and large programs compile slowly."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    yield
    os.sched_setaffinity(0, own)
