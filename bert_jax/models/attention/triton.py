"""Attention on GPUs by tiles in shared memory, in Pallas for Triton: scores never reach HBM (Dao et al. 2022).

A program has a block of queries of one head and passes over the keys with a running softmax. The backward pass computes
the scores again, once for a block of keys and once for a block of queries. The dropout mask is that of
models/dropout.py, element for element; cuDNN's kernel has none here.

Instructions for each score limit the speed, not memory: what is the same for a row or a column is computed once for it.
Scores are in units of log 2. A bias of keys adds the same to all scores of a query, so that no probability has it.
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

UNIT = math.log2(math.e)


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
    context, partition = map(save_for_backward, _forward_on_mesh(inputs, rate, reaches))
    return context, (inputs, context, partition)


def _pull(rate: float, reaches: RadiusCounts, kept: Any, gradient: jax.Array) -> tuple[AttentionInputs]:
    inputs, *more = kept
    kernel = functools.partial(backward, rate=rate, reaches=reaches)
    axes, more = (WIDE, BY_HEAD, WIDE), (*more, gradient)
    outputs = (JOINT, JOINT) if inputs.fused_qkv else (WIDE, WIDE, WIDE)
    found = on_each_device(kernel, inputs, *more, axes=axes, out_axes=outputs)
    if not inputs.fused_qkv:
        return (partial_inputs(q=found[0], k=found[1], v=found[2]),)
    products, sums = found
    biases = sums.sum(axis=(0, 1)).astype(inputs.fused_qkv.biases.dtype)
    return (partial_inputs(fused_qkv=FusedQKV(products, biases)),)


_attend.defvjp(_keep, _pull)


def _forward_on_mesh(inputs: AttentionInputs, rate: float, reaches: RadiusCounts) -> tuple[jax.Array, jax.Array]:
    kernel = functools.partial(forward, rate=rate, reaches=reaches)
    found: tuple[jax.Array, jax.Array] = on_each_device(kernel, inputs, axes=(), out_axes=(WIDE, BY_HEAD))
    return found


def forward(
    inputs: AttentionInputs, rate: float, reaches: RadiusCounts = EVERYWHERE, interpret: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Return the context, and the log of the sum of each query's exponentials, float32 `[batch, heads, length]`.

    `reaches` only go into the kernel's name, from which the dry run counts its FLOPs; `interpret` runs on any platform,
    slowly.
    """
    (batch, length, _), heads = _context(inputs).shape, inputs.dropout_keys.shape[1]
    writes = (("tile", _context(inputs)), ("row", jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)))
    name = f"attention_forward_{visited_pairs(length, reaches)}_pairs"
    found: tuple[jax.Array, jax.Array] = _call(_forward_kernel, name, inputs, (), writes, rate, 3, interpret)
    return found


def backward(
    inputs: AttentionInputs,
    context: jax.Array,
    partition: jax.Array,
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
    reads = [("whole", gradient), ("whole row", partition), ("whole row", across)]
    name = f"attention_backward_{visited_pairs(context.shape[1], reaches)}_pairs"
    stages = 2 if rate else 3  # a third one costs registers that the dropout needs: 900 in place of 869 us at 64 x 512
    found: tuple[jax.Array, ...] = _call(_backward_kernel, name, inputs, reads, writes, rate, stages, interpret)
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
    stages: int,
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
    which = _Which(block, rate, inputs.segments is not None, inputs.radius is not None)
    return pl.pallas_call(
        functools.partial(kernel, which=which, number=4 + len(maps)),
        grid=(length // block, batch, heads),
        in_specs=[specs[kind] for kind, _ in reads],
        out_specs=tuple(specs[kind] for kind, _ in writes),
        out_shape=tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in writes),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=stages),
        interpret=interpret,
        name=name,
    )(*(x for _, x in reads))


class _Which(NamedTuple):
    """What is known of a kernel when it is compiled."""

    block: int
    rate: float
    packed: bool
    windows: bool


