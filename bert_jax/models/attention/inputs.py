"""The input arrays of an attention kernel, and the inputs that all layers share."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import row_keys
from bert_jax.models.positions import Distances

MASKED_SCORE = -1e9  # far below any score; finite, so that a sequence with only padding gives no NaN
NO_LIMIT = 2**30  # a number of columns that no sequence reaches

RadiusCounts = tuple[tuple[int, int], ...]  # (radius of a window, number of layers with it)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """The attention window of local layers; all values are known when a program is compiled."""

    radius: int  # columns from a query to the farthest key in its window
    block_size: int = 1  # columns that share a window; the radius is then the distance of two blocks, in columns
    num_gathered: int = 0  # number of global tokens of a sequence that chunks read in addition to their window
    gathers_all: bool = True  # whether no sequence has more than `num_gathered` global tokens
    every_layer: bool = False  # whether all layers of the program have a window of at most this radius
    radius_counts: RadiusCounts = ()  # windows of all layers, from which the FLOPs of a scanned program are counted


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class GlobalTokens:
    """Global tokens, which attend to all tokens and to which all tokens attend (Longformer, Beltagy et al. 2020).

    A global token attends to all tokens with separate queries `q`, keys `k` and values `v`, each `[batch, length, heads
    * head_dim]`. Other tokens attend to a global token with the queries, keys and values of `AttentionInputs`.
    """

    mask: jax.Array  # bool [batch, length]
    score_bias: Any = None  # float32 [batch, length], added to the scores of other tokens that read the token
    columns: Any = None  # int32 [batch, WindowSpec.num_gathered]: global tokens in order, then others; None: no chunks
    q: Any = None  # q, k and v are None in AttentionMetadata
    k: Any = None
    v: Any = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionMetadata:
    """The inputs of attention, except hidden states, that all global layers share or that all local layers share."""

    mask: jax.Array  # int32 [batch, length]: 0 for keys that are padding, which no query reads
    segments: jax.Array | None = None  # int32 [batch, length] of packed sequences: a query reads only its segment
    angles: Any = None  # angles by which a position scheme rotates queries and keys
    bias: jax.Array | None = None  # float32 [heads, length, length], added to the scores
    radius: jax.Array | int | None = None  # columns from a query to the farthest key that it reads; None: no limit
    window: WindowSpec | None = None  # window of the local layers, also in a program that serves all layers
    distances: Distances | None = None  # embeddings of distances, if the position scheme has them
    global_tokens: GlobalTokens | None = None  # the fields q, k and v of this object are None


class RelativeKeysAndQueries(NamedTuple):
    """The keys and queries that a layer computes from distance embeddings, each `[2 * length, heads * head_dim]`.

    For a key that is `i - length` columns to the right of a query, the score includes the product of the query and row
    `i` of `keys`. For a query that is `i - length` columns to the right of a key, the score includes the product of the
    key and row `i` of `queries`.
    """

    keys: jax.Array
    queries: jax.Array


class FusedQKV(NamedTuple):
    """Queries, keys and values from one matrix product, in this order, and their biases, which are not added yet."""

    products: jax.Array  # [batch, length, 3, heads * head_dim]
    biases: jax.Array  # [3, heads * head_dim]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionInputs:
    """The input arrays of a layer's attention, for all heads; AttentionMetadata explains the fields of equal name."""

    q: jax.Array  # [batch, length, heads * head_dim]; q, k and v are None where `fused_qkv` is given
    k: jax.Array
    v: jax.Array
    mask: jax.Array
    segments: jax.Array | None
    dropout_keys: jax.Array  # uint32 [batch, heads, 2], a key for each head of each sequence
    bias: jax.Array | None = None
    radius: jax.Array | int | None = None
    window: WindowSpec | None = None
    distances: RelativeKeysAndQueries | None = None
    global_tokens: GlobalTokens | None = None
    query_rows: jax.Array | None = None  # int32 [queries], the columns whose queries are computed; None: all
    fused_qkv: FusedQKV | None = None  # replaces q, k and v for a kernel that reads this form

    @property
    def num_heads(self) -> int:
        """The number of attention heads of a layer."""
        return self.dropout_keys.shape[1]


