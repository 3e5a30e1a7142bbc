"""The fused kernel where it can be used, on TPUs; plain operations elsewhere.

The platform is that for which the program is lowered, so that a TPU's program is compiled on any machine.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention import tpu_kernels, xla
from bert_jax.models.attention.inputs import AttentionInputs
from bert_jax.parallel.sharding import partition_spec


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; the backward pass computes the probabilities again."""
    if any(x is not None for x in (inputs.bias, inputs.distances, inputs.global_tokens)):  # which the kernel lacks
        return xla.attend(inputs, rate)
    if inputs.reach is not None:
        inputs = inputs._replace(reach=jnp.asarray(inputs.reach, jnp.int32))
    return _attend(inputs, rate)


def _forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    return cast(jax.Array, _on_platform(tpu_kernels.forward, xla.forward, rate, inputs))


def _backward(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> xla.Gradients:
    return cast(xla.Gradients, _on_platform(tpu_kernels.backward, xla.backward, rate, inputs, gradient))


_attend = xla.recomputed(_forward, _backward)


def _on_platform(fused: Callable[..., Any], plain: Callable[..., Any], rate: float, *arrays: Any) -> Any:
    """The fused kernel on a TPU, each device on its sequences and heads; the plain operations elsewhere."""
    inputs: AttentionInputs = arrays[0]
    plain, fused = functools.partial(plain, rate=rate), functools.partial(fused, rate=rate)
    _, length, width = inputs.q.shape
    if not tpu_kernels.fits(length, width, inputs.keys.shape[1]):
        return plain(*arrays)

    def kernel(inputs: AttentionInputs, *gradient: jax.Array) -> Any:
        arrays = (inputs._replace(window=None), *gradient)  # it reads `reach`
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            return fused(*arrays)
        wide, mask = partition_spec(("batch", "length", "heads")), partition_spec(("batch", "length"))
        specs: Any = (wide, wide, wide, mask, mask, partition_spec(("batch", "heads", "key_words")), jax.P(), jax.P())
        in_specs = (AttentionInputs(*specs), wide)[: len(arrays)]
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        return jax.shard_map(fused, in_specs=in_specs, out_specs=wide, axis_names=axes, check_vma=False)(*arrays)

    return jax.lax.platform_dependent(*arrays, tpu=kernel, default=plain)
