"""Every family and head against `transformers` under torch: same weights, same batch, same answers."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.interop.huggingface import load_model
from bert_jax.models import make_model
from tests.models.family_cases import ALL_HEADS, CASES, Case, answers, batch_of, classes_of, compare, model_of


@functools.cache
def with_all_heads(name: str, scan: bool):
    """One compiled function for all the reference's classes, and parameters that it takes where a class has none."""
    model = make_model(CASES[name].ours, ComputeConfig(scan_layers=scan), ALL_HEADS)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(model.init, jax.random.key(0)))
    return jax.jit(model.apply), zeros


WAYS = [(name, True) for name in CASES] + [
    ("bert odd, tanh", False),
    ("albert of equal widths, erf", False),
    ("modernbert", False),
]


@pytest.mark.parametrize(("name", "scan"), WAYS)
def test_every_head_equals_the_reference(name: str, scan: bool, tmp_path) -> None:
    case: Case = CASES[name]
    batch = batch_of(case)
    apply, zeros = with_all_heads(name, scan)
    for seed, (one, heads) in enumerate(classes_of(case.ours.family).items()):
        theirs = model_of(case, one, seed=seed)
        theirs.save_pretrained(tmp_path / one)
        loaded = load_model(tmp_path / one)
        assert loaded.config == case.ours
        assert tuple(head.name for head in loaded.heads) == heads
        assert not loaded.unused
        assert not loaded.new
        compare(apply(zeros | loaded.params, batch, None), answers(theirs, batch), batch)
