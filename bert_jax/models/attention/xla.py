"""Attention by plain operations, which XLA compiles for any platform; the softmax is in float32."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention import local
from bert_jax.models.attention.inputs import (
    MASKED_SCORE,
    AttentionInputs,
    columns_of_selected_queries,
    inputs_with_only,
    inputs_with_projections_of_global_tokens,
    readable_key_mask,
    split_heads,
)
from bert_jax.models.dropout import drop_elements

Gradients = tuple[jax.Array, jax.Array, jax.Array]  # gradients of q, k and v
QUERY_BLOCK_SIZE = 128  # queries in a block of query_blocked_attention, whose memory is linear in the length


def xla_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`; the backward pass recomputes the probabilities."""
    if local.chunks_save_work(inputs) and inputs.global_tokens is None:
        return recomputed_attention(inputs, rate)
    return jax.checkpoint(functools.partial(_choose_attention_for_global_tokens(inputs), rate=rate))(inputs)


def recomputed_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output for inputs without biases, distances and global tokens; only the inputs are saved."""
    if inputs.radius is not None:
        inputs = dataclasses.replace(inputs, radius=jnp.asarray(inputs.radius, jnp.int32))
    return _recomputed_attention(inputs, rate)


def _choose_attention_for_global_tokens(inputs: AttentionInputs) -> Callable[..., jax.Array]:
    """Return the attention function for a layer that may have global tokens.

    For short sequences, the function is `dense_attention`. For long sequences, the function is `chunked_attention` if
    the chunks can hold every global token. Otherwise the function counts the global tokens of each batch, and
    `query_blocked_attention` replaces `chunked_attention` if they are too many. The time of `query_blocked_attention`
    is quadratic in the length, and its memory is linear.
    """
    if not local.chunks_save_work(inputs):
        return dense_attention
    assert inputs.window
    if (isinstance(inputs.radius, int) or inputs.window.every_layer) and inputs.window.gathers_all:
        return local.chunked_attention
    return _chunked_or_query_blocked


def _chunked_or_query_blocked(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Compute attention by chunks if the chunks can hold all global tokens of the batch, else by blocks of queries."""
    assert inputs.window
    assert inputs.global_tokens
    num_global = inputs.global_tokens.mask.sum(axis=1).max()
    fits = (num_global <= inputs.window.num_gathered) & (jnp.asarray(inputs.radius) <= inputs.window.radius)
    chunked, query_blocked = (
        functools.partial(f, rate=rate) for f in (local.chunked_attention, query_blocked_attention)
    )
    return cast(jax.Array, jax.lax.cond(fits, chunked, query_blocked, inputs))


def query_blocked_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the result of `dense_attention`, computed for one block of queries at a time."""
    batch, length, width = inputs.q.shape
    num_blocks = -(-length // QUERY_BLOCK_SIZE)
    rows = jnp.minimum(jnp.arange(num_blocks * QUERY_BLOCK_SIZE), length - 1)  # the last query fills the last block
    attend_block = jax.checkpoint(lambda rows: dense_attention(dataclasses.replace(inputs, query_rows=rows), rate))
    blocks = jax.lax.map(attend_block, rows.reshape(num_blocks, QUERY_BLOCK_SIZE))
    return blocks.swapaxes(0, 1).reshape(batch, num_blocks * QUERY_BLOCK_SIZE, width)[:, :length]


def with_backward_from_inputs(
    forward: Callable[[AttentionInputs, float], jax.Array],
    backward: Callable[[AttentionInputs, jax.Array, float], Gradients],
) -> Callable[[AttentionInputs, float], jax.Array]:
    """Return `forward` as a function whose gradients `backward` computes, so that only the inputs are saved."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def attention(inputs: AttentionInputs, rate: float) -> jax.Array:
        return forward(inputs, rate)

    def save_inputs(inputs: AttentionInputs, rate: float) -> tuple[jax.Array, AttentionInputs]:
        return forward(inputs, rate), inputs

    def pull_back(rate: float, inputs: AttentionInputs, gradient: jax.Array) -> tuple[AttentionInputs]:
        q, k, v = backward(inputs, gradient, rate)
        return (inputs_with_only(q=q, k=k, v=v, window=inputs.window),)

    attention.defvjp(save_inputs, pull_back)
    return attention