class _Head(NamedTuple):
    """What all tiles of scores of one head read: references to arrays."""

    which: _Which
    keys: Any  # uint32 [2], of the dropout
    reach: Any  # int32 [1]
    of_queries: Any  # int32 [length]: a query reads the keys of its own number
    of_keys: Any
    maps: tuple[Any, ...]  # q, k and v [length, head_dim]; or all of them [length, 3, head_dim]
    biases: Any  # of all of them [3, head_dim], or None

    def read(self, one: int, number: Any) -> jax.Array:
        """A block of queries (0), keys (1) or values (2), without its bias."""
        rows = self.of(number)
        return self.maps[one][rows, :] if self.biases is None else self.maps[0][rows, one, :]

    def of(self, number: Any) -> Any:
        """The slice of a block."""
        return pl.ds(number * self.which.block, self.which.block)

    def near(self, number: Any) -> tuple[Any, Any]:
        """The first of the blocks in reach of a block, and the one after the last."""
        block, length = self.which.block, self.of_keys.shape[0]
        if not self.which.windows:
            return 0, length // block
        begin = number * block
        first = jax.lax.div(jnp.maximum(begin - self.reach[0], 0), block)
        last = jax.lax.div(jnp.minimum(begin + block - 1 + self.reach[0], length - 1), block)
        return first, last + 1

    def mask(self, column: Any) -> jax.Array:
        """What is added to the scores of each key of a block, beside what its query decides."""
        return jnp.where(self.of_keys[self.of(column)] != 0, 0.0, MASKED_SCORE)


class _Tile(NamedTuple):
    """A block of queries and one of keys: arrays `[queries, keys]`, or `[keys, queries]` where it is turned."""

    head: _Head
    row: Any  # the numbers of the blocks
    column: Any
    turned: bool = False

    def queries(self, x: jax.Array) -> jax.Array:
        """A value of each query, for the tile."""
        return x[None, :] if self.turned else x[:, None]

    def keys(self, x: jax.Array) -> jax.Array:
        """A value of each key, for the tile."""
        return x[:, None] if self.turned else x[None, :]

    def product(self, of_queries: jax.Array, of_keys: jax.Array) -> jax.Array:
        """Vectors of queries times vectors of keys, float32."""
        return triton.dot(of_keys, of_queries.T) if self.turned else triton.dot(of_queries, of_keys.T)

    def scores(self, q: jax.Array, k: jax.Array, added: jax.Array) -> jax.Array:
        """In units of log 2; `added` to those of each key has the mask."""
        head, which = self.head, self.head.which
        scores = self.product(q, k) * (UNIT * q.shape[-1] ** -0.5) + self.keys(added)
        rows, columns = head.of(self.row), head.of(self.column)
        if which.packed:
            same = self.queries(head.of_queries[rows]) == self.keys(head.of_keys[columns])
            scores = jnp.where(same, scores, MASKED_SCORE)
        if which.windows:
            numbers, others = self._numbers()
            scores = jnp.where(jnp.abs(numbers - others) <= head.reach[0], scores, MASKED_SCORE)
        return scores

    def drop(self, x: jax.Array, instead: Any = 0.0) -> jax.Array:
        """The tile with `instead` where dropout drops; the rest is not scaled."""
        which = self.head.which
        if which.rate == 0:
            return x
        numbers, others = self._numbers()
        index = (numbers * self.head.of_keys.shape[0] + others).astype(jnp.uint32)
        return jnp.where(keep_mask(index, self.head.keys[0], self.head.keys[1], which.rate), x, instead)

    def _numbers(self) -> tuple[jax.Array, jax.Array]:
        within, block = jax.lax.iota(jnp.int32, self.head.which.block), self.head.which.block
        return self.queries(self.row * block + within), self.keys(self.column * block + within)


def _head(refs: Sequence[Any], which: _Which) -> _Head:
    keys, reach, of_queries, of_keys, *maps = refs
    biases = maps.pop() if len(maps) == 2 else None
    return _Head(which, keys, reach, of_queries, of_keys, tuple(maps), biases)


def _forward_kernel(*refs: Any, number: int, which: _Which) -> None:
    head, (context, partition), row = _head(refs[:number], which), refs[number:], pl.program_id(0)
    biases, queries = head.biases, head.read(0, row)
    queries = queries if biases is None else queries + biases[0, :]

    def step(column: Any, state: Any) -> Any:
        total, largest, exponentials, kept = state
        tile, values = _Tile(head, row, column), head.read(2, column)
        scores = tile.scores(queries, head.read(1, column), head.mask(column))
        now = jnp.maximum(largest, jnp.max(scores, axis=1))
        p, shrink = jnp.exp2(scores - now[:, None]), jnp.exp2(largest - now)
        dropped = tile.drop(p)
        total = total * shrink[:, None] + triton.dot(dropped.astype(values.dtype), values)
        exponentials = exponentials * shrink + jnp.sum(p, axis=1)
        if biases is not None:
            kept = kept * shrink + jnp.sum(dropped, axis=1)
        return total, now, exponentials, kept

    zero = jnp.zeros((which.block,), jnp.float32)
    state = (jnp.zeros(queries.shape, jnp.float32), zero - jnp.inf, zero, zero)
    total, largest, exponentials, kept = jax.lax.fori_loop(*head.near(row), step, state)
    if biases is not None:
        total += kept[:, None] * biases[2, :].astype(jnp.float32)[None, :]
    context[...] = (total * (1 / (exponentials * (1 - which.rate)))[:, None]).astype(context.dtype)
    # A query that reads nothing has no gradient.
    partition[...] = jnp.where(largest > MASKED_SCORE / 2, largest + jnp.log2(exponentials), jnp.inf)


