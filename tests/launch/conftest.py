"""A stand-in for Google Cloud, for the tests of launch/tpu_pod.sh."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest

from tests.launch.cloud import HERE, Cloud


@pytest.fixture
def cloud(tmp_path: pathlib.Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, HERE / "trainer.py")
    yield made
    made.kill_started()  # what a failed test may have left behind
    for host in range(2):
        with contextlib.suppress(OSError, ValueError):
            made.kill(host)
