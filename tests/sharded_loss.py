"""Run by test_sharding.py on several CPU devices: prints the loss of each mesh, that of one device, and the largest
relative difference of the gradients."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, MeshConfig
from bert_jax.models import pretraining_model
from bert_jax.parallel.sharding import check_batch, check_parameters, make_mesh, place_batch, shardings

CONFIG = EncoderConfig(vocab_size=200, hidden_size=64, num_layers=2, num_heads=8, mlp_size=128, max_positions=16)
MESHES = [(1, 1, 1), (8, 1, 1), (1, 8, 1), (1, 1, 8), (2, 2, 2)]


def main() -> None:
    model = pretraining_model(CONFIG, ComputeConfig())
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

    results = []
    for sizes in MESHES:
        mesh = make_mesh(MeshConfig(*sizes), jax.devices()[: int(np.prod(sizes))])
        check_batch(mesh, 16)
        placement = shardings(model.logical_axes, mesh)
        check_parameters(model.logical_axes, jax.eval_shape(model.init, jax.random.key(0)), mesh)
        with jax.set_mesh(mesh):
            params = jax.jit(model.init, out_shardings=placement)(jax.random.key(0))
            value, gradients = jax.jit(jax.value_and_grad(loss), out_shardings=(None, placement))(
                params, place_batch(batch, mesh)
            )
        results.append((float(value), jax.device_get(params), jax.device_get(gradients)))
        kernel = params["encoder"]["layers"]["mlp_up"]["kernel"]
        assert kernel.addressable_shards[0].data.size * sizes[1] * sizes[2] == kernel.size, sizes
    (value, params, gradients), *others = results
    for sizes, (other, other_params, other_gradients) in zip(MESHES[1:], others, strict=True):
        jax.tree.map(np.testing.assert_array_equal, params, other_params)
        off = jax.tree.map(
            lambda a, b: float(np.abs(a - b).max() / np.abs(a).max().clip(1e-4)), gradients, other_gradients
        )
        print(json.dumps({"mesh": sizes, "loss": other, "reference": value, "gradients": max(jax.tree.leaves(off))}))


if __name__ == "__main__":
    sys.exit(main())
