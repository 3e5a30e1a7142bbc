"""Attention on GPUs by tiles in shared memory, in Pallas for Triton; scores never reach HBM (Dao et al. 2022).

A program computes a block of queries of a head, and passes over the keys with a running softmax. The backward pass
recomputes the scores twice, for a block of keys and for a block of queries. The dropout mask equals the mask of
models/dropout.py, element by element; JAX's cuDNN kernel cannot apply this mask.

The speed is limited by the number of instructions per score, not by memory. So a value shared by all scores of a row or
a column is computed once. Scores are multiplied by log2(e), so that exp2 replaces exp. The bias of the keys is left
out, because this bias would add one number to all scores of a query, which changes no probability.
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
from bert_jax.models.attention.devices import BY_HEAD, FUSED_QKV, WIDE, on_each_device
from bert_jax.models.attention.inputs import (
    MASKED_SCORE,
    NO_LIMIT,
    AttentionInputs,
    FusedQKV,
    RadiusCounts,
    has_score_terms,
    inputs_with_only,
    split_heads,
)
from bert_jax.models.dropout import keep_mask
from bert_jax.models.layers import save_for_backward

MAX_BLOCK, MIN_BLOCK = 64, 16  # rows and columns of a tile; 16 is the smallest size that a tensor core multiplies
HEAD_SIZES = (16, 32, 64, 128)  # features of a head; every size of a tile is a power of 2
NO_WINDOW: RadiusCounts = ((NO_LIMIT, 1),)

UNIT = math.log2(math.e)
# The context, and the log of the sum of each query's exponentials, float32 `[batch, heads, length]`.
ContextAndLogSums = tuple[jax.Array, jax.Array]


def fits_triton(inputs: AttentionInputs, rate: float) -> bool:
    """Return whether the Triton kernel can compute attention for these inputs, at any dropout rate."""
    _, length, width = _context_shape(inputs).shape
    is_tiled = math.gcd(length, MAX_BLOCK) >= MIN_BLOCK and width // inputs.dropout_keys.shape[1] in HEAD_SIZES
    return is_tiled and not has_score_terms(inputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _attend_with_radius_counts(inputs: AttentionInputs, rate: float, radius_counts: RadiusCounts) -> jax.Array:
    return _forward_on_mesh(inputs, rate, radius_counts)[0]


def triton_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, shaped like `inputs.q`, with dropout of `rate`; XLA computes unsupported shapes."""
    if not fits_triton(inputs, rate):
        return xla.xla_attention(inputs, rate)
    return _attend_with_radius_counts(dataclasses.replace(inputs, window=None), rate, _radius_counts(inputs))


def _radius_counts(inputs: AttentionInputs) -> RadiusCounts:
    """Return pairs (window radius, number of layers with it in this program); a scanned program has all layers."""
    if isinstance(inputs.radius, int):
        return ((inputs.radius, 1),)
    if inputs.radius is None:
        return NO_WINDOW
    return inputs.window.radius_counts if inputs.window and inputs.window.radius_counts else NO_WINDOW