def xla_forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`, with dropout of the probabilities at rate `rate`."""
    windowed, dense = (functools.partial(f, rate=rate) for f in (local.chunked_attention, dense_attention))
    return cast(jax.Array, _dense_or_windowed(windowed, dense, inputs))


def xla_backward(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> Gradients:
    """Return the gradients of q, k and v from the gradient of the attention output."""

    def pull_back(
        attention: Callable[[AttentionInputs, float], jax.Array], inputs: AttentionInputs, gradient: jax.Array
    ) -> Any:
        def context(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return attention(dataclasses.replace(inputs, q=q, k=k, v=v), rate)

        return jax.vjp(context, inputs.q, inputs.k, inputs.v)[1](gradient)

    windowed, dense = (functools.partial(pull_back, f) for f in (local.chunked_attention, dense_attention))
    return cast(Gradients, _dense_or_windowed(windowed, dense, inputs, gradient))


def _dense_or_windowed(
    windowed: Callable[..., Any], dense: Callable[..., Any], inputs: AttentionInputs, *gradient: jax.Array
) -> Any:
    """Call `windowed` for a local layer if chunks can compute its window, else `dense`; a scanned program has both."""
    if not local.chunks_save_work(inputs):
        return dense(inputs, *gradient)
    assert inputs.window
    if inputs.window.every_layer:
        return windowed(inputs, *gradient)
    return jax.lax.cond(jnp.asarray(inputs.radius) <= inputs.window.radius, windowed, dense, inputs, *gradient)


def dense_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, computed from the scores of all pairs of a query and a key."""
    length, keys, weights = inputs.q.shape[1], inputs.dropout_keys, attention_probabilities(inputs)
    if rate > 0:
        if inputs.query_rows is None:
            index = jnp.arange(length * length, dtype=jnp.uint32).reshape(length, length)
        else:
            index = (inputs.query_rows[:, None] * length + jnp.arange(length)).astype(jnp.uint32)
        weights = drop_elements(weights, index, keys[:, :, 0, None, None], keys[:, :, 1, None, None], rate)
    return weighted_values(weights, inputs)


def weighted_values(weights_BxHxQxK: jax.Array, inputs: AttentionInputs) -> jax.Array:
    """Return the values, weighted by the attention weights and summed, `[batch, queries, heads * head_dim]`."""
    v = split_heads(inputs.v, inputs.num_heads)
    context = jnp.einsum("bhqk,bkhd->bqhd", weights_BxHxQxK.astype(v.dtype), v)
    context = context.reshape(*context.shape[:2], inputs.q.shape[2])
    if inputs.global_tokens is None:
        return context
    is_global = columns_of_selected_queries(inputs, inputs.global_tokens.mask)[:, :, None]
    return jnp.where(
        is_global, weighted_values(weights_BxHxQxK, inputs_with_projections_of_global_tokens(inputs)), context
    )


def attention_probabilities(inputs: AttentionInputs) -> jax.Array:
    """Return the weight of each key for each query, float32 `[batch, heads, queries, length]`; each row sums to 1."""
    heads, bias = inputs.num_heads, inputs.bias
    q, k = (split_heads(x, heads) for x in (columns_of_selected_queries(inputs, inputs.q), inputs.k))
    num_terms = 1 if inputs.distances is None else 3
    scale = (num_terms * q.shape[-1]) ** -0.5
    scores_BxHxQxK = jnp.einsum("bqhd,bkhd->bhqk", q * scale, k, preferred_element_type=jnp.float32)
    if inputs.distances is not None:
        relative_keys, relative_queries = (x.reshape(-1, heads, q.shape[-1]) for x in inputs.distances)
        scores_BxHxQxK += products_with_distances(q * scale, relative_keys) + products_with_distances(
            k * scale, relative_queries
        ).swapaxes(2, 3)
    scores_BxHxQxK = scores_BxHxQxK if bias is None else scores_BxHxQxK + bias
    if inputs.global_tokens is not None and inputs.global_tokens.score_bias is not None:
        scores_BxHxQxK += inputs.global_tokens.score_bias[:, None, None, :]
    probabilities = jax.nn.softmax(jnp.where(readable_key_mask(inputs), scores_BxHxQxK, MASKED_SCORE))
    if inputs.global_tokens is None:
        return probabilities
    is_global = columns_of_selected_queries(inputs, inputs.global_tokens.mask)[:, None, :, None]
    return jnp.where(
        is_global, attention_probabilities(inputs_with_projections_of_global_tokens(inputs)), probabilities
    )


def products_with_distances(x: jax.Array, relative: jax.Array) -> jax.Array:
    """Return the inner product of each token and each distance's vector, float32 `[batch, heads, length, length]`.

    The vectors of the tokens are `x`, `[batch, length, heads, head_dim]`. The vectors of the distances are `relative`,
    `[2 * length, heads, head_dim]`; row `i` belongs to the distance of a column that is `i - length` columns to the
    right.
    """
    length = x.shape[1]
    products = jnp.einsum("blhd,rhd->bhlr", x, relative, preferred_element_type=jnp.float32)
    # Shift each row one element further left, without a gather, whose gradient would be a slow scatter.
    flat = products.reshape(*products.shape[:2], -1)[:, :, length:]
    return flat.reshape(*products.shape[:3], 2 * length - 1)[..., :length]


_recomputed_attention = with_backward_from_inputs(xla_forward, xla_backward)
