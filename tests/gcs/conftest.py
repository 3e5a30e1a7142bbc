"""What a run on object storage starts from, and the same run on the local disk, undisturbed."""

import pathlib

import pytest

from bert_jax.cli.main import main
from tests.cli.commands import RECIPE, World, prepare_command, pretrain_command, prose
from tests.gcs.bucket import Bucket, served

STEPS = "--config.train.steps=6"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this directory."""
    for item in items:
        if "gcs" in item.path.parts:
            item.add_marker(pytest.mark.gcs)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Texts, tokenizer, corpus, recipe, and a run of 6 steps on the local disk."""
    place = tmp_path_factory.mktemp("world")
    made = World(*(place / name for name in ("texts", "tokenizer", "corpus", "recipe.py", "run", "model")))
    made.texts.mkdir()
    for number in range(40):
        (made.texts / f"{number:02}.txt").write_text(prose(number, 20))
    made.recipe.write_text(RECIPE)
    assert main(["tokenizer", "--input", str(made.texts), "--vocab_size", "200", "--output", str(made.tokenizer)]) == 0
    assert main(prepare_command(made, made.corpus, "--heldout_fraction", "0.2")) == 0
    assert main(pretrain_command(made, made.run, STEPS)) == 0
    return made


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket, and an empty cache of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("bert_jax.training.saving.mirror._open", [])
    with served() as bucket:
        yield bucket
