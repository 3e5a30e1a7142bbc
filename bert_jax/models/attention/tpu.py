"""Attention of whole sequences in a TPU's vector memory: scores and probabilities never reach HBM (Dao et al. 2022).

BERT's sequences are so short that the scores of a head, float32 `[length, length]`, fit into vector memory. So the
kernel needs no running softmax. The backward pass recomputes the scores from q, k and v. The dropout mask equals the
mask of models/dropout.py, element by element.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.attention import xla
from bert_jax.models.attention.devices import WIDE, on_each_device
from bert_jax.models.attention.inputs import MASKED_SCORE, AttentionInputs, has_score_terms
from bert_jax.models.dropout import keep_mask

LANES = 128  # columns of a vector register; a block has a multiple of LANES columns, or the columns of all heads
MAX_LENGTH = 1024  # a few [length, length] arrays have to fit into 16 MiB
HEAD_MULTIPLE = 8  # the number of columns of a head is a multiple of this number


def fits_tpu(inputs: AttentionInputs) -> bool:
    """Return whether the kernel supports these inputs, at any rate of dropout."""
    _, length, width = inputs.q.shape
    is_tiled = length % 8 == 0 and (width // inputs.num_heads) % HEAD_MULTIPLE == 0
    return length <= MAX_LENGTH and is_tiled and not has_score_terms(inputs)


def tpu_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`, for inputs that this kernel supports.

    The backward pass recomputes the scores.
    """
    radius = None if inputs.radius is None else jnp.asarray(inputs.radius, jnp.int32)
    return _attention(dataclasses.replace(inputs, radius=radius, window=None), rate)


def _forward_on_mesh(inputs: AttentionInputs, rate: float) -> jax.Array:
    forward = functools.partial(tpu_forward, rate=rate)
    return cast(jax.Array, on_each_device(forward, inputs, axes=(), out_axes=WIDE))


