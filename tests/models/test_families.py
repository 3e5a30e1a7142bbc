"""Every family and head against `transformers` under torch: same weights, same batch, same answers."""

import functools

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.interop.huggingface import load_model
from bert_jax.models import Head, make_model
from bert_jax.models.heads import GLOBAL_TOKENS
from tests.helpers.family_cases import ALL_HEADS, CASES, UNREAD, Case, answers, batch_of, classes_of, compare, model_of
from tests.helpers.slow_cases import quick


@functools.cache
def with_heads(name: str, scan: bool, heads: tuple[Head, ...]):
    """A compiled function, and parameters that it takes where a class has none."""
    model = make_model(CASES[name].ours, ComputeConfig(scan_layers=scan), heads)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(model.init, jax.random.key(0)))
    return jax.jit(model.apply), zeros


def heads_together(case: Case, heads: tuple[str, ...]) -> tuple[Head, ...]:
    """All, so that one program serves all classes; where a head chooses global tokens or an activation, it alone."""
    if case.ours.separator_id is None and case.ours.sequence_activation is None:
        return ALL_HEADS
    if set(heads) & GLOBAL_TOKENS.keys():
        return tuple(head for head in ALL_HEADS if head.name in (*heads, "hidden_states"))
    return tuple(head for head in ALL_HEADS if head.name not in GLOBAL_TOKENS)


WAYS = [(name, True) for name in CASES] + [
    ("bert odd, tanh", False),
    ("albert of equal widths, erf", False),
    ("modernbert", False),
]


FIRST_OF_FAMILY = {case.ours.family: name for name, case in reversed(CASES.items())}
QUICK = [("bert odd, tanh", False), *((name, True) for name in FIRST_OF_FAMILY.values())]


@pytest.mark.parametrize(("name", "scan"), quick(WAYS, *QUICK))
def test_every_head_equals_the_reference(name: str, scan: bool, tmp_path) -> None:
    case: Case = CASES[name]
    batch = batch_of(case)
    for seed, (one, heads) in enumerate(classes_of(case.ours.family).items()):
        theirs = model_of(case, one, seed=seed)
        theirs.save_pretrained(tmp_path / one)
        loaded = load_model(tmp_path / one)
        assert loaded.config == case.ours
        assert tuple(head.name for head in loaded.heads) == heads
        assert not {*loaded.unused} - UNREAD
        assert not loaded.new
        apply, zeros = with_heads(name, scan, heads_together(case, heads))
        compare(apply(zeros | loaded.params, batch, None), answers(theirs, batch), batch)
