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


def test_a_parameter_of_another_shape_is_refused() -> None:
    """Each parameter, one after the other: an axis more is refused, also inside of the stacked blocks."""
    model = make_model(CONFIG, ComputeConfig(), (Head("masked_token"), Head("next_sentence")))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    batch = {name: np.ones((2, 8), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")}
    batch["masked_positions"] = np.ones((2, 3), np.int32)
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    for index, (path, leaf) in enumerate(leaves):
        changed = [x for _, x in leaves]
        changed[index] = jax.ShapeDtypeStruct((*leaf.shape[:-1], leaf.shape[-1] + 1), leaf.dtype)
        with pytest.raises(ValueError, match=f"{path[-1].key} has the shape .*, the model needs"):
            jax.eval_shape(lambda p: model.apply(p, batch, None), jax.tree.unflatten(tree, changed))
