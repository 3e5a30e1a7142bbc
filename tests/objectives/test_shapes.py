"""Shapes that models and objectives declare against the shapes of the initial parameters."""

import dataclasses

import jax
import pytest

from bert_jax import config as c
from bert_jax.models import PRESETS, make_model
from bert_jax.models.heads import Head
from bert_jax.objectives import make_objective

TINY = dataclasses.replace(PRESETS["tiny"], vocab_size=100)
CASES = {
    "masked_tokens": {},
    "left_to_right": {"model": {"causal": True}},
    "replaced_tokens": {"replaced_tokens": {"generator_size": 0.5}},
    "distillation": {"distillation": {"teacher": "somewhere", "hidden_weight": 1.0, "cosine_weight": 0.0}},
}


def of(tree) -> dict:
    return {jax.tree_util.keystr(path): (x.shape, x.dtype) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("name", CASES)
def test_an_objective_names_the_shapes_that_it_draws(name: str) -> None:
    made = c.pretrain_config()
    made.model.update(vocab_size=100, hidden_size=32, num_layers=2, num_heads=2, mlp_size=64, max_positions=512)
    made.data.sentence_pairs = "full_sentences"
    made.update(CASES[name], objective=name)
    teacher = TINY if name == "distillation" else None  # of another width: a projection is learned
    objective = make_objective(c.resolve(c.PretrainConfig, made), teacher)
    assert of(objective.shapes) == of(jax.eval_shape(objective.init, jax.random.key(0)))


@pytest.mark.parametrize("compute", [c.ComputeConfig(scan_layers=False), c.ComputeConfig(dtype="bfloat16", remat=True)])
def test_how_a_model_is_computed_does_not_change_its_shapes(compute: c.ComputeConfig) -> None:
    model = make_model(TINY, compute, (Head("masked_token"),))
    assert of(model.shapes) == of(jax.eval_shape(model.init, jax.random.key(0)))
