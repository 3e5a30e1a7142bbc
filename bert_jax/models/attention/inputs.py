"""What every attention kernel reads, and what a layer's attention reads beside the hidden states."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import row_keys
from bert_jax.models.positions import Distances

MASKED_SCORE = -1e9  # far below any score; finite, so that a sequence of padding alone gives no NaN
NO_LIMIT = 2**30  # columns, more than any sequence has

Reaches = tuple[tuple[int, int], ...]  # columns in reach, and how many layers have that reach


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Window:
    """The window of local layers, in numbers that are known when a program is compiled."""

    reach: int
    block: int = 1  # columns that share a window: it reaches from block to block
    beside: int = 0  # tokens outside of the window that chunks of queries read too, the first of GlobalTokens
    all_beside: bool = True  # whether there can be no more of them
    always: bool = False  # whether no layer of the program reaches farther
    layers: Reaches = ()  # of all layers; FLOPs of a scanned program are counted by them


class GlobalTokens(NamedTuple):
    """Tokens that read all others and that all others read, beside a window (Longformer, Beltagy et al. 2020).

    The maps are `[batch, length, heads * head_dim]` each: a global token reads all tokens by these, and others read it
    by the ordinary ones.
    """

    chosen: jax.Array  # bool [batch, length]
    extra: Any = None  # float32 [batch, length], added to the scores of others that read it
    columns: Any = None  # int32 [batch, Window.beside], those of the first in order, then of others; None: no chunks
    q: Any = None  # the maps; None in Surroundings
    k: Any = None
    v: Any = None


class Surroundings(NamedTuple):
    """What a layer's attention reads beside the hidden states; the same in all global and in all local layers."""

    mask: jax.Array  # int32 [batch, length], of the keys: 0 for padding, which no query reads
    segments: jax.Array | None = None  # int32 [batch, length] of packed sequences: a query reads its own segment alone
    angles: Any = None  # of a position scheme that rotates
    bias: jax.Array | None = None  # float32 [heads, length, length], added to the scores
    reach: jax.Array | int | None = None  # columns from a query to the farthest key that it reads; None: no limit
    window: Window | None = None  # of the layers whose reach it is; the program of all layers has it
    distances: Distances | None = None  # of a position scheme whose tokens read embeddings of distances
    global_tokens: GlobalTokens | None = None  # without maps


class AtDistances(NamedTuple):
    """Embeddings of distances as keys and as queries of a layer: `[2 * length, heads * head_dim]` each.

    A query reads row `i` of the keys for the key `i - length` columns to its right; a key reads row `i` of the queries
    for the query as far to its right.
    """

    keys: jax.Array
    queries: jax.Array


class Joint(NamedTuple):
    """Queries, keys and values as one product makes them, in this order, without the biases."""

    products: jax.Array  # [batch, length, 3, heads * head_dim]
    biases: jax.Array  # [3, heads * head_dim]


class AttentionInputs(NamedTuple):
    """The arrays of one layer's attention, for all heads together; those of Surroundings as there."""

    q: jax.Array  # [batch, length, heads * head_dim]; q, k and v are None where `joint` is given
    k: jax.Array
    v: jax.Array
    mask: jax.Array
    segments: jax.Array | None
    keys: jax.Array  # uint32 [batch, heads, 2], of the dropout of each head of each sequence
    bias: jax.Array | None = None
    reach: jax.Array | int | None = None
    window: Window | None = None
    distances: AtDistances | None = None
    global_tokens: GlobalTokens | None = None
    rows: jax.Array | None = None  # int32 [queries], the columns that read, where these are not all
    joint: Joint | None = None  # in place of q, k and v, for a kernel that reads them so


def attention_inputs(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    surroundings: Surroundings,
    num_heads: int,
    seed: jax.Array | None = None,
    distances: AtDistances | None = None,
    global_tokens: GlobalTokens | None = None,
) -> AttentionInputs:
    """Return the inputs of a kernel; `seed` is uint32 `[2]`, or None where no probability is dropped."""
    mask, segments, _, bias, reach, window, *_ = surroundings
    shape = (q.shape[0], num_heads, 2)  # shape, not len: the size may be symbolic
    if seed is None:
        keys = jnp.zeros(shape, jnp.uint32)
    else:  # a key for each head of each sequence, whatever device computes it: the same masks on every mesh
        keys = jnp.stack(row_keys(seed, shape[0] * num_heads), axis=-1).reshape(shape)
    return AttentionInputs(q, k, v, mask, segments, keys, bias, reach, window, distances, global_tokens)


def joined(inputs: AttentionInputs, joint: Joint) -> AttentionInputs:
    """Return the inputs with all maps in one array, in place of q, k and v."""
    return inputs._replace(q=None, k=None, v=None, joint=joint)  # type: ignore[arg-type]


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """`[batch, length, heads * head_dim]` -> `[batch, length, heads, head_dim]`."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads)


def of_rows(inputs: AttentionInputs, x: jax.Array) -> jax.Array:
    """Return those of `x`, `[batch, length, ...]`, whose queries are computed."""
    return x if inputs.rows is None else x[:, inputs.rows]


def readable_keys(inputs: AttentionInputs) -> jax.Array:
    """bool `[batch, 1, queries or 1, length]`: the keys that a query may read."""
    readable, segments = inputs.mask[:, None, None, :] != 0, inputs.segments
    if segments is not None:
        readable &= of_rows(inputs, segments)[:, None, :, None] == segments[:, None, None, :]
    if inputs.reach is not None:
        column = jnp.arange(inputs.q.shape[1])
        row = column if inputs.rows is None else inputs.rows
        near = within_reach(row[:, None], column, inputs.reach, inputs.window)
        readable &= near if inputs.global_tokens is None else near | inputs.global_tokens.chosen[:, None, None, :]
    return readable


def within_reach(row: jax.Array, column: jax.Array, reach: Any, window: Window | None) -> jax.Array:
    """Return whether the window of a row has a column."""
    block = window.block if window else 1
    if block > 1:
        row, column = row // block * block, column // block * block
    return jnp.abs(row - column) <= reach


def of_global(inputs: AttentionInputs) -> AttentionInputs:
    """Return the inputs of global tokens, which read all tokens by maps of their own."""
    tokens = inputs.global_tokens
    assert tokens
    return inputs._replace(q=tokens.q, k=tokens.k, v=tokens.v, reach=None, window=None, global_tokens=None)
