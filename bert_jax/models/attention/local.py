"""Attention within a window, by plain operations over chunks of queries; memory and time are linear in the length.

As in Longformer (Beltagy et al. 2020), the queries of a chunk attend to the chunk, to the columns on both sides within
the window's radius, and to the global tokens, if any. With equal attention masks, this file and xla.py give equal
results and equal dropout masks. In the suffixes of names, C stands for the chunks, Q for the queries of a chunk, and K
for the keys to which a chunk may attend.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import (
    MASKED_SCORE,
    AttentionInputs,
    inputs_with_projections_of_global_tokens,
    is_within_radius,
    split_heads,
)
from bert_jax.models.dropout import drop_elements

MIN_CHUNK = 128  # minimum number of queries in a chunk; smaller matrix products lose more time than they save


def chunks_save_work(inputs: AttentionInputs) -> bool:
    """Return whether attention in chunks takes at most half of the work of attention over all pairs."""
    length = inputs.q.shape[1]  # the length may be symbolic in an export
    if inputs.window is None or inputs.bias is not None or inputs.distances is not None or not isinstance(length, int):
        return False
    return length >= 2 * (_chunk_size(inputs) + 2 * inputs.window.radius + inputs.window.num_gathered)


def _chunk_size(inputs: AttentionInputs) -> int:
    """Return the number of queries in a chunk: at least the window's radius, and a multiple of its block size."""
    assert inputs.window
    size = inputs.window.block_size
    return -(-max(inputs.window.radius, MIN_CHUNK) // size) * size


def chunked_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`, with dropout of the probabilities at rate `rate`.

    Of the global tokens of a sequence, only the first `inputs.window.num_gathered` take part in attention.
    """
    assert inputs.window
    tokens = inputs.global_tokens
    heads, (batch, length, _) = inputs.num_heads, inputs.q.shape
    size, radius = _chunk_size(inputs), inputs.window.radius
    num_chunks = -(-length // size)

    def split_into_chunks(x: jax.Array) -> jax.Array:
        """Split the columns of an array into chunks, `[batch, chunks, size, ...]`; zeros fill the last chunk."""
        x = x[:, : num_chunks * size]
        return _pad_columns(x, 0, num_chunks * size - x.shape[1]).reshape(batch, num_chunks, size, *x.shape[2:])

    def chunks_with_neighbors(x: jax.Array) -> jax.Array:
        """Return each chunk with the columns around it, as `[batch, chunks, size + 2 * radius, ...]`."""
        before, after = split_into_chunks(_pad_columns(x, radius, 0)), split_into_chunks(x[:, size:])
        return jnp.concatenate([before[:, :, :radius], split_into_chunks(x), after[:, :, :radius]], axis=2)

    def global_tokens_by_chunk(x: jax.Array) -> jax.Array:
        """Return the columns of the global tokens for every chunk, as `[batch, chunks, num_gathered, ...]`."""
        columns = _columns_at_global_tokens(inputs, x)[:, None]
        return jnp.broadcast_to(columns, (batch, num_chunks, *columns.shape[2:]))

    def keys_of_chunks(x: jax.Array) -> jax.Array:
        return (
            chunks_with_neighbors(x)
            if tokens is None
            else jnp.concatenate([chunks_with_neighbors(x), global_tokens_by_chunk(x)], axis=2)
        )

    q = split_into_chunks(split_heads(inputs.q, heads))
    k, v = (keys_of_chunks(split_heads(x, heads)) for x in (inputs.k, inputs.v))
    query, key = jnp.arange(size)[:, None], jnp.arange(size + 2 * radius) - radius  # columns from the chunk's first
    near = is_within_radius(query, key, inputs.radius, inputs.window)  # at most the window's radius
    if tokens is not None:  # a global token within the window counts once
        near = near & ~chunks_with_neighbors(tokens.mask)[:, :, None, None, :]
        is_global = global_tokens_by_chunk(tokens.mask)[:, :, None, None]
        is_global = jnp.broadcast_to(is_global, (*near.shape[:4], inputs.window.num_gathered))
        near = jnp.concatenate([near, is_global], axis=-1)
    readable_BxCx1xQxK = (keys_of_chunks(inputs.mask) != 0)[:, :, None, None, :] & near
    if inputs.segments is not None:
        of_keys = keys_of_chunks(inputs.segments)[:, :, None, None, :]
        readable_BxCx1xQxK &= split_into_chunks(inputs.segments)[:, :, None, :, None] == of_keys
    scores_BxCxHxQxK = jnp.einsum("bnqhd,bnkhd->bnhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    if tokens is not None and tokens.score_bias is not None:
        scores_BxCxHxQxK += keys_of_chunks(tokens.score_bias)[:, :, None, None, :]
    probabilities = jax.nn.softmax(jnp.where(readable_BxCx1xQxK, scores_BxCxHxQxK, MASKED_SCORE))
    if rate > 0:
        first = jnp.arange(num_chunks)[:, None, None] * size
        index = ((first + query) * length + first + key).astype(jnp.uint32)[:, None]
        if tokens is not None:
            gathered_index = ((first + query) * length + tokens.columns[:, None, None, :]).astype(jnp.uint32)
            near_index = jnp.broadcast_to(index, (batch, *index.shape))
            index = jnp.concatenate([near_index, gathered_index[:, :, None]], axis=-1)
        first_key, second_key = (inputs.dropout_keys[:, None, :, i, None, None] for i in (0, 1))
        probabilities = drop_elements(probabilities, index, first_key, second_key, rate)
    context = jnp.einsum("bnhqk,bnkhd->bnqhd", probabilities.astype(v.dtype), v)
    context = context.reshape(batch, num_chunks * size, -1)[:, :length]
    return context if tokens is None else _with_context_of_global_tokens(inputs, context, rate)


def _columns_at_global_tokens(inputs: AttentionInputs, x: jax.Array) -> jax.Array:
    """Return the columns of the global tokens in an array `[batch, length, ...]`."""
    assert inputs.global_tokens
    columns = inputs.global_tokens.columns
    return jnp.take_along_axis(x, columns.reshape(*columns.shape, *(1,) * (x.ndim - 2)), axis=1)


def _with_context_of_global_tokens(inputs: AttentionInputs, context: jax.Array, rate: float) -> jax.Array:
    """Replace the context of the global tokens, which attend to the whole sequence."""
    tokens, global_inputs = inputs.global_tokens, inputs_with_projections_of_global_tokens(inputs)
    heads, length = inputs.num_heads, inputs.q.shape[1]
    assert tokens
    q = _columns_at_global_tokens(inputs, split_heads(global_inputs.q, heads))
    k, v = (split_heads(x, heads) for x in (global_inputs.k, global_inputs.v))
    readable = inputs.mask[:, None, None, :] != 0
    if inputs.segments is not None:
        readable &= (
            _columns_at_global_tokens(inputs, inputs.segments)[:, None, :, None] == inputs.segments[:, None, None, :]
        )
    scores_BxHxQxK = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    probabilities = jax.nn.softmax(jnp.where(readable, scores_BxHxQxK, MASKED_SCORE))
    if rate > 0:
        index = (tokens.columns[:, None, :, None] * length + jnp.arange(length)).astype(jnp.uint32)
        first_key, second_key = (inputs.dropout_keys[:, :, i, None, None] for i in (0, 1))
        probabilities = drop_elements(probabilities, index, first_key, second_key, rate)
    global_context = jnp.einsum("bhqk,bkhd->bqhd", probabilities.astype(v.dtype), v)
    columns = jnp.where(
        _columns_at_global_tokens(inputs, tokens.mask), tokens.columns, length
    )  # columns beyond the end are dropped
    put: Callable[..., jax.Array] = jax.vmap(lambda context, columns, rows: context.at[columns].set(rows, mode="drop"))
    return put(context, columns, global_context.reshape(*global_context.shape[:2], -1))


def _pad_columns(x: jax.Array, before: int, after: int) -> jax.Array:
    """Pad the second axis with zeros."""
    return jnp.pad(x, ((0, 0), (before, after), *((0, 0),) * (x.ndim - 2)))
