"""Print the loss of each named model on each mesh and on one device, and the largest relative difference of gradients.

tests/parallel/test_sharding.py starts this program on several CPU devices.
"""

import dataclasses
import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, MeshConfig
from bert_jax.models import pretraining_model
from bert_jax.parallel.sharding import (
    check_mesh_divides_batch,
    check_mesh_divides_parameters,
    make_mesh,
    named_shardings,
    place_batch,
)

CONFIG = EncoderConfig(vocab_size=200, hidden_size=64, num_layers=2, num_heads=8, mlp_size=128, max_positions=16)
CONFIGS = {
    "bert": CONFIG,
    "tensor": CONFIG,  # on a mesh with only a tensor axis
    "rotary": dataclasses.replace(
        CONFIG,
        norm_position="pre",
        first_attention_norm=False,
        final_norm=True,
        norm_bias=False,
        attention_bias=False,
        mlp_bias=False,
        positions="rotary",
        local_rotary_base=100.0,
        local_window=6,
        global_every=2,
        mlp="gated",
        query_key_norm=True,
    ),
    "relative": dataclasses.replace(CONFIG, norm_position="pre", positions="relative", norm="rms_norm"),
}
# Drawn on two meshes, parameters are the same bit for bit as a run compiles them, not with the flags of conftest.py.
AS_A_RUN = {"xla_backend_optimization_level": 1}
PADDED_VOCAB = 256
ONE, ALL = (1, 1, 1), (2, 2, 2)
MESHES = {"bert": [ONE, ALL], "tensor": [ONE, (1, 1, 8)], "rotary": [ONE, ALL], "relative": [ONE, ALL]}


def pretraining(config: EncoderConfig):
    """A BERT, the loss of both its heads, and a batch."""
    model = pretraining_model(config, ComputeConfig())
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(0, 200, (16, 16), np.int32),
        "token_type_ids": rng.integers(0, 2, (16, 16), np.int32),
        "attention_mask": np.ones((16, 16), np.int32),
        "masked_positions": rng.integers(0, 16, (16, 3), np.int32),
        "masked_labels": rng.integers(0, 200, (16, 3), np.int32),
    }

    def loss(params, batch):
        out = model.apply(params, batch, jax.random.key(7))
        each = jnp.take_along_axis(jax.nn.log_softmax(out["mlm_logits"]), batch["masked_labels"][..., None], -1)
        return -each.mean() + jnp.square(out["nsp_logits"]).mean()

    return model, loss, batch


def moved_tables(program: str, rows: int) -> list[str]:
    """What of a program gathers or permutes an array with the shape of the token table, or of its part for `tensor`."""
    shape = rf"f32\[{rows},{CONFIG.hidden_size}\]"
    return re.findall(rf"= {shape}\S* (all-gather|all-to-all|collective-permute)\(", program)


def compare(name: str) -> None:
    model, loss, batch = pretraining(CONFIGS[name])
    results = []
    for sizes in MESHES[name]:
        mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])
        check_mesh_divides_batch(mesh, 16)
        placement = named_shardings(model.logical_axes, mesh)
        check_mesh_divides_parameters(model.logical_axes, model.shapes, mesh)
        with jax.set_mesh(mesh):
            params = jax.jit(model.init, out_shardings=placement, compiler_options=AS_A_RUN)(jax.random.key(0))
            placed = place_batch(batch, mesh)
            step = jax.jit(jax.value_and_grad(loss), out_shardings=(None, placement)).lower(params, placed).compile()
            value, gradients = step(params, placed)
        moved = moved_tables(step.as_text(), PADDED_VOCAB // sizes[2])
        results.append((float(value), jax.device_get(params), jax.device_get(gradients), moved))
        kernel = params["encoder"]["layers"]["mlp_up"]["kernel"]
        assert kernel.addressable_shards[0].data.size * sizes[1] * sizes[2] == kernel.size, sizes
    (value, params, gradients, _), *others = results
    for sizes, (other, other_params, other_gradients, moved) in zip(MESHES[name][1:], others, strict=True):
        jax.tree.map(np.testing.assert_array_equal, params, other_params)
        off = jax.tree.map(
            lambda a, b: float(np.abs(a - b).max() / np.abs(a).max().clip(1e-4)), gradients, other_gradients
        )
        row = {"model": name, "mesh": sizes, "loss": other, "reference": value}
        print(json.dumps(row | {"gradients": max(jax.tree.leaves(off)), "moved": moved}))


if __name__ == "__main__":
    for model in sys.argv[1:]:
        compare(model)
