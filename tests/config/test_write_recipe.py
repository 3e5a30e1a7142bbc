"""A config written as a recipe is read back as the same config."""

import dataclasses
import pathlib

import pytest

from bert_jax import config as c
from bert_jax.config import FinetuneConfig, PretrainConfig, read_config
from bert_jax.config.load import config_class_of_recipe, recipes
from bert_jax.config.write_recipe import recipe_text, values_and_defaults

OVERRIDES = {
    PretrainConfig: ["--config.data.corpus=a 'b' \\ \"c\" \U0001f600", "--config.optimizer.clip_norm=None"],
    FinetuneConfig: ["--config.init_from=a\n'b'", "--config.task.learning_rates=(1e-05, 3e-05)"],
}


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_survives(name: str, tmp_path: pathlib.Path) -> None:
    kind = config_class_of_recipe(name)
    config = read_config(kind, name, OVERRIDES[kind])
    (tmp_path / "recipe.py").write_text(recipe_text(config), encoding="utf-8")
    written = read_config(kind, str(tmp_path / "recipe.py"), [])
    assert dataclasses.replace(written, recipe=config.recipe) == config  # a file of one's own is named in the config


def test_the_defaults_are_an_empty_recipe() -> None:
    assert recipe_text(PretrainConfig()) == (
        "from bert_jax.config import pretrain_config\n\n\ndef get_config():\n    config = pretrain_config()\n"
        "    return config\n"
    )


def test_values_that_differ_from_the_defaults_are_listed() -> None:
    made = c.pretrain_config()
    made.optimizer.peak_learning_rate = 2e-4
    made.train.phases = c.phases({"seq_len": 64, "fraction": 0.5}, {"seq_len": 256, "fraction": 0.5})
    pairs = values_and_defaults(c.resolve(PretrainConfig, made))
    found = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
    assert found["optimizer.peak_learning_rate"] == (2e-4, 1e-4)
    assert {key for key in found if key.startswith("train")} == {
        "train.phases.0.seq_len",
        "train.phases.0.fraction",
        "train.phases.1.seq_len",
        "train.phases.1.fraction",
    }
