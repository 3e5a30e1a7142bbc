"""Gradients through the kernel in Triton, interpreted, on a mesh of four devices and on one device.

tests/models/test_attention.py starts this program. The gradients are for separate queries, keys and values, and for one
array of all three, whose biases the kernel adds.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention import triton
from bert_jax.models.attention.inputs import FusedQKV, with_fused_qkv
from bert_jax.parallel import sharding
from tests.models.test_attention import random_inputs

AUTO = (jax.sharding.AxisType.Auto,) * 3


def main() -> None:
    for name in ("triton_forward", "triton_backward"):
        setattr(triton, name, functools.partial(getattr(triton, name), interpret=True))
    inputs, weights = random_inputs((4, 32, 4, 16), packed=True)

    q, k, v = inputs.q, inputs.k, inputs.v
    joint = (jnp.stack([q, k, v], axis=2), jnp.asarray(np.random.default_rng(1).normal(size=(3, q.shape[-1]))))

    def apart(*qkv: jax.Array) -> jax.Array:
        return triton.triton_attention(dataclasses.replace(inputs, **dict(zip("qkv", qkv, strict=True))), 0.1)

    def together(*joint: jax.Array) -> jax.Array:
        return triton.triton_attention(with_fused_qkv(inputs, FusedQKV(*joint)), 0.1)

    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 1, 2), sharding.AXES, axis_types=AUTO)
    for context, maps in ((apart, (q, k, v)), (together, joint)):
        gradients = jax.grad(lambda *maps, context=context: jnp.sum(context(*maps) * weights), range(len(maps)))

        def found(context: Any = context, maps: Any = maps, gradients: Any = gradients) -> list[jax.Array]:
            return [jax.jit(context)(*maps), *jax.jit(gradients)(*maps)]

        alone = found()
        with jax.set_mesh(mesh):
            spread = found()
            assert "shard_map" in str(jax.make_jaxpr(context)(*maps))
        for one, other in zip(spread, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main()
