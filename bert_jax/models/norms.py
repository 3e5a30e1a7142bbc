"""Normalizations along the last axis, as rows of a table (a key is a value of `model.norm`), and the norm layer."""

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models import fused_norm
from bert_jax.models.dropout import SEED_WORDS, dropout, row_keys
from bert_jax.models.layers import (
    Biased,
    add_bias,
    dtype_between_products,
    logical_param,
    save_for_backward,
    save_on_gpu,
)
from bert_jax.parallel.platform import runs_fused_kernels, traced_platform


class Saved(NamedTuple):
    """The arrays for the gradient of a norm: its result or, on GPUs, its input."""

    unit: jax.Array | None
    x: jax.Array | None
    mean: jax.Array | None
    inverse: jax.Array
    dtype_holder: jax.Array  # shape [], dtype of the input


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def _normalize(x: jax.Array, centered: bool, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    return _normalize_forward(x, centered, epsilon, dtype)[0]


def _normalize_forward(x: jax.Array, centered: bool, epsilon: float, dtype: jnp.dtype) -> tuple[jax.Array, Saved]:
    """Return the normalized array, and the arrays for its gradient."""
    x, mean, dtype_holder = save_on_gpu(x), None, jnp.zeros((), x.dtype)
    wide = x.astype(jnp.float32)
    if centered:
        mean = save_on_gpu(wide.mean(-1, keepdims=True))
        wide -= mean
    inverse = save_for_backward(jax.lax.rsqrt(jnp.square(wide).mean(-1) + epsilon))
    unit = (wide * inverse[..., None]).astype(dtype)
    if traced_platform() == "gpu":
        # XLA writes the input anyway, but writes the result only after scale and bias. To save `unit` would write a
        # third array.
        return unit, Saved(None, x, mean, inverse, dtype_holder)
    unit = save_for_backward(unit)
    return unit, Saved(unit, None, None, inverse, dtype_holder)


def _normalize_backward(centered: bool, _: float, __: jnp.dtype, saved: Saved, gradient: jax.Array) -> tuple[jax.Array]:
    """Return the gradient of the input."""
    inverse, g = saved.inverse[..., None], gradient.astype(jnp.float32)
    if saved.unit is not None:
        unit = saved.unit.astype(jnp.float32)
    else:
        wide = cast(jax.Array, saved.x).astype(jnp.float32)
        unit = (wide if saved.mean is None else wide - saved.mean) * inverse
    mean = g.mean(-1, keepdims=True) if centered else 0.0
    dx = (g - mean - unit * (g * unit).mean(-1, keepdims=True)) * inverse
    # Without the barrier, XLA computes `dx` again, from three arrays, for each operation that reads `dx`.
    return (jax.lax.optimization_barrier(dx.astype(saved.dtype_holder.dtype)),)


_normalize.defvjp(_normalize_forward, _normalize_backward)


def layer_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """Subtract the mean of `x`, then divide by its standard deviation (Ba et al. 2016)."""
    return _normalize(x, True, epsilon, dtype)


def rms_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """Divide `x` by the root of its mean square (Zhang and Sennrich 2019)."""
    return _normalize(x, False, epsilon, dtype)


def no_norm(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """Return `x` unchanged, so that the layer has only scale and bias (Sun et al. 2020, MobileBERT)."""
    return save_for_backward(x.astype(dtype))


# A row is a function (x `[..., features]`, epsilon, dtype) -> the normalized array in `dtype`; statistics are float32.
NORMS: dict[str, Callable[[jax.Array, float, jnp.dtype], jax.Array]] = {
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "no_norm": no_norm,
}


class Added(NamedTuple):
    """The array that a sublayer adds to the residual stream, before its bias and dropout."""

    value: jax.Array | Biased  # [batch, length, features]
    rate: float  # dropout rate
    seed: jax.Array | None

    def array(self) -> jax.Array:
        """Return the value with its bias, after dropout."""
        return dropout(add_bias(self.value), self.rate, self.seed)


class Norm(nn.Module):
    """A layer that normalizes the last axis, then applies the learned scale and the learned bias, if it has them.

    With the argument `added`, the layer normalizes the sum `x + added`; a GPU computes sum and norm in one kernel.
    """

    normalize: Callable[[jax.Array, float, jnp.dtype], jax.Array]  # a row of NORMS
    epsilon: float
    dtype: jnp.dtype  # dtype of the result; scale and bias are applied in float32
    scale: bool = True
    bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, added: Added | None = None) -> jax.Array:
        if added is not None and isinstance(added.value, Biased) and self._is_fused(x):
            return self._sum_norm(x, added.value, added.rate, added.seed)
        x = x if added is None else x + added.array()
        x = self.normalize(x, self.epsilon, self.dtype)
        if self.scale:
            x = x.astype(jnp.float32) * logical_param(self, "scale", nn.initializers.ones, x.shape[-1:], ("features",))
        if self.bias:
            x = x.astype(jnp.float32) + logical_param(self, "bias", nn.initializers.zeros, x.shape[-1:], ("features",))
        return save_on_gpu(x.astype(self.dtype))

    def _is_fused(self, x: jax.Array) -> bool:
        """Return whether a single kernel computes the sum and this norm."""
        on_gpu = traced_platform() == "gpu" and runs_fused_kernels() and not self.is_initializing()
        fits = x.dtype == self.dtype == jnp.bfloat16 and fused_norm.fits_sum_norm(x.shape[-1])
        return on_gpu and fits and self.normalize is layer_norm and self.scale and self.bias

    def _sum_norm(self, x: jax.Array, value: Biased, rate: float, seed: jax.Array | None) -> jax.Array:
        """Return the norm of `x` plus the value after dropout, by a single kernel."""
        (product, bias), size = value, x.shape[-1:]
        scale = logical_param(self, "scale", nn.initializers.ones, size, ("features",))
        shift = logical_param(self, "bias", nn.initializers.zeros, size, ("features",))
        bias = jnp.zeros(size, x.dtype) if bias is None else bias
        if seed is None or rate == 0:
            rate, keys = 0.0, jnp.zeros((x.shape[0], SEED_WORDS), jnp.uint32)
        else:
            keys = jnp.stack(row_keys(seed, x.shape[0]), axis=-1)
        return fused_norm.sum_norm(x, product, bias, keys, scale, shift, rate, self.epsilon)


def norm_layer(config: EncoderConfig, dtype: jnp.dtype, name: str | None = None, kind: str | None = None) -> Norm:
    """Return the norm layer of an architecture; `kind` is a key of NORMS that replaces `config.norm`."""
    row = NORMS[kind or config.norm]
    dtype = dtype_between_products(dtype)
    return Norm(row, config.layer_norm_epsilon, dtype, config.norm_scale, config.norm_bias, name=name)
