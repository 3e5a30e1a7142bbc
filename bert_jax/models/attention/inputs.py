"""What every attention kernel reads."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.dropout import row_keys


class AttentionInputs(NamedTuple):
    """The arrays of one layer's attention, for all heads together."""

    q: jax.Array  # [batch, length, heads * head_dim]
    k: jax.Array
    v: jax.Array
    mask: jax.Array  # int32 [batch, length], of the keys: 0 for padding, which no query reads
    segments: jax.Array | None  # int32 [batch, length] of packed sequences: a query reads its own segment alone
    keys: jax.Array  # uint32 [batch, heads, 2], of the dropout of each head of each sequence
    bias: jax.Array | None = None  # float32 [heads, length, length], added to the scores


def attention_inputs(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    num_heads: int,
    seed: jax.Array | None = None,
    bias: jax.Array | None = None,
) -> AttentionInputs:
    """Return the inputs of a kernel; `seed` is uint32 `[2]`, or None where no probability is dropped."""
    shape = (q.shape[0], num_heads, 2)  # shape, not len: the size may be symbolic
    if seed is None:
        return AttentionInputs(q, k, v, mask, segments, jnp.zeros(shape, jnp.uint32), bias)
    # A key for each head of each sequence, whatever device computes it: the same masks on every mesh.
    keys = jnp.stack(row_keys(seed, shape[0] * num_heads), axis=-1).reshape(shape)
    return AttentionInputs(q, k, v, mask, segments, keys, bias)


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """`[batch, length, heads * head_dim]` -> `[batch, length, heads, head_dim]`."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads)


def readable_keys(mask: jax.Array, segments: jax.Array | None) -> jax.Array:
    """bool `[batch, 1, length or 1, length]`: the keys that a query may read."""
    unpadded = mask[:, None, None, :] != 0
    return unpadded if segments is None else unpadded & (segments[:, None, :, None] == segments[:, None, None, :])
