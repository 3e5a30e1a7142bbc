"""Attention as plain operations, which XLA compiles for any platform; the softmax is float32."""

import functools
from typing import cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import AttentionInputs, readable_keys, split_heads
from bert_jax.models.dropout import keep_mask

MASKED_SCORE = -1e9  # far below any score; finite, so that a sequence of padding alone gives no NaN


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; the backward pass computes the probabilities again."""
    return jax.checkpoint(functools.partial(forward, rate=rate))(inputs)


def forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, with dropout of `rate` on the probabilities."""
    keys, bias = inputs.keys, inputs.bias
    length, heads = inputs.q.shape[1], keys.shape[1]
    q, k, v = (split_heads(x, heads) for x in (inputs.q, inputs.k, inputs.v))
    scale = ((1 if inputs.distances is None else 3) * q.shape[-1]) ** -0.5
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * scale, k, preferred_element_type=jnp.float32)
    if inputs.distances is not None:
        keys_there, queries_there = (x.reshape(-1, heads, q.shape[-1]) for x in inputs.distances)
        scores += read_distances(q * scale, keys_there) + read_distances(k * scale, queries_there).swapaxes(2, 3)
    scores = scores if bias is None else scores + bias
    scores = jnp.where(readable_keys(inputs), scores, MASKED_SCORE)
    probabilities = jax.nn.softmax(scores)
    if rate > 0:
        index = jnp.arange(length * length, dtype=jnp.uint32).reshape(length, length)
        kept = keep_mask(index, keys[:, :, 0, None, None], keys[:, :, 1, None, None], rate)
        probabilities = jnp.where(kept, probabilities / (1 - rate), 0.0)
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities.astype(v.dtype), v).reshape(inputs.q.shape)


def read_distances(x: jax.Array, there: jax.Array) -> jax.Array:
    """Return the products of each column with the vector at each distance: float32 `[batch, heads, length, length]`.

    `x` is `[batch, length, heads, head_dim]`, `there` `[2 * length, heads, head_dim]`, whose row `i` is of columns
    `i - length` to the right.
    """
    length = x.shape[1]
    products = jnp.einsum("blhd,rhd->bhlr", x, there, preferred_element_type=jnp.float32)
    # Rows that begin one element further left each, without a gather, whose gradient would be a slow scatter.
    flat = products.reshape(*products.shape[:2], -1)[:, :, length:]
    return flat.reshape(*products.shape[:3], 2 * length - 1)[..., :length]


def backward(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the gradients of q, k and v from that of the context."""

    def context(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return forward(inputs._replace(q=q, k=k, v=v), rate)

    _, pull = jax.vjp(context, inputs.q, inputs.k, inputs.v)
    return cast(tuple[jax.Array, jax.Array, jax.Array], pull(gradient))
