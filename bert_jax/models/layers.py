"""The small parts: linear map, layer normalisation, activation, parameter with logical axes."""

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

# BERT's: a normal cut at two standard deviations and not rescaled, so the effective deviation is 0.88 of the nominal.
kernel_init = jax.nn.initializers.truncated_normal

KEPT = "kept"


def keep(x: jax.Array) -> jax.Array:
    """Marks what is kept for the backward pass; all else in a block is cheap to compute again (encoder.py)."""
    return cast(jax.Array, checkpoint_name(x, KEPT))


def gelu(x: jax.Array) -> jax.Array:
    """`x` times the normal distribution function of `x`; by erf, which costs less than the erfc of `jax.nn.gelu`."""
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


class LayerNorm(nn.Module):
    """Normalises the last axis; statistics in float32, result in `dtype`."""

    epsilon: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = param(self, "scale", nn.initializers.ones, x.shape[-1:], ("features",))
        bias = param(self, "bias", nn.initializers.zeros, x.shape[-1:], ("features",))
        return (_standardize(x, self.epsilon, self.dtype).astype(jnp.float32) * scale + bias).astype(self.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _standardize(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """`x` less its mean, over its deviation, along the last axis; its gradient needs the result and not `x`."""
    return _standardize_forward(x, epsilon, dtype)[0]


def _standardize_forward(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> tuple[jax.Array, Any]:
    centred = x.astype(jnp.float32)
    centred -= centred.mean(-1, keepdims=True)
    inverse = keep(jax.lax.rsqrt(jnp.square(centred).mean(-1) + epsilon))
    unit = keep((centred * inverse[..., None]).astype(dtype))
    return unit, (unit, inverse, jnp.zeros((), x.dtype))


def _standardize_backward(_: float, __: jnp.dtype, saved: Any, gradient: jax.Array) -> tuple[jax.Array]:
    unit, inverse, of_dtype = saved
    unit, g = unit.astype(jnp.float32), gradient.astype(jnp.float32)
    of_x = (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True)) * inverse[..., None]
    # Written once: without the barrier XLA computes it anew, from three arrays, for each of its readers.
    return (jax.lax.optimization_barrier(of_x.astype(of_dtype.dtype)),)


_standardize.defvjp(_standardize_forward, _standardize_backward)


def param(
    module: nn.Module, name: str, init: Callable[..., jax.Array], shape: tuple[int, ...], axes: tuple[str, ...]
) -> jax.Array:
    """A float32 parameter of `module` whose axes carry logical names."""
    # Inside of a module linen hands out the array itself; its annotation says the box with the names.
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32))
