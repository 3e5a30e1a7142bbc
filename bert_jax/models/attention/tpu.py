"""The fused kernel where it can be used, on TPUs; plain operations elsewhere.

The platform is that for which the program is lowered, so that a TPU's program is compiled on any machine.
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


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; the backward pass computes the probabilities again."""
    if any(x is not None for x in (inputs.bias, inputs.distances, inputs.global_tokens)):  # which the kernel lacks
        return xla.attend(inputs, rate)
    if inputs.radius is not None:
        inputs = dataclasses.replace(inputs, radius=jnp.asarray(inputs.radius, jnp.int32))
    return _attend(inputs, rate)


def _forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    return cast(jax.Array, _fused_or_plain(tpu_kernels.forward, xla.forward, rate, inputs))


def _backward(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> xla.Gradients:
    return cast(xla.Gradients, _fused_or_plain(tpu_kernels.backward, xla.backward, rate, inputs, gradient))


_attend = xla.recomputed(_forward, _backward)


def _fused_or_plain(fused: Callable[..., Any], plain: Callable[..., Any], rate: float, *arrays: Any) -> Any:
    """Call the fused kernel on a TPU, each device on its sequences and heads; the plain operations elsewhere."""
    inputs: AttentionInputs = arrays[0]
    plain, fused = functools.partial(plain, rate=rate), functools.partial(fused, rate=rate)
    _, length, width = inputs.q.shape
    if not tpu_kernels.fits(length, width, inputs.num_heads):
        return plain(*arrays)

    def kernel(inputs: AttentionInputs, *gradient: jax.Array) -> Any:
        inputs = dataclasses.replace(inputs, window=None)  # the kernel reads `radius`
        outputs = (WIDE,) * 3 if gradient else WIDE
        return on_each_device(fused, inputs, *gradient, axes=(WIDE,) * len(gradient), out_axes=outputs)

    return jax.lax.platform_dependent(*arrays, tpu=kernel, default=plain)
