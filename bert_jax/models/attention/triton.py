"""Attention on GPUs by tiles in shared memory, in Pallas for Triton: scores never reach HBM (Dao et al. 2022).

A program has a block of queries of one head and passes over the keys with a running softmax. The backward pass computes
the scores again, once for a block of keys and once for a block of queries. The dropout mask is that of
models/dropout.py, element for element; cuDNN's kernel has none here.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bert_jax.models.attention import xla
from bert_jax.models.attention.devices import BY_HEAD, JOINT, WIDE, on_each_device
from bert_jax.models.attention.inputs import (
    MASKED_SCORE,
    NO_LIMIT,
    AttentionInputs,
    FusedQKV,
    RadiusCounts,
    partial_inputs,
    split_heads,
)
from bert_jax.models.dropout import keep_mask
from bert_jax.models.layers import save_for_backward

LARGEST_BLOCK, SMALLEST_BLOCK = 64, 16  # rows and columns of a tile; 16 is the least that a tensor core multiplies
HEAD_SIZES = (16, 32, 64, 128)  # features: a power of 2, as all sizes of a tile
EVERYWHERE: RadiusCounts = ((NO_LIMIT, 1),)

Stats = tuple[jax.Array, jax.Array]  # largest score and sum of exponentials of each query, [batch, heads, length]


def fits(inputs: AttentionInputs, rate: float) -> bool:
    """Return whether the kernel computes these inputs, at any rate of dropout."""
    _, length, width = _context(inputs).shape
    whole = math.gcd(length, LARGEST_BLOCK) >= SMALLEST_BLOCK and width // inputs.dropout_keys.shape[1] in HEAD_SIZES
    return whole and (inputs.bias, inputs.distances, inputs.global_tokens) == (None,) * 3


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _attend(inputs: AttentionInputs, rate: float, reaches: RadiusCounts) -> jax.Array:
    return _forward_on_mesh(inputs, rate, reaches)[0]


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`, with dropout of `rate`; by XLA for lengths and heads that do not fit."""
    if not fits(inputs, rate):
        return xla.attend(inputs, rate)
    return _attend(dataclasses.replace(inputs, window=None), rate, _reaches(inputs))


def _reaches(inputs: AttentionInputs) -> RadiusCounts:
    """The reaches of the layers that share this program: a scanned program runs all layers."""
    if isinstance(inputs.radius, int):
        return ((inputs.radius, 1),)
    if inputs.radius is None:
        return EVERYWHERE
    return inputs.window.radius_counts if inputs.window and inputs.window.radius_counts else EVERYWHERE


