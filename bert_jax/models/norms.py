"""Normalization layers, as rows of one table keyed by `model.norm`."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.models.layers import keep, param


class LayerNorm(nn.Module):
    """Normalize the last axis to mean 0 and variance 1 (Ba et al. 2016); statistics in float32, result in `dtype`."""

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
    centered = x.astype(jnp.float32)
    centered -= centered.mean(-1, keepdims=True)
    inverse = keep(jax.lax.rsqrt(jnp.square(centered).mean(-1) + epsilon))
    unit = keep((centered * inverse[..., None]).astype(dtype))
    return unit, (unit, inverse, jnp.zeros((), x.dtype))


def _standardize_backward(_: float, __: jnp.dtype, saved: Any, gradient: jax.Array) -> tuple[jax.Array]:
    unit, inverse, of_dtype = saved
    unit, g = unit.astype(jnp.float32), gradient.astype(jnp.float32)
    of_x = (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True)) * inverse[..., None]
    # Written once: without the barrier XLA computes it anew, from three arrays, for each of its readers.
    return (jax.lax.optimization_barrier(of_x.astype(of_dtype.dtype)),)


_standardize.defvjp(_standardize_forward, _standardize_backward)


class RMSNorm(nn.Module):
    """Divide the last axis by the root of its mean square (Zhang and Sennrich 2019); float32 inside."""

    epsilon: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = param(self, "scale", nn.initializers.ones, x.shape[-1:], ("features",))
        wide = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + self.epsilon)
        return (wide * inverse * scale).astype(self.dtype)


# A row is a linen module with the fields `epsilon` and `dtype`, called with `[..., features]`; its result has the shape
# of its input.
NORMS: dict[str, Callable[..., nn.Module]] = {"layer_norm": LayerNorm, "rms_norm": RMSNorm}
