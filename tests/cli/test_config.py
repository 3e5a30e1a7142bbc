"""`config`: every field of a recipe with its value and meaning."""

import json

import pytest

from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of
from bert_jax.config.load import recipes


@pytest.mark.parametrize(("recipe", "kind"), [("bert_base", PretrainConfig), ("glue", FinetuneConfig)])
def test_every_field_has_a_line_with_its_meaning(run, recipe: str, kind: type) -> None:
    status, out, err = run("config", recipe)
    assert (status, err) == (0, "")
    words = " ".join(out.split())
    for key, field, _ in fields_of(kind):
        assert f"{key} = " in words
        assert field.metadata["meaning"] in words


def test_values_that_differ_from_the_default_are_marked(run) -> None:
    status, out, _ = run("config", "bert_base", "--config.train.steps", "20000", "--config.data.masking=span")
    assert status == 0
    assert "\n* train.steps = 20000   (default 1000000)\n" in out
    assert "\n* data.masking = span   (default token)\n" in out
    assert "\n* train.phases[1].seq_len = 512   (default 128)\n" in out
    assert "\n  seed = 0\n" in out
    assert "one of token, whole_word" in " ".join(out.split())


def test_json_has_each_field(run) -> None:
    found = json.loads(run("config", "glue", "--config.task.name=mrpc", "--json")[1])
    assert (found["verb"], found["recipe"]) == ("finetune", "glue")
    fields = {field["key"]: field for field in found["fields"]}
    assert (fields["task.name"]["value"], fields["task.name"]["default"]) == ("mrpc", None)
    assert "mrpc" in fields["task.name"]["meaning"]
    assert "at least 1" in fields["train.batch_size"]["takes"]


def test_without_a_recipe_it_lists_recipes_and_defaults(run) -> None:
    status, out, _ = run("config")
    assert status == 0
    assert recipes()
    for name in recipes():
        assert f"\n  {name}\n      " in out
    for key in (key for kind in (PretrainConfig, FinetuneConfig) for key, _, _ in fields_of(kind)):
        assert f"  {key} = " in out
    assert json.loads(run("config", "--json")[1])["recipes"] == list(recipes())


@pytest.mark.parametrize("override", ["task.epochs=2", "adapter.rank=4", "train.steps=9"])
def test_without_a_recipe_it_knows_the_fields_of_both_kinds_of_runs(run, override: str) -> None:
    status, out, _ = run("config", f"--config.{override}")
    assert status == 0
    assert f"* {override.partition('=')[0]} = " in out


def test_recipes_and_keys_that_do_not_exist(refused) -> None:
    refused("config", "bert_bas", says=("bert_bas", "did you mean 'bert_base'"))
    refused("config", "bert_base", "--config.train.stpes=3", says=("did you mean 'train.steps'",))
    refused("config", "glue", "--config.model.dropout=0", says=("fine-tuning takes the architecture of",))