def visited_pairs(length: int, reaches: RadiusCounts) -> int:
    """Return the number of query-key pairs in the tiles that a head visits; of several layers, the mean."""
    block = _block(length)
    begin = np.arange(0, length, block)

    def tiles(reach: int) -> int:  # the bounds are those of _Head.near
        first, last = np.maximum(begin - reach, 0), np.minimum(begin + block - 1 + reach, length - 1)
        return int((last // block - first // block + 1).sum())

    total = sum(number * tiles(reach) for reach, number in reaches)
    return round(block**2 * total / sum(number for _, number in reaches))


def _keep(inputs: AttentionInputs, rate: float, reaches: RadiusCounts) -> tuple[jax.Array, Any]:
    context, stats = jax.tree.map(save_for_backward, _forward_on_mesh(inputs, rate, reaches))
    return context, (inputs, context, stats)


def _pull(rate: float, reaches: RadiusCounts, kept: Any, gradient: jax.Array) -> tuple[AttentionInputs]:
    inputs, context, stats = kept
    kernel = functools.partial(backward, rate=rate, reaches=reaches)
    axes, more = (WIDE, (BY_HEAD, BY_HEAD), WIDE), (context, stats, gradient)
    outputs = (JOINT, JOINT) if inputs.fused_qkv else (WIDE, WIDE, WIDE)
    found = on_each_device(kernel, inputs, *more, axes=axes, out_axes=outputs)
    if not inputs.fused_qkv:
        return (partial_inputs(q=found[0], k=found[1], v=found[2]),)
    products, sums = found
    biases = sums.sum(axis=(0, 1)).astype(inputs.fused_qkv.biases.dtype)
    return (partial_inputs(fused_qkv=FusedQKV(products, biases)),)


_attend.defvjp(_keep, _pull)


def _forward_on_mesh(inputs: AttentionInputs, rate: float, reaches: RadiusCounts) -> tuple[jax.Array, Stats]:
    kernel = functools.partial(forward, rate=rate, reaches=reaches)
    found: tuple[jax.Array, Stats] = on_each_device(kernel, inputs, axes=(), out_axes=(WIDE, (BY_HEAD, BY_HEAD)))
    return found


def forward(
    inputs: AttentionInputs, rate: float, reaches: RadiusCounts = EVERYWHERE, interpret: bool = False
) -> tuple[jax.Array, Stats]:
    """Return the context, and what `backward` reads beside it.

    `reaches` only go into the kernel's name, from which the dry run counts its FLOPs; `interpret` runs on any platform,
    slowly.
    """
    (batch, length, _), heads = _context(inputs).shape, inputs.dropout_keys.shape[1]
    stats = jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)
    writes = (("tile", _context(inputs)), ("row", stats), ("row", stats))
    name = f"attention_forward_{visited_pairs(length, reaches)}_pairs"
    context, *found = _call(_forward_kernel, name, inputs, (), writes, rate, interpret)
    return context, tuple(found)


def backward(
    inputs: AttentionInputs,
    context: jax.Array,
    stats: Stats,
    gradient: jax.Array,
    rate: float,
    reaches: RadiusCounts = EVERYWHERE,
    interpret: bool = False,
) -> tuple[jax.Array, ...]:
    """Return the gradients of q, k and v from that of the context.

    Of joint ones: that of their products, and its sums over blocks of tokens, float32 `[batch, blocks, 3, width]`.
    """
    product = gradient.astype(jnp.float32) * context.astype(jnp.float32)
    across = jnp.swapaxes(split_heads(product, inputs.dropout_keys.shape[1]).sum(-1), 1, 2)
    if inputs.fused_qkv:
        products = inputs.fused_qkv.products
        batch, length, _, width = products.shape
        sums = jax.ShapeDtypeStruct((batch, length // _block(length), 3, width), jnp.float32)
        writes = [("joint tile", products), ("joint sums", sums)]
    else:
        writes = [("tile", inputs.q)] * 3
    reads = [("whole", gradient), *(("whole row", x) for x in (*stats, across))]
    name = f"attention_backward_{visited_pairs(context.shape[1], reaches)}_pairs"
    found: tuple[jax.Array, ...] = _call(_backward_kernel, name, inputs, reads, writes, rate, interpret)
    return found


def _context(inputs: AttentionInputs) -> jax.ShapeDtypeStruct:
    """The shape and dtype of the context."""
    if inputs.fused_qkv is None:
        return jax.ShapeDtypeStruct(inputs.q.shape, inputs.q.dtype)
    batch, length, _, width = inputs.fused_qkv.products.shape
    return jax.ShapeDtypeStruct((batch, length, width), inputs.fused_qkv.products.dtype)


def _block(length: int) -> int:
    return math.gcd(length, LARGEST_BLOCK)


def _call(
    kernel: Callable[..., None],
    name: str,
    inputs: AttentionInputs,
    reads: Sequence[tuple[str, Any]],
    writes: Sequence[tuple[str, Any]],
    rate: float,
    interpret: bool,
) -> Any:
    """One program per block of tokens, sequence and head; `reads` and `writes` are kinds of blocks, and arrays."""
    (batch, length, width), heads, mask = _context(inputs).shape, inputs.dropout_keys.shape[1], inputs.mask
    size, block = width // heads, _block(length)
    specs = {
        "tile": pl.BlockSpec((None, block, size), lambda i, row, head: (row, i, head)),
        "whole": pl.BlockSpec((None, length, size), lambda i, row, head: (row, 0, head)),
        "row": pl.BlockSpec((None, None, block), lambda i, row, head: (row, head, i)),
        "whole row": pl.BlockSpec((None, None, length), lambda i, row, head: (row, head, 0)),
        "mask": pl.BlockSpec((None, length), lambda i, row, head: (row, 0)),
        "key": pl.BlockSpec((None, None, 2), lambda i, row, head: (row, head, 0)),
        "reach": pl.BlockSpec((1,), lambda i, row, head: (0,)),
        # Of queries, keys and values in one array.
        "joint whole": pl.BlockSpec((None, length, 3, size), lambda i, row, head: (row, 0, 0, head)),
        "joint tile": pl.BlockSpec((None, block, 3, size), lambda i, row, head: (row, i, 0, head)),
        "joint sums": pl.BlockSpec((None, None, 3, size), lambda i, row, head: (row, i, 0, head)),
        "biases": pl.BlockSpec((3, size), lambda i, row, head: (0, head)),
    }
    # A query reads the keys of its own number; no query has 0, and no key -1.
    of_keys = mask if inputs.segments is None else jnp.where(mask != 0, inputs.segments, 0)
    of_queries = (
        jnp.ones_like(mask) if inputs.segments is None else jnp.where(inputs.segments != 0, inputs.segments, -1)
    )
    reach = jnp.reshape(jnp.asarray(NO_LIMIT if inputs.radius is None else inputs.radius, jnp.int32), (1,))
    if inputs.fused_qkv:
        maps = [("joint whole", inputs.fused_qkv.products), ("biases", inputs.fused_qkv.biases)]
    else:
        maps = [("whole", x) for x in (inputs.q, inputs.k, inputs.v)]
    reads = [("key", inputs.dropout_keys), ("reach", reach), ("mask", of_queries), ("mask", of_keys), *maps, *reads]
    return pl.pallas_call(
        functools.partial(kernel, block=block, rate=rate, number=4 + len(maps)),
        grid=(length // block, batch, heads),
        in_specs=[specs[kind] for kind, _ in reads],
        out_specs=tuple(specs[kind] for kind, _ in writes),
        out_shape=tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in writes),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name=name,
    )(*(x for _, x in reads))


class _Head(NamedTuple):
    """What all tiles of scores of one head read: references to arrays, and sizes."""

    block: int
    rate: float
    keys: Any  # uint32 [2], of the dropout
    reach: Any  # int32 [1]
    of_queries: Any  # int32 [length]: a query reads the keys of its own number
    of_keys: Any
    maps: tuple[Any, ...]  # q, k and v [length, head_dim]; or all of them [length, 3, head_dim], and biases

    def read(self, one: int, number: Any) -> jax.Array:
        """A block of queries (0), keys (1) or values (2)."""
        if len(self.maps) == 3:
            return self.maps[one][self.of(number), :]
        products, biases = self.maps
        return products[self.of(number), one, :] + biases[one, :]

    def of(self, number: Any) -> Any:
        """The slice of a block."""
        return pl.ds(number * self.block, self.block)

    def near(self, number: Any) -> tuple[Any, Any]:
        """The first of the blocks in reach of a block, and the one after the last."""
        begin, length = number * self.block, self.of_keys.shape[0]
        first = jax.lax.div(jnp.maximum(begin - self.reach[0], 0), self.block)
        last = jax.lax.div(jnp.minimum(begin + self.block - 1 + self.reach[0], length - 1), self.block)
        return first, last + 1

    def scores(self, q: jax.Array, k: jax.Array, row: Any, column: Any) -> tuple[jax.Array, jax.Array]:
        """float32 `[block, block]` of a block of queries and one of keys, and which of them a query reads."""
        rows, columns = self._numbers(row, column)
        readable = self.of_queries[self.of(row)][:, None] == self.of_keys[self.of(column)][None, :]
        readable &= jnp.abs(rows - columns) <= self.reach[0]
        return jnp.where(readable, triton.dot(q, k.T) * q.shape[-1] ** -0.5, MASKED_SCORE), readable

    def drop(self, x: jax.Array, row: Any, column: Any) -> jax.Array:
        """The tile after dropout."""
        if self.rate == 0:
            return x
        rows, columns = self._numbers(row, column)
        index = (rows * self.of_keys.shape[0] + columns).astype(jnp.uint32)
        kept = keep_mask(index, self.keys[0], self.keys[1], self.rate)
        return jnp.where(kept, x * (1 / (1 - self.rate)), 0.0)

    def _numbers(self, row: Any, column: Any) -> tuple[jax.Array, jax.Array]:
        within = jax.lax.iota(jnp.int32, self.block)
        return (row * self.block + within)[:, None], (column * self.block + within)[None, :]


def _head(refs: Sequence[Any], block: int, rate: float) -> _Head:
    keys, reach, of_queries, of_keys, *maps = refs
    return _Head(block, rate, keys, reach, of_queries, of_keys, tuple(maps))


def _forward_kernel(*refs: Any, number: int, block: int, rate: float) -> None:
    head, (context, largest_of, sum_of), row = _head(refs[:number], block, rate), refs[number:], pl.program_id(0)
    queries = head.read(0, row)

    def step(column: Any, state: Any) -> Any:
        total, largest, exponentials = state
        scores, _ = head.scores(queries, head.read(1, column), row, column)
        now = jnp.maximum(largest, jnp.max(scores, axis=1))
        p, shrink = jnp.exp(scores - now[:, None]), jnp.exp(largest - now)
        values = head.read(2, column)
        read = triton.dot(head.drop(p, row, column).astype(values.dtype), values)
        return total * shrink[:, None] + read, now, exponentials * shrink + jnp.sum(p, axis=1)

    zero = jnp.zeros((block,), jnp.float32)
    state = (jnp.zeros(queries.shape, jnp.float32), zero - jnp.inf, zero)
    total, largest, exponentials = jax.lax.fori_loop(*head.near(row), step, state)
    context[...] = (total / exponentials[:, None]).astype(context.dtype)
    largest_of[...], sum_of[...] = largest, exponentials


def _backward_kernel(*refs: Any, number: int, block: int, rate: float) -> None:
    head, own = _head(refs[:number], block, rate), pl.program_id(0)
    gradient, largest_of, sum_of, across_of, *written = refs[number:]

    def tile(row: Any, column: Any) -> tuple[jax.Array, ...]:
        """The probabilities after dropout, the gradients of the scores, and what these are multiplied with."""
        rows, q, k = head.of(row), head.read(0, row), head.read(1, column)
        scores, readable = head.scores(q, k, row, column)
        p = jnp.exp(scores - largest_of[rows][:, None]) * (1 / sum_of[rows])[:, None]
        dp = head.drop(triton.dot(gradient[rows, :], head.read(2, column).T), row, column)
        ds = p * (dp - across_of[rows][:, None]) * q.shape[-1] ** -0.5
        ds = jnp.where(readable, ds, 0.0)  # a row that reads nothing has no gradient
        return head.drop(p, row, column), ds.astype(q.dtype), q, k

    def into_keys(row: Any, state: Any) -> Any:
        p, ds, q, _ = tile(row, own)
        into_v = triton.dot(p.astype(q.dtype).T, gradient[head.of(row), :])
        return state[0] + triton.dot(ds.T, q), state[1] + into_v

    def into_queries(column: Any, state: Any) -> Any:
        _, ds, _, k = tile(own, column)
        return state + triton.dot(ds, k)

    zero, near = jnp.zeros((block, gradient.shape[-1]), jnp.float32), head.near(own)
    into_k, into_v = jax.lax.fori_loop(*near, into_keys, (zero, zero))
    found = jax.lax.fori_loop(*near, into_queries, zero), into_k, into_v
    for i, one in enumerate(found):
        if len(written) == 3:
            written[i][...] = one.astype(gradient.dtype)
        else:
            products, sums = written
            products[:, i, :], sums[i, :] = one.astype(gradient.dtype), one.sum(axis=0)
