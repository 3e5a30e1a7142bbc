"""Normalization along the last axis, as rows of one table keyed by `model.norm`, and the layer around them."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import keep, param


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def layer_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """`x` less its mean, over its deviation (Ba et al. 2016); its gradient needs the result and not `x`."""
    return _layer_norm_forward(x, epsilon, dtype)[0]


def _layer_norm_forward(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> tuple[jax.Array, Any]:
    centered = x.astype(jnp.float32)
    centered -= centered.mean(-1, keepdims=True)
    inverse = keep(jax.lax.rsqrt(jnp.square(centered).mean(-1) + epsilon))
    unit = keep((centered * inverse[..., None]).astype(dtype))
    return unit, (unit, inverse, jnp.zeros((), x.dtype))


def _layer_norm_backward(_: float, __: jnp.dtype, saved: Any, gradient: jax.Array) -> tuple[jax.Array]:
    unit, inverse, of_dtype = saved
    unit, g = unit.astype(jnp.float32), gradient.astype(jnp.float32)
    of_x = (g - g.mean(-1, keepdims=True) - unit * (g * unit).mean(-1, keepdims=True)) * inverse[..., None]
    # Written once: without the barrier XLA computes it anew, from three arrays, for each of its readers.
    return (jax.lax.optimization_barrier(of_x.astype(of_dtype.dtype)),)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def rms_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """`x` over the root of its mean square (Zhang and Sennrich 2019); its gradient needs the result and not `x`."""
    return _rms_norm_forward(x, epsilon, dtype)[0]


def _rms_norm_forward(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> tuple[jax.Array, Any]:
    wide = x.astype(jnp.float32)
    inverse = keep(jax.lax.rsqrt(jnp.square(wide).mean(-1) + epsilon))
    unit = keep((wide * inverse[..., None]).astype(dtype))
    return unit, (unit, inverse, jnp.zeros((), x.dtype))


def _rms_norm_backward(_: float, __: jnp.dtype, saved: Any, gradient: jax.Array) -> tuple[jax.Array]:
    unit, inverse, of_dtype = saved
    unit, g = unit.astype(jnp.float32), gradient.astype(jnp.float32)
    of_x = (g - unit * (g * unit).mean(-1, keepdims=True)) * inverse[..., None]
    return (jax.lax.optimization_barrier(of_x.astype(of_dtype.dtype)),)


rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


def no_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """`x` as it is, for a scale and a bias alone (Sun et al. 2020, MobileBERT)."""
    return keep(x.astype(dtype))


# (x `[..., features]`, epsilon, dtype) -> the same shape in `dtype`, normalized; statistics in float32.
NORMS: dict[str, Callable[[jax.Array, float, jnp.dtype], jax.Array]] = {
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "no_norm": no_norm,
}


class Norm(nn.Module):
    """Normalize the last axis, then multiply by a learned scale and add a learned bias, where there is one."""

    normalize: Callable[[jax.Array, float, jnp.dtype], jax.Array]  # a row of NORMS
    epsilon: float
    dtype: jnp.dtype  # of the result; scale and bias are applied in float32
    scale: bool = True
    bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.normalize(x, self.epsilon, self.dtype)
        if self.scale:
            x = x.astype(jnp.float32) * param(self, "scale", nn.initializers.ones, x.shape[-1:], ("features",))
        if self.bias:
            x = x.astype(jnp.float32) + param(self, "bias", nn.initializers.zeros, x.shape[-1:], ("features",))
        return x.astype(self.dtype)


def norm_layer(config: EncoderConfig, dtype: jnp.dtype, name: str | None = None, kind: str | None = None) -> Norm:
    """Return the norm of an architecture; `kind` is another row of NORMS."""
    row = NORMS[kind or config.norm]
    return Norm(row, config.layer_norm_epsilon, dtype, config.norm_scale, config.norm_bias, name=name)