def mean_visited_pairs(length: int, radius_counts: RadiusCounts) -> int:
    """Return the number of query-key pairs in the tiles that a head visits, as the mean over the layers."""
    block = _block_size(length)
    begin = np.arange(0, length, block)

    def num_visited_tiles(radius: int) -> int:  # uses the bounds of _Head.blocks_in_radius
        first, last = np.maximum(begin - radius, 0), np.minimum(begin + block - 1 + radius, length - 1)
        return int((last // block - first // block + 1).sum())

    total = sum(count * num_visited_tiles(radius) for radius, count in radius_counts)
    return round(block**2 * total / sum(count for _, count in radius_counts))


def _forward_and_save(inputs: AttentionInputs, rate: float, radius_counts: RadiusCounts) -> tuple[jax.Array, Any]:
    """Return the attention output, and the arrays that the backward pass needs."""
    context, log_sums = map(save_for_backward, _forward_on_mesh(inputs, rate, radius_counts))
    return context, (inputs, context, log_sums)


def _backward_from_saved(
    rate: float, radius_counts: RadiusCounts, saved: Any, gradient: jax.Array
) -> tuple[AttentionInputs]:
    """Return the gradients of the inputs, as a tree of inputs."""
    inputs, *arrays = saved
    kernel = functools.partial(triton_backward, rate=rate, radius_counts=radius_counts)
    axes, arrays = (WIDE, BY_HEAD, WIDE), [*arrays, gradient]
    outputs = (FUSED_QKV, FUSED_QKV) if inputs.fused_qkv else (WIDE, WIDE, WIDE)
    gradients = on_each_device(kernel, inputs, *arrays, axes=axes, out_axes=outputs)
    if not inputs.fused_qkv:
        return (inputs_with_only(q=gradients[0], k=gradients[1], v=gradients[2]),)
    products, sums = gradients
    biases = sums.sum(axis=(0, 1)).astype(inputs.fused_qkv.biases.dtype)
    return (inputs_with_only(fused_qkv=FusedQKV(products, biases)),)


_attend_with_radius_counts.defvjp(_forward_and_save, _backward_from_saved)


def _forward_on_mesh(inputs: AttentionInputs, rate: float, radius_counts: RadiusCounts) -> ContextAndLogSums:
    """Call `triton_forward` on each device for its sequences and heads."""
    kernel = functools.partial(triton_forward, rate=rate, radius_counts=radius_counts)
    context_and_log_sums: ContextAndLogSums = on_each_device(kernel, inputs, axes=(), out_axes=(WIDE, BY_HEAD))
    return context_and_log_sums


def triton_forward(
    inputs: AttentionInputs, rate: float, radius_counts: RadiusCounts = NO_WINDOW, interpret: bool = False
) -> ContextAndLogSums:
    """Return the attention output, and the log-sum-exp of the scores of each query, float32 `[batch, heads, length]`.

    The kernel's name contains the pairs of `radius_counts`, from which the dry run counts FLOPs. If `interpret` is
    True, the kernel runs on any platform, slowly.
    """
    (batch, length, _), heads = _context_shape(inputs).shape, inputs.dropout_keys.shape[1]
    writes = (("tile", _context_shape(inputs)), ("row", jax.ShapeDtypeStruct((batch, heads, length), jnp.float32)))
    name = f"attention_forward_{mean_visited_pairs(length, radius_counts)}_pairs"
    outputs: ContextAndLogSums = _run_per_block(_forward_kernel, name, inputs, (), writes, rate, 3, interpret)
    return outputs


def triton_backward(
    inputs: AttentionInputs,
    context: jax.Array,
    log_sums: jax.Array,
    gradient: jax.Array,
    rate: float,
    radius_counts: RadiusCounts = NO_WINDOW,
    interpret: bool = False,
) -> tuple[jax.Array, ...]:
    """Return the gradients of q, k and v from the gradient of the attention output.

    For FusedQKV, return the gradient of `products`, and the sums of this gradient over blocks of tokens, float32
    `[batch, blocks, 3, width]`.
    """
    product = gradient.astype(jnp.float32) * context.astype(jnp.float32)
    context_products = jnp.swapaxes(split_heads(product, inputs.dropout_keys.shape[1]).sum(-1), 1, 2)
    if inputs.fused_qkv:
        products = inputs.fused_qkv.products
        batch, length, _, width = products.shape
        sums = jax.ShapeDtypeStruct((batch, length // _block_size(length), 3, width), jnp.float32)
        writes = [("fused tile", products), ("fused sums", sums)]
    else:
        writes = [("tile", inputs.q)] * 3
    reads = [("all tiles", gradient), ("all rows", log_sums), ("all rows", context_products)]
    name = f"attention_backward_{mean_visited_pairs(context.shape[1], radius_counts)}_pairs"
    stages = 2 if rate else 3  # dropout needs the registers of a third stage: 900 us instead of 869 us at 64 x 512
    outputs: tuple[jax.Array, ...] = _run_per_block(
        _backward_kernel, name, inputs, reads, writes, rate, stages, interpret
    )
    return outputs


def _context_shape(inputs: AttentionInputs) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of the attention output."""
    if inputs.fused_qkv is None:
        return jax.ShapeDtypeStruct(inputs.q.shape, inputs.q.dtype)
    batch, length, _, width = inputs.fused_qkv.products.shape
    return jax.ShapeDtypeStruct((batch, length, width), inputs.fused_qkv.products.dtype)


def _block_size(length: int) -> int:
    """Return the rows and columns of a tile."""
    return math.gcd(length, MAX_BLOCK)


def _run_per_block(
    kernel: Callable[..., None],
    name: str,
    inputs: AttentionInputs,
    reads: Sequence[tuple[str, Any]],
    writes: Sequence[tuple[str, Any]],
    rate: float,
    stages: int,
    interpret: bool,
) -> Any:
    """Run a program for each block of tokens of each head; `reads` and `writes` list pairs (key of `specs`, array)."""
    (batch, length, width), heads, mask = _context_shape(inputs).shape, inputs.dropout_keys.shape[1], inputs.mask
    size, block = width // heads, _block_size(length)
    specs = {
        "tile": pl.BlockSpec((None, block, size), lambda i, row, head: (row, i, head)),
        "all tiles": pl.BlockSpec((None, length, size), lambda i, row, head: (row, 0, head)),
        "row": pl.BlockSpec((None, None, block), lambda i, row, head: (row, head, i)),
        "all rows": pl.BlockSpec((None, None, length), lambda i, row, head: (row, head, 0)),
        "mask": pl.BlockSpec((None, length), lambda i, row, head: (row, 0)),
        "key": pl.BlockSpec((None, None, 2), lambda i, row, head: (row, head, 0)),
        "radius": pl.BlockSpec((1,), lambda i, row, head: (0,)),
        # FusedQKV: queries, keys and values in one array.
        "fused all tiles": pl.BlockSpec((None, length, 3, size), lambda i, row, head: (row, 0, 0, head)),
        "fused tile": pl.BlockSpec((None, block, 3, size), lambda i, row, head: (row, i, 0, head)),
        "fused sums": pl.BlockSpec((None, None, 3, size), lambda i, row, head: (row, i, 0, head)),
        "biases": pl.BlockSpec((3, size), lambda i, row, head: (0, head)),
    }
    # A query reads the keys with the id of the query; no query has the id 0, and no key has the id -1.
    key_ids = mask if inputs.segments is None else jnp.where(mask != 0, inputs.segments, 0)
    query_ids = jnp.ones_like(mask) if inputs.segments is None else jnp.where(inputs.segments != 0, inputs.segments, -1)
    radius = jnp.reshape(jnp.asarray(NO_LIMIT if inputs.radius is None else inputs.radius, jnp.int32), (1,))
    if inputs.fused_qkv:
        maps = [("fused all tiles", inputs.fused_qkv.products), ("biases", inputs.fused_qkv.biases)]
    else:
        maps = [("all tiles", x) for x in (inputs.q, inputs.k, inputs.v)]
    reads = [("key", inputs.dropout_keys), ("radius", radius), ("mask", query_ids), ("mask", key_ids), *maps, *reads]
    spec = _KernelSpec(block, rate, inputs.segments is not None, inputs.radius is not None)
    return pl.pallas_call(
        functools.partial(kernel, spec=spec, num_head_refs=4 + len(maps)),
        grid=(length // block, batch, heads),
        in_specs=[specs[kind] for kind, _ in reads],
        out_specs=tuple(specs[kind] for kind, _ in writes),
        out_shape=tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in writes),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=stages),
        interpret=interpret,
        name=name,
    )(*(x for _, x in reads))


class _KernelSpec(NamedTuple):
    """The compile-time constants of a kernel."""

    block: int  # rows and columns of a tile
    rate: float  # dropout rate
    is_packed: bool
    has_window: bool


class _BlockRange(NamedTuple):
    """The first block of a range, and the block after its last."""

    first: Any
    end: Any


class _Head(NamedTuple):
    """References to the arrays that all tiles of a head read."""

    spec: _KernelSpec
    keys: Any  # uint32 [2], the dropout keys
    radius: Any  # int32 [1]
    query_ids: Any  # int32 [length]: a query reads the keys with an equal id
    key_ids: Any
    maps: tuple[Any, ...]  # q, k and v [length, head_dim]; or one array [length, 3, head_dim]
    biases: Any  # biases of q, k and v [3, head_dim], or None

    def read_block(self, map_index: int, block_index: Any) -> jax.Array:
        """Return a block of queries (index 0), keys (1) or values (2), without the bias."""
        rows = self.rows_of_block(block_index)
        return self.maps[map_index][rows, :] if self.biases is None else self.maps[0][rows, map_index, :]

    def rows_of_block(self, block_index: Any) -> Any:
        """Return the slice of a block's tokens."""
        return pl.ds(block_index * self.spec.block, self.spec.block)

    def blocks_in_radius(self, block_index: Any) -> _BlockRange:
        """Return the range (first, end) of the blocks within the window of a block."""
        block, length = self.spec.block, self.key_ids.shape[0]
        if not self.spec.has_window:
            return _BlockRange(0, length // block)
        begin = block_index * block
        first = jax.lax.div(jnp.maximum(begin - self.radius[0], 0), block)
        last = jax.lax.div(jnp.minimum(begin + block - 1 + self.radius[0], length - 1), block)
        return _BlockRange(first, last + 1)

    def padding_terms(self, column: Any) -> jax.Array:
        """Return the padding mask of each key of a block, as a term of the scores."""
        return jnp.where(self.key_ids[self.rows_of_block(column)] != 0, 0.0, MASKED_SCORE)


class _TokenIndices(NamedTuple):
    """The index in the sequence of each query and of each key of a tile."""

    queries: jax.Array
    keys: jax.Array


class _Tile(NamedTuple):
    """A tile: a block of queries and a block of keys, with arrays `[queries, keys]`, or transposed arrays."""

    head: _Head
    row: Any  # index of the block of queries
    column: Any  # index of the block of keys
    transposed: bool = False

    def per_query(self, x: jax.Array) -> jax.Array:
        """Broadcast a value of each query over the tile."""
        return x[None, :] if self.transposed else x[:, None]

    def per_key(self, x: jax.Array) -> jax.Array:
        """Broadcast a value of each key over the tile."""
        return x[:, None] if self.transposed else x[None, :]

    def product(self, query_vectors: jax.Array, key_vectors: jax.Array) -> jax.Array:
        """Return the products of the vectors of queries and keys, float32."""
        if self.transposed:
            return triton.dot(key_vectors, query_vectors.T)
        return triton.dot(query_vectors, key_vectors.T)

    def masked_log2_scores(self, q: jax.Array, k: jax.Array, key_terms: jax.Array) -> jax.Array:
        """Return the scores of the tile times log2(e); `key_terms`, which include the mask, are added for each key."""
        head, spec = self.head, self.head.spec
        scores = self.product(q, k) * (UNIT * q.shape[-1] ** -0.5) + self.per_key(key_terms)
        rows, columns = head.rows_of_block(self.row), head.rows_of_block(self.column)
        if spec.is_packed:
            same_segment = self.per_query(head.query_ids[rows]) == self.per_key(head.key_ids[columns])
            scores = jnp.where(same_segment, scores, MASKED_SCORE)
        if spec.has_window:
            query_index, key_index = self._token_indices()
            scores = jnp.where(jnp.abs(query_index - key_index) <= head.radius[0], scores, MASKED_SCORE)
        return scores

    def drop(self, x: jax.Array, instead: Any = 0.0) -> jax.Array:
        """Return the tile with `instead` at dropped elements; other elements are not scaled."""
        spec = self.head.spec
        if spec.rate == 0:
            return x
        query_index, key_index = self._token_indices()
        index = (query_index * self.head.key_ids.shape[0] + key_index).astype(jnp.uint32)
        return jnp.where(keep_mask(index, self.head.keys[0], self.head.keys[1], spec.rate), x, instead)

    def _token_indices(self) -> _TokenIndices:
        """Return the index in the sequence of each query and of each key of the tile."""
        within, block = jax.lax.iota(jnp.int32, self.head.spec.block), self.head.spec.block
        return _TokenIndices(self.per_query(self.row * block + within), self.per_key(self.column * block + within))


def _head_of_references(refs: Sequence[Any], spec: _KernelSpec) -> _Head:
    """Return the references of a kernel by name."""
    keys, radius, query_ids, key_ids, *maps = refs
    biases = maps.pop() if len(maps) == 2 else None
    return _Head(spec, keys, radius, query_ids, key_ids, tuple(maps), biases)


def _forward_kernel(*refs: Any, num_head_refs: int, spec: _KernelSpec) -> None:
    """Write the attention output and the log-sum-exp of the scores for a block of queries."""
    head, (context, log_sums), row = (
        _head_of_references(refs[:num_head_refs], spec),
        refs[num_head_refs:],
        pl.program_id(0),
    )
    biases, queries = head.biases, head.read_block(0, row)
    queries = queries if biases is None else queries + biases[0, :]

    def add_block_of_keys(column: Any, state: Any) -> Any:
        total, largest, exponentials, dropped_sum = state
        tile, values = _Tile(head, row, column), head.read_block(2, column)
        scores = tile.masked_log2_scores(queries, head.read_block(1, column), head.padding_terms(column))
        now = jnp.maximum(largest, jnp.max(scores, axis=1))
        p, shrink = jnp.exp2(scores - now[:, None]), jnp.exp2(largest - now)
        dropped = tile.drop(p)
        total = total * shrink[:, None] + triton.dot(dropped.astype(values.dtype), values)
        exponentials = exponentials * shrink + jnp.sum(p, axis=1)
        if biases is not None:
            dropped_sum = dropped_sum * shrink + jnp.sum(dropped, axis=1)
        return total, now, exponentials, dropped_sum

    zero = jnp.zeros((spec.block,), jnp.float32)
    state = (jnp.zeros(queries.shape, jnp.float32), zero - jnp.inf, zero, zero)
    total, largest, exponentials, dropped_sum = jax.lax.fori_loop(*head.blocks_in_radius(row), add_block_of_keys, state)
    if biases is not None:
        total += dropped_sum[:, None] * biases[2, :].astype(jnp.float32)[None, :]
    context[...] = (total * (1 / (exponentials * (1 - spec.rate)))[:, None]).astype(context.dtype)
    # For a query that reads no key, the log is infinite, which makes the gradient 0.
    log_sums[...] = jnp.where(largest > MASKED_SCORE / 2, largest + jnp.log2(exponentials), jnp.inf)


class _ScoreGradients(NamedTuple):
    """The probabilities of a tile after dropout, and the gradients of its scores; both are not yet scaled."""

    dropped_probabilities: jax.Array
    gradients: jax.Array


def _score_gradients(
    tile: _Tile,
    scores: jax.Array,
    dp: jax.Array,
    log_sums: jax.Array,
    context_products: jax.Array,
    value_bias_terms: Any = 0.0,
) -> _ScoreGradients:
    """Return the probabilities of a tile after dropout, and the gradients of its scores; the caller scales both.

    The array `dp` is the gradient of the probabilities without the terms of the values' bias, which are in
    `value_bias_terms`. The arguments after `dp` have a value for each query.
    """
    unscale = 1 / (1 - tile.head.spec.rate)
    p = jnp.exp2(scores - tile.per_query(log_sums))
    ds = dp * unscale + tile.per_query(value_bias_terms * unscale - context_products)
    return _ScoreGradients(tile.drop(p), p * tile.drop(ds, tile.per_query(-context_products)))


def _score_terms_of_keys(head: _Head, column: Any, k: jax.Array) -> jax.Array:
    """Return the terms of the scores of each key of a block: the mask, and the product with the queries' bias."""
    mask = head.padding_terms(column)
    if head.biases is None:
        return mask
    return mask + _product_per_token(k, head.biases[0, :]) * (UNIT * k.shape[-1] ** -0.5)


def _product_per_token(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the inner product of two vectors for each token."""
    return jnp.sum(x.astype(jnp.float32) * y.astype(jnp.float32), axis=1)


def _backward_kernel(*refs: Any, num_head_refs: int, spec: _KernelSpec) -> None:
    """Write the gradients of a block's keys and values (over all queries), and of its queries (over all keys)."""
    head, block_index = _head_of_references(refs[:num_head_refs], spec), pl.program_id(0)
    gradient, log_sums, context_products, *written = refs[num_head_refs:]
    q, k, v = (head.read_block(i, block_index) for i in range(3))
    biases, g = head.biases, gradient[head.rows_of_block(block_index), :]
    key_terms, value_bias_terms = _score_terms_of_keys(head, block_index, k), jnp.zeros((spec.block,), jnp.float32)
    if biases is not None:
        value_bias_terms = _product_per_token(g, biases[2, :])
        q, v = q + biases[0, :], v + biases[2, :]

    def add_key_gradients(row: Any, state: Any) -> Any:
        dk, dv, sums = state
        rows, tile, queries = (
            head.rows_of_block(row),
            _Tile(head, row, block_index, transposed=True),
            head.read_block(0, row),
        )
        scores, dp = tile.masked_log2_scores(queries, k, key_terms), tile.product(gradient[rows, :], v)
        p, ds = _score_gradients(tile, scores, dp, log_sums[rows], context_products[rows])
        dk += triton.dot(ds.astype(k.dtype), queries)
        dv += triton.dot(p.astype(k.dtype), gradient[rows, :])
        return dk, dv, sums if biases is None else sums + jnp.sum(ds, axis=1)

    def add_query_gradients(column: Any, state: Any) -> Any:
        tile, keys, rows = _Tile(head, block_index, column), head.read_block(1, column), head.rows_of_block(block_index)
        scores, dp = (
            tile.masked_log2_scores(q, keys, head.padding_terms(column)),
            tile.product(g, head.read_block(2, column)),
        )
        _, ds = _score_gradients(tile, scores, dp, log_sums[rows], context_products[rows], value_bias_terms)
        return state + triton.dot(ds.astype(k.dtype), keys)

    zero, near = jnp.zeros(q.shape, jnp.float32), head.blocks_in_radius(block_index)
    dk, dv, sums = jax.lax.fori_loop(*near, add_key_gradients, (zero, zero, jnp.zeros((spec.block,), jnp.float32)))
    if biases is not None:
        dk += sums[:, None] * biases[0, :].astype(jnp.float32)[None, :]
    dq = jax.lax.fori_loop(*near, add_query_gradients, zero)
    scale = q.shape[-1] ** -0.5
    for i, map_gradient in enumerate((dq * scale, dk * scale, dv * (1 / (1 - spec.rate)))):
        if biases is None:
            written[i][...] = map_gradient.astype(gradient.dtype)
        else:
            products, sums_by_map = written
            products[:, i, :], sums_by_map[i, :] = map_gradient.astype(gradient.dtype), map_gradient.sum(axis=0)
