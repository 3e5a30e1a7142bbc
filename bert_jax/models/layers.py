"""The small parts: linear map, activations, lookup, parameter with logical axes."""

import functools
import math
from collections.abc import Callable
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.config import EncoderConfig

# BERT's: a normal cut at two standard deviations and not rescaled, so the effective deviation is 0.88 of the nominal.
kernel_init = jax.nn.initializers.truncated_normal

KEPT = "kept"


def keep(x: jax.Array) -> jax.Array:
    """Mark an array to keep for the backward pass; the rest of a block is cheap to compute again (encoder.py)."""
    return cast(jax.Array, checkpoint_name(x, KEPT))


def gelu(x: jax.Array) -> jax.Array:
    """Return `x` times the normal distribution function of `x`, by erf: cheaper than the erfc of `jax.nn.gelu`."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
}


class Linear(nn.Module):
    """`x @ kernel + bias` in `dtype`, parameters float32; `shape` and `axes` are the kernel's sizes and names."""

    shape: tuple[int, int]
    axes: tuple[str, str]
    stddev: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = param(self, "kernel", kernel_init(self.stddev), self.shape, self.axes)
        bias = param(self, "bias", nn.initializers.zeros, self.shape[1:], self.axes[1:])
        # As a product of two matrices: XLA's gradient of a contraction over more axes is half as fast on CPU.
        y = x.astype(self.dtype).reshape(-1, self.shape[0]) @ kernel.astype(self.dtype)
        return y.reshape(*x.shape[:-1], self.shape[1]) + bias.astype(self.dtype)


def table_width(config: EncoderConfig) -> int:
    """Return the width of the embedding tables, which the masked-token head compares its vectors with."""
    return config.embedding_size or config.hidden_size


def lookup(numbers: jax.Array, table: jax.Array) -> jax.Array:
    """Return rows of `table` as a product, because the gradient of a lookup in so few rows is a slow scatter."""
    chosen = jax.nn.one_hot(numbers, len(table), dtype=jnp.float32)
    return jnp.einsum("blt,th->blh", chosen, table, precision=jax.lax.Precision.HIGHEST)


def param(
    module: nn.Module, name: str, init: Callable[..., jax.Array], shape: tuple[int, ...], axes: tuple[str, ...]
) -> jax.Array:
    """Return a float32 parameter of `module` whose axes carry logical names."""
    # Inside of a module linen hands out the array itself; its annotation says the box with the names.
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32))
