"""Shared fixtures: where the real data lies, and a cache of compiled programs for the whole session."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Many tests compile the same step. Set before the first import of JAX, and inherited by the processes tests start.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real texts, vocabularies and vectors beside the checkout; tests that need it skip without it."""
    place = ROOT.parent / "shared" / "data"
    if not place.is_dir():
        pytest.skip("the real data (../shared/data) is not beside this checkout")
    return place
