"""Attention of whole rows in a TPU's vector memory: scores and probabilities never reach HBM (after Dao et al. 2022).

Rows of BERT are short: the scores of a head, float32 `[length, length]`, fit into vector memory as they are, so that no
running softmax is needed. The backward pass computes them again from q, k and v. The dropout mask is that of
models/dropout.py, element for element. In packed rows a query reads the keys of its own segment alone: what a row of
the mask and a column of segments have in common.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bert_jax.models.dropout import keep_mask

LANES = 128  # columns of a vector register: a block is as wide, or as wide as all heads
MAX_LENGTH = 1024  # a few [length, length] arrays have to fit into 16 MiB
MASKED_SCORE = -1e9  # as in attention.py


def fits(length: int, width: int, heads: int) -> bool:
    """Whether the kernels take rows of this length with `heads` heads of `width / heads` columns."""
    return length <= MAX_LENGTH and length % 8 == 0 and (width // heads) % 8 == 0


def forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    *,
    rate: float,
    interpret: bool = False,
) -> tuple[jax.Array]:
    """The context, as q: `[batch, length, heads * head_dim]`.

    `mask`: int32 `[batch, length]`, 0 where a key may not be read; `segments`: likewise, the number of the segment that
    a query reads alone, or None; `keys`: uint32 `[batch, heads, 2]`, of the dropout of `rate` of each head. `interpret`
    runs the kernel on any platform, slowly.
    """
    return _call(_forward_kernel, (q, k, v), mask, segments, keys, rate, outputs=1, products=2, interpret=interpret)


def backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    gradient: jax.Array,
    *,
    rate: float,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v from that of the context."""
    tensors = (q, k, v, gradient)
    return _call(_backward_kernel, tensors, mask, segments, keys, rate, outputs=3, products=5, interpret=interpret)


def _call(
    kernel: Callable[..., None],
    tensors: tuple[jax.Array, ...],
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    rate: float,
    outputs: int,
    products: int,
    interpret: bool,
) -> Any:
    """One program a row and group of heads; a group is as many heads as fill the lanes."""
    (batch, length, width), heads = tensors[0].shape, keys.shape[1]
    group = math.lcm(LANES, width // heads)
    group = width if width % group else group
    tile = pl.BlockSpec((1, length, group), lambda row, column: (row, 0, column))
    masks = [mask[:, None, :]]
    if segments is not None:  # of the keys, 0 where none may be read; of the queries, which find no 0
        masks = [jnp.where(mask != 0, segments, 0)[:, None, :], jnp.where(segments != 0, segments, -1)[:, :, None]]
    like = jax.ShapeDtypeStruct(tensors[0].shape, tensors[0].dtype)
    return pl.pallas_call(
        functools.partial(kernel, heads=heads * group // width, rate=rate),
        grid=(batch, width // group),
        in_specs=[
            pl.BlockSpec((1, heads, 2), lambda row, column: (row, 0, 0), memory_space=pltpu.SMEM),
            [pl.BlockSpec((1, *one.shape[1:]), lambda row, column: (row, 0, 0)) for one in masks],
            *[tile] * len(tensors),
        ],
        out_specs=(tile,) * outputs,
        out_shape=(like,) * outputs,
        cost_estimate=pl.CostEstimate(
            flops=products * 2 * batch * width * length**2,
            bytes_accessed=(len(tensors) + outputs) * like.size * like.dtype.itemsize,
            transcendentals=batch * heads * length**2,
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(keys, masks, *tensors)


def _forward_kernel(keys: Any, masks: Any, q: Any, k: Any, v: Any, context: Any, *, heads: int, rate: float) -> None:
    for head, columns in _heads(q, heads):
        _, dropped, _ = _probabilities(keys, masks, q, k, head, columns, rate)
        context[0, :, columns] = _product("qk,kd->qd", dropped.astype(v.dtype), v[0, :, columns]).astype(context.dtype)


def _backward_kernel(
    keys: Any, masks: Any, q: Any, k: Any, v: Any, gradient: Any, dq: Any, dk: Any, dv: Any, *, heads: int, rate: float
) -> None:
    for head, columns in _heads(q, heads):
        p, dropped, drop = _probabilities(keys, masks, q, k, head, columns, rate)
        g = gradient[0, :, columns]
        dv[0, :, columns] = _product("qk,qd->kd", dropped.astype(g.dtype), g).astype(dv.dtype)
        dp = drop(_product("qd,kd->qk", g, v[0, :, columns]))
        scale = (q.shape[-1] // heads) ** -0.5
        ds = p * (dp - jnp.sum(dp * p, axis=-1, keepdims=True)) * scale
        ds = jnp.where(_readable(masks), ds, 0.0).astype(q.dtype)  # matters where a row may read nothing at all
        dq[0, :, columns] = _product("qk,kd->qd", ds, k[0, :, columns]).astype(dq.dtype)
        dk[0, :, columns] = _product("qk,qd->kd", ds, q[0, :, columns]).astype(dk.dtype)


def _heads(q: Any, heads: int) -> list[tuple[Any, slice]]:
    """Number and columns of each head of this program."""
    size, first = q.shape[-1] // heads, pl.program_id(1) * heads
    return [(first + head, slice(head * size, (head + 1) * size)) for head in range(heads)]


def _readable(masks: Any) -> jax.Array:
    """bool `[1, length]`, or of packed rows `[length, length]`: which keys a query may read."""
    keys, *queries = masks
    return queries[0][0] == keys[0] if queries else keys[0] != 0


def _probabilities(
    keys: Any, masks: Any, q: Any, k: Any, head: Any, columns: slice, rate: float
) -> tuple[jax.Array, jax.Array, Callable[[jax.Array], jax.Array]]:
    """float32 `[length, length]`: probabilities, the same after dropout, and the dropout as a function."""
    scale = (columns.stop - columns.start) ** -0.5
    scores = _product("qd,kd->qk", q[0, :, columns], k[0, :, columns]) * scale
    scores = jnp.where(_readable(masks), scores, MASKED_SCORE)
    exponentials = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    p = exponentials / jnp.sum(exponentials, axis=-1, keepdims=True)
    if rate == 0:
        return p, p, lambda x: x
    row, column = (jax.lax.broadcasted_iota(jnp.uint32, p.shape, axis) for axis in (0, 1))
    kept = keep_mask(row * jnp.uint32(p.shape[1]) + column, keys[0, head, 0], keys[0, head, 1], rate)

    def drop(x: jax.Array) -> jax.Array:
        return jnp.where(kept, x * (1 / (1 - rate)), 0.0)

    return p, drop(p), drop


def _product(axes: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(axes, a, b, preferred_element_type=jnp.float32)
