"""Shared fixtures: where the real data lies."""

import pathlib

import pytest


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real texts, vocabularies and vectors beside the checkout; tests that need it skip without it."""
    place = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    if not place.is_dir():
        pytest.skip("the real data (../shared/data) is not beside this checkout")
    return place
