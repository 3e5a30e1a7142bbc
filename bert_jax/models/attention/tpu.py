"""Attention by the fused kernel on TPUs, if the kernel supports the inputs; otherwise by plain operations.

The target platform of the compilation decides, so any machine can compile a TPU's program.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention import tpu_kernels, xla
from bert_jax.models.attention.devices import WIDE, on_each_device
from bert_jax.models.attention.inputs import AttentionInputs


def tpu_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, in the shape of `inputs.q`; the backward pass recomputes the probabilities."""
    if any(x is not None for x in (inputs.bias, inputs.distances, inputs.global_tokens)):  # the kernel has none
        return xla.xla_attention(inputs, rate)
    if inputs.radius is not None:
        inputs = dataclasses.replace(inputs, radius=jnp.asarray(inputs.radius, jnp.int32))
    return _attention(inputs, rate)


def _forward_on_tpu(inputs: AttentionInputs, rate: float) -> jax.Array:
    return cast(jax.Array, _fused_or_plain(tpu_kernels.tpu_forward, xla.xla_forward, rate, inputs))


def _backward_on_tpu(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> xla.Gradients:
    return cast(xla.Gradients, _fused_or_plain(tpu_kernels.tpu_backward, xla.xla_backward, rate, inputs, gradient))


_attention = xla.recomputed(_forward_on_tpu, _backward_on_tpu)


def _fused_or_plain(fused: Callable[..., Any], plain: Callable[..., Any], rate: float, *arrays: Any) -> Any:
    """Call `fused` on a TPU, where each device computes its sequences and heads, and `plain` on other platforms."""
    inputs: AttentionInputs = arrays[0]
    plain, fused = functools.partial(plain, rate=rate), functools.partial(fused, rate=rate)
    _, length, width = inputs.q.shape
    if not tpu_kernels.fits_tpu_kernels(length, width, inputs.num_heads):
        return plain(*arrays)

    def kernel(inputs: AttentionInputs, *gradient: jax.Array) -> Any:
        inputs = dataclasses.replace(inputs, window=None)  # the kernel reads `radius`
        outputs = (WIDE,) * 3 if gradient else WIDE
        return on_each_device(fused, inputs, *gradient, axes=(WIDE,) * len(gradient), out_axes=outputs)

    return jax.lax.platform_dependent(*arrays, tpu=kernel, default=plain)
