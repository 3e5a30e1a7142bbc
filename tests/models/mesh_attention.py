"""Gradients through the kernel in Triton, interpreted, on a mesh of four devices and on one; a process of its own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.attention.gpu import triton
from bert_jax.parallel import sharding
from tests.models.test_attention import random_inputs

AUTO = (jax.sharding.AxisType.Auto,) * 3


def main() -> None:
    for name in ("forward", "backward"):
        setattr(triton, name, functools.partial(getattr(triton, name), interpret=True))
    inputs, weights = random_inputs((4, 32, 4, 16), packed=True)

    def context(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return triton.attend(inputs._replace(q=q, k=k, v=v), 0.1)

    def gradients(*qkv: jax.Array) -> tuple[jax.Array, ...]:
        return jax.grad(lambda *qkv: jnp.sum(context(*qkv) * weights), (0, 1, 2))(*qkv)

    def found() -> list[jax.Array]:
        return [jax.jit(context)(*inputs[:3]), *jax.jit(gradients)(*inputs[:3])]

    alone = found()
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 1, 2), sharding.AXES, axis_types=AUTO)
    with jax.set_mesh(mesh):
        together = found()
        assert "shard_map" in str(jax.make_jaxpr(context)(*inputs[:3]))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


if __name__ == "__main__":
    main()
