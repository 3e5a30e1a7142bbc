"""CPU seconds of each test, which do not depend on what else the machine does.

    CPU_SECONDS=cpu.jsonl python -m pytest -p tests.helpers.cpu_seconds -n 2 --dist loadfile --no-loadscope-reorder
    python -m tests.helpers.cpu_seconds cpu.jsonl

A line of the file is [test, seconds of the process, seconds of the processes that it waited for]. The first test of a
file pays for the fixtures of the file, and the first test of a worker for its imports. The second command prints the
sum of each file, the costly tests and the total.
"""

import collections
import json
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

COLLECTION = "collection"


def _used() -> tuple[float, float]:
    """Return the CPU seconds of this process, and of the processes that it waited for."""
    times = os.times()
    return times.user + times.system, times.children_user + times.children_system


def _append(name: str, seconds: tuple[float, float]) -> None:
    with open(os.environ["CPU_SECONDS"], "a") as file:
        file.write(json.dumps([name, *(round(number, 3) for number in seconds)]) + "\n")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record the imports and the collection of each worker."""
    _append(COLLECTION, _used())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record a test with its fixtures."""
    before = _used()
    try:
        return (yield)
    finally:
        after = _used()
        _append(item.nodeid, (after[0] - before[0], after[1] - before[1]))


def main(path: str, num_files: int = 40, num_tests: int = 40) -> None:
    """Print the files and the tests that cost most."""
    tests: list[tuple[float, str]] = []
    files = collections.Counter[str]()
    for line in pathlib.Path(path).read_text().splitlines():
        name, own, children = json.loads(line)
        files[name.partition("::")[0]] += own + children
        tests.append((own + children, name))
    for name, seconds in files.most_common(num_files):
        print(f"{seconds:8.1f}  {name}")
    for seconds, name in sorted(tests, reverse=True)[:num_tests]:
        print(f"{seconds:8.1f}  {name}")
    print(f"{files.total():8.1f}  all {len(tests):,} lines")


if __name__ == "__main__":
    main(sys.argv[1])
