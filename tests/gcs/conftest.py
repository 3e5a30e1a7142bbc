"""The inputs of a run on object storage, and an equal run on the local disk that nothing disturbs."""

import pathlib

import pytest

from tests.gcs.bucket import Bucket, served
from tests.helpers.commands import World, make_world

STEPS = "--config.train.steps=6"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory."""
    for item in items:
        if "gcs" in item.path.parts:
            item.add_marker(pytest.mark.gcs)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Texts, tokenizer, corpus, recipe, and a run of 6 steps on the local disk."""
    return make_world(tmp_path_factory.mktemp("world"), STEPS)


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket, and an empty cache of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("bert_jax.training.remote_workdir._open", [])
    with served() as bucket:
        yield bucket
