"""The small parts: linear map, layer normalisation, activation, parameter with logical axes."""

import functools
import math
from collections.abc import Callable
from typing import cast

import flax.linen as nn
import jax
import jax.numpy as jnp

# BERT's: a normal cut at two standard deviations and not rescaled, so the effective deviation is 0.88 of the nominal.
kernel_init = jax.nn.initializers.truncated_normal

pointwise = functools.partial(jax.checkpoint, prevent_cse=False)  # cheap to recompute: only its input is kept


@pointwise
def gelu(x: jax.Array) -> jax.Array:
    """`x` times the normal distribution function of `x`; by erf, which costs less than the erfc of `jax.nn.gelu`."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": pointwise(functools.partial(jax.nn.gelu, approximate=True)),
}


class Linear(nn.Module):
    """`x @ kernel + bias` in `dtype`, parameters float32.

    `shape` and `axes` are the kernel's sizes and logical names; its first `inputs` axes meet the last ones of `x`.
    """

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    stddev: float
    dtype: jnp.dtype
    inputs: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernel = param(self, "kernel", kernel_init(self.stddev), self.shape, self.axes)
        bias = param(self, "bias", nn.initializers.zeros, self.shape[self.inputs :], self.axes[self.inputs :])
        # As a product of two matrices: XLA's gradient of a contraction over more axes is half as fast on CPU.
        rows, columns = math.prod(x.shape[: x.ndim - self.inputs]), math.prod(bias.shape)
        y = x.astype(self.dtype).reshape(rows, -1) @ kernel.astype(self.dtype).reshape(-1, columns)
        return y.reshape(*x.shape[: x.ndim - self.inputs], *bias.shape) + bias.astype(self.dtype)


class LayerNorm(nn.Module):
    """Normalises the last axis; statistics in float32, result in `dtype`."""

    epsilon: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = param(self, "scale", nn.initializers.ones, x.shape[-1:], ("features",))
        bias = param(self, "bias", nn.initializers.zeros, x.shape[-1:], ("features",))
        return _normalize(x, scale, bias, self.epsilon).astype(self.dtype)


@functools.partial(pointwise, static_argnums=(3,))
def _normalize(x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float) -> jax.Array:
    x = x.astype(jnp.float32)
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon) * scale + bias


def param(
    module: nn.Module, name: str, init: Callable[..., jax.Array], shape: tuple[int, ...], axes: tuple[str, ...]
) -> jax.Array:
    """A float32 parameter of `module` whose axes carry logical names."""
    # Inside of a module linen hands out the array itself; its annotation says the box with the names.
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32))