def _gradients(
    tile: _Tile, scores: jax.Array, dp: jax.Array, partition: jax.Array, across: jax.Array, of_values: Any = 0.0
) -> tuple[jax.Array, jax.Array]:
    """The probabilities of a tile after dropout, and the gradients of its scores, both to be scaled.

    `dp` is the gradient of the probabilities without `of_values`, the share of the values' bias; that and what follows
    `dp` are values of queries.
    """
    unscale = 1 / (1 - tile.head.which.rate)
    p = jnp.exp2(scores - tile.queries(partition))
    kept = dp * unscale + tile.queries(of_values * unscale - across)
    return tile.drop(p), p * tile.drop(kept, tile.queries(-across))


def _of_keys(head: _Head, number: Any, k: jax.Array) -> jax.Array:
    """What is added to the scores of each key of a block: the mask, and its product with the queries' bias."""
    mask = head.mask(number)
    if head.biases is None:
        return mask
    return mask + _by_token(k, head.biases[0, :]) * (UNIT * k.shape[-1] ** -0.5)


def _by_token(x: jax.Array, y: jax.Array) -> jax.Array:
    """The inner products of vectors of tokens."""
    return jnp.sum(x.astype(jnp.float32) * y.astype(jnp.float32), axis=1)


def _backward_kernel(*refs: Any, number: int, which: _Which) -> None:
    head, own = _head(refs[:number], which), pl.program_id(0)
    gradient, partition, across, *written = refs[number:]
    biases, (q, k, v), g = head.biases, (head.read(i, own) for i in range(3)), gradient[head.of(own), :]
    added, of_values = _of_keys(head, own, k), jnp.zeros((which.block,), jnp.float32)
    if biases is not None:
        of_values = _by_token(g, biases[2, :])
        q, v = q + biases[0, :], v + biases[2, :]

    def into_keys(row: Any, state: Any) -> Any:
        into_k, into_v, sums = state
        rows, tile, queries = head.of(row), _Tile(head, row, own, turned=True), head.read(0, row)
        scores, dp = tile.scores(queries, k, added), tile.product(gradient[rows, :], v)
        p, ds = _gradients(tile, scores, dp, partition[rows], across[rows])
        into_k += triton.dot(ds.astype(k.dtype), queries)
        into_v += triton.dot(p.astype(k.dtype), gradient[rows, :])
        return into_k, into_v, sums if biases is None else sums + jnp.sum(ds, axis=1)

    def into_queries(column: Any, state: Any) -> Any:
        tile, keys, rows = _Tile(head, own, column), head.read(1, column), head.of(own)
        scores, dp = tile.scores(q, keys, head.mask(column)), tile.product(g, head.read(2, column))
        _, ds = _gradients(tile, scores, dp, partition[rows], across[rows], of_values)
        return state + triton.dot(ds.astype(k.dtype), keys)

    zero, near = jnp.zeros(q.shape, jnp.float32), head.near(own)
    into_k, into_v, sums = jax.lax.fori_loop(*near, into_keys, (zero, zero, jnp.zeros((which.block,), jnp.float32)))
    if biases is not None:
        into_k += sums[:, None] * biases[0, :].astype(jnp.float32)[None, :]
    into_q = jax.lax.fori_loop(*near, into_queries, zero)
    scale = q.shape[-1] ** -0.5
    for i, one in enumerate((into_q * scale, into_k * scale, into_v * (1 / (1 - which.rate)))):
        if biases is None:
            written[i][...] = one.astype(gradient.dtype)
        else:
            products, sums_of = written
            products[:, i, :], sums_of[i, :] = one.astype(gradient.dtype), one.sum(axis=0)
