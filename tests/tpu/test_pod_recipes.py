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
