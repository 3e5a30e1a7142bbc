"""`Model` as other packages use it: the sections of the parameters, and the parts that a checkpoint lacks."""

import dataclasses

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.models import PRESETS, Head, draw_missing, make_model

SIZES = {"vocab_size": 40, "num_layers": 2, "hidden_size": 16, "num_heads": 2, "mlp_size": 24, "max_positions": 16}
CONFIG = dataclasses.replace(PRESETS["tiny"], **SIZES)


@pytest.mark.parametrize(("name", "width"), [("tiny", None), ("albert_base", 8), ("distilbert", None)])
def test_every_parameter_is_in_one_section(name: str, width: int | None) -> None:
    config = dataclasses.replace(PRESETS[name], **SIZES, embedding_size=width)
    model = make_model(config, ComputeConfig(), (Head("masked_token"), Head("next_sentence")))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.tree.structure(model.sections) == jax.tree.structure(shapes)
    encoder = model.sections["encoder"]
    assert set(jax.tree.leaves(encoder["layers"])) == {"layers"}
    assert set(jax.tree.leaves({**encoder, "layers": {}})) == {"embeddings"}
    assert set(jax.tree.leaves({**model.sections, "encoder": {}})) == {"heads"}
    stacked = [
        x.shape[0]
        for x, section in zip(*map(jax.tree.leaves, (shapes, model.sections)), strict=True)
        if section == "layers"
    ]
    assert set(stacked) == {1 if config.share_layers else config.num_layers}


def test_missing_heads_are_drawn_as_the_model_draws_them() -> None:
    heads = (Head("masked_token"), Head("next_sentence"))
    whole = jax.jit(make_model(CONFIG, ComputeConfig(), heads).init)(jax.random.key(3))
    kept = {"encoder": jax.tree.map(lambda x: np.asarray(x) + 1, whole["encoder"])}
    found = draw_missing(CONFIG, heads, kept, jax.random.key(3))
    assert found["encoder"] is kept["encoder"]
    jax.tree.map(np.testing.assert_array_equal, {**found, "encoder": {}}, {**whole, "encoder": {}})
    assert draw_missing(CONFIG, heads, found, jax.random.key(4)) is found