def _backward_on_mesh(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> xla.Gradients:
    backward = functools.partial(tpu_backward, rate=rate)
    return cast(xla.Gradients, on_each_device(backward, inputs, gradient, axes=(WIDE,), out_axes=(WIDE,) * 3))


_attention = xla.with_backward_from_inputs(_forward_on_mesh, _backward_on_mesh)


def tpu_forward(inputs: AttentionInputs, rate: float, interpret: bool = False) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`, with dropout of `rate`; `inputs.bias` must be None.

    If `interpret` is True, the kernel runs on any platform, slowly.
    """
    tensors = (inputs.q, inputs.k, inputs.v)
    (context,) = _call_per_head_group(
        _forward_kernel, inputs, tensors, rate, outputs=1, products=2, interpret=interpret
    )
    return cast(jax.Array, context)


def tpu_backward(
    inputs: AttentionInputs, gradient: jax.Array, rate: float, interpret: bool = False
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the gradients of q, k and v from the gradient of the attention output."""
    tensors = (inputs.q, inputs.k, inputs.v, gradient)
    gradients = _call_per_head_group(
        _backward_kernel, inputs, tensors, rate, outputs=3, products=5, interpret=interpret
    )
    return cast(tuple[jax.Array, jax.Array, jax.Array], gradients)


def _call_per_head_group(
    kernel: Callable[..., None],
    inputs: AttentionInputs,
    tensors: tuple[jax.Array, ...],
    rate: float,
    outputs: int,
    products: int,
    interpret: bool,
) -> Any:
    """Run a program of the kernel for each sequence and each group of heads; the heads of a group fill the lanes."""
    mask, segments, keys, radius = inputs.mask, inputs.segments, inputs.dropout_keys, inputs.radius
    (batch, length, width), heads = tensors[0].shape, keys.shape[1]
    group = math.lcm(LANES, width // heads)
    group = width if width % group else group
    tile = pl.BlockSpec((1, length, group), lambda row, column: (row, 0, column))
    masks = [mask[:, None, :]]
    if segments is not None:
        # A row holds the segments of the keys, with 0 for keys that no query reads. A column holds the segments of the
        # queries, which are never 0.
        masks = [jnp.where(mask != 0, segments, 0)[:, None, :], jnp.where(segments != 0, segments, -1)[:, :, None]]
    radii = [] if radius is None else [jnp.reshape(jnp.asarray(radius, jnp.int32), (1, 1))]
    output = jax.ShapeDtypeStruct(tensors[0].shape, tensors[0].dtype)
    return pl.pallas_call(
        functools.partial(kernel, heads=heads * group // width, rate=rate),
        grid=(batch, width // group),
        in_specs=[
            pl.BlockSpec((1, heads, 2), lambda row, column: (row, 0, 0), memory_space=pltpu.SMEM),
            (
                [pl.BlockSpec((1, *mask.shape[1:]), lambda row, column: (row, 0, 0)) for mask in masks],
                [pl.BlockSpec((1, 1), lambda row, column: (0, 0), memory_space=pltpu.SMEM) for _ in radii],
            ),
            *[tile] * len(tensors),
        ],
        out_specs=(tile,) * outputs,
        out_shape=(output,) * outputs,
        cost_estimate=pl.CostEstimate(
            flops=products * 2 * batch * width * length**2,
            bytes_accessed=(len(tensors) + outputs) * output.size * output.dtype.itemsize,
            transcendentals=batch * heads * length**2,
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(keys, (masks, radii), *tensors)


def _forward_kernel(keys: Any, masks: Any, q: Any, k: Any, v: Any, context: Any, *, heads: int, rate: float) -> None:
    """Write the attention output of the heads that a program of the kernel computes."""
    for head, columns in _heads_of_program(q, heads):
        _, dropped, _ = _probabilities(keys, masks, q, k, head, columns, rate)
        context[0, :, columns] = _float32_einsum("qk,kd->qd", dropped.astype(v.dtype), v[0, :, columns]).astype(
            context.dtype
        )


def _backward_kernel(
    keys: Any, masks: Any, q: Any, k: Any, v: Any, gradient: Any, dq: Any, dk: Any, dv: Any, *, heads: int, rate: float
) -> None:
    """Write the gradients of q, k and v for the heads that a program of the kernel computes."""
    for head, columns in _heads_of_program(q, heads):
        p, dropped, drop = _probabilities(keys, masks, q, k, head, columns, rate)
        g = gradient[0, :, columns]
        dv[0, :, columns] = _float32_einsum("qk,qd->kd", dropped.astype(g.dtype), g).astype(dv.dtype)
        dp = drop(_float32_einsum("qd,kd->qk", g, v[0, :, columns]))
        scale = (q.shape[-1] // heads) ** -0.5
        ds = p * (dp - jnp.sum(dp * p, axis=-1, keepdims=True)) * scale
        ds = jnp.where(_readable_mask(masks), ds, 0.0).astype(q.dtype)  # has an effect only in a row that reads no key
        dq[0, :, columns] = _float32_einsum("qk,kd->qd", ds, k[0, :, columns]).astype(dq.dtype)
        dk[0, :, columns] = _float32_einsum("qk,qd->kd", ds, q[0, :, columns]).astype(dk.dtype)


class _HeadColumns(NamedTuple):
    """The index of a head, and the columns of this head in a block of the arrays."""

    head: Any
    columns: slice


def _heads_of_program(q: Any, heads: int) -> list[_HeadColumns]:
    """Return the index and the columns of each head of the program."""
    size, first = q.shape[-1] // heads, pl.program_id(1) * heads
    return [_HeadColumns(first + head, slice(head * size, (head + 1) * size)) for head in range(heads)]


def _readable_mask(masks: Any) -> jax.Array:
    """Return the mask of readable keys, bool `[length, length]`, or `[1, length]` if all queries have an equal mask."""
    (keys, *queries), radii = masks
    readable = queries[0][0] == keys[0] if queries else keys[0] != 0
    for radius in radii:
        row, column = (jax.lax.broadcasted_iota(jnp.int32, (keys.shape[-1],) * 2, axis) for axis in (0, 1))
        readable &= jnp.abs(row - column) <= radius[0, 0]
    return cast(jax.Array, readable)


class _Probabilities(NamedTuple):
    """Attention probabilities before and after dropout, float32 `[length, length]`, and the dropout function."""

    probabilities: jax.Array
    dropped: jax.Array
    drop: Callable[[jax.Array], jax.Array]


def _probabilities(keys: Any, masks: Any, q: Any, k: Any, head: Any, columns: slice, rate: float) -> _Probabilities:
    """Return probabilities, probabilities after dropout (float32 `[length, length]`), and a dropout function."""
    scale = (columns.stop - columns.start) ** -0.5
    scores = _float32_einsum("qd,kd->qk", q[0, :, columns], k[0, :, columns]) * scale
    scores = jnp.where(_readable_mask(masks), scores, MASKED_SCORE)
    exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    p = exponentials / jnp.sum(exponentials, axis=-1, keepdims=True)
    if rate == 0:
        return _Probabilities(p, p, lambda x: x)
    row, column = (jax.lax.broadcasted_iota(jnp.uint32, p.shape, axis) for axis in (0, 1))
    keep = keep_mask(row * jnp.uint32(p.shape[1]) + column, keys[0, head, 0], keys[0, head, 1], rate)

    def drop(x: jax.Array) -> jax.Array:
        return jnp.where(keep, x * (1 / (1 - rate)), 0.0)

    return _Probabilities(p, drop(p), drop)


def _float32_einsum(axes: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return the einsum of two arrays, accumulated in float32."""
    return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)
