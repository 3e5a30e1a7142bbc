"""The recipes for pods fit the slices that their docstrings name."""

import ast
import pathlib
import re

import pytest

from bert_jax.config import PretrainConfig, read_config
from tests.helpers.dry_run_process import ROOT, dry_run

pytestmark = pytest.mark.tpu


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert_base", ()),
        ("bert_large", ()),
        ("bert_large_lamb", ()),
        ("roberta_base", ()),
        ("albert_base", ()),
        ("electra_small", ()),
        ("electra_base", ()),
        ("distilbert", ("--config.distillation.teacher=base",)),
    ],
)
def test_it_fits(name: str, words: tuple[str, ...]) -> None:
    recipe = pathlib.Path("configs") / f"{name}.py"
    says = ast.get_docstring(ast.parse((ROOT / recipe).read_text(encoding="utf-8")))
    topology = re.search(r"--topology (v\w+:[\dx]+)", says or "")
    assert topology, "the docstring names no slice"
    report = dry_run(str(recipe), topology[1], *words)
    assert sum(phase["steps"] for phase in report["phases"]) == read_config(PretrainConfig, str(recipe), []).train.steps
    assert all(phase["fits"] for phase in report["phases"])


DEBERTA = """
from bert_jax.config.presets import architecture
from bert_jax.config.recipes import electra_recipe_of_clark2020

def get_config():
    config = electra_recipe_of_clark2020("base", seq_len=512)
    config.model.update(architecture("deberta_v3_base") | {"vocab_size": 128_100})
    config.replaced_tokens.update(generator_size=1.0, generator_layers=6, embedding_sharing="disentangled")
    config.train.update(steps=500_000, batch_size=8_192, grad_accum_steps=4)
    return config
"""


def test_replaced_tokens_fit_at_the_size_of_deberta_v3_base(tmp_path: pathlib.Path) -> None:
    """Two tables of 128,100 tokens, a generator as wide and half as deep, 8,192 sequences of 512 tokens (He et al.)."""
    (tmp_path / "recipe.py").write_text(DEBERTA)
    report = dry_run(str(tmp_path / "recipe.py"), "v5e:16x16")
    assert all(phase["fits"] for phase in report["phases"])