def attention_inputs(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    metadata: AttentionMetadata,
    num_heads: int,
    seed: jax.Array | None = None,
    distances: RelativeKeysAndQueries | None = None,
    global_tokens: GlobalTokens | None = None,
) -> AttentionInputs:
    """Return the inputs of an attention kernel; the dropout seed is uint32 `[2]`, or None for no dropout."""
    shape = (q.shape[0], num_heads, 2)  # `q.shape[0]` instead of `len(q)`, because the size may be symbolic
    if seed is None:
        dropout_keys = jnp.zeros(shape, jnp.uint32)
    else:  # a key for each head of each sequence, so that the masks are equal on every mesh
        dropout_keys = jnp.stack(row_keys(seed, shape[0] * num_heads), axis=-1).reshape(shape)
    return AttentionInputs(
        q=q,
        k=k,
        v=v,
        mask=metadata.mask,
        segments=metadata.segments,
        dropout_keys=dropout_keys,
        bias=metadata.bias,
        radius=metadata.radius,
        window=metadata.window,
        distances=distances,
        global_tokens=global_tokens,
    )


def with_fused_qkv(inputs: AttentionInputs, fused_qkv: FusedQKV) -> AttentionInputs:
    """Return the inputs with queries, keys and values in one array, which replaces q, k and v."""
    return dataclasses.replace(inputs, q=None, k=None, v=None, fused_qkv=fused_qkv)  # type: ignore[arg-type]


def inputs_with_only(**given: Any) -> AttentionInputs:
    """Return `AttentionInputs` with only the given fields set; their values may be gradients or partition specs."""
    fields: dict[str, Any] = dict.fromkeys(field.name for field in dataclasses.fields(AttentionInputs))
    return AttentionInputs(**fields | given)


def has_score_terms(inputs: AttentionInputs) -> bool:
    """Return whether the scores have terms that fused kernels lack: biases, distances or global tokens."""
    return (inputs.bias, inputs.distances, inputs.global_tokens) != (None,) * 3


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """Reshape `[batch, length, heads * head_dim]` to `[batch, length, heads, head_dim]`."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads)


def columns_of_selected_queries(inputs: AttentionInputs, x: jax.Array) -> jax.Array:
    """Return the columns of an array `[batch, length, ...]` for whose tokens attention is computed."""
    return x if inputs.query_rows is None else x[:, inputs.query_rows]


def readable_key_mask(inputs: AttentionInputs) -> jax.Array:
    """Return a mask of the keys to which a query may attend, bool `[batch, 1, queries or 1, length]`."""
    readable_Bx1xQxK, segments = inputs.mask[:, None, None, :] != 0, inputs.segments
    if segments is not None:
        readable_Bx1xQxK &= (
            columns_of_selected_queries(inputs, segments)[:, None, :, None] == segments[:, None, None, :]
        )
    if inputs.radius is not None:
        column = jnp.arange(inputs.q.shape[1])
        row = column if inputs.query_rows is None else inputs.query_rows
        near = is_within_radius(row[:, None], column, inputs.radius, inputs.window)
        tokens = inputs.global_tokens
        readable_Bx1xQxK &= near if tokens is None else near | tokens.mask[:, None, None, :]
    return readable_Bx1xQxK


def is_within_radius(row: jax.Array, column: jax.Array, radius: Any, window: WindowSpec | None) -> jax.Array:
    """Return whether each key column is in the window of each query row, as a bool array of the broadcast shape."""
    size = window.block_size if window else 1
    if size > 1:
        row, column = row // size * size, column // size * size
    return jnp.abs(row - column) <= radius


def inputs_with_projections_of_global_tokens(inputs: AttentionInputs) -> AttentionInputs:
    """Return the attention inputs of the global tokens, which attend to all tokens with separate projections."""
    tokens = inputs.global_tokens
    assert tokens
    return dataclasses.replace(inputs, q=tokens.q, k=tokens.k, v=tokens.v, radius=None, window=None, global_tokens=None)
