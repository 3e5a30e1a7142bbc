"""Attention within a window, in memory and time linear in the length: plain operations over chunks of queries.

The queries of a chunk read the chunk itself and as many columns beside it as the window reaches, as Longformer does
(Beltagy et al. 2020). Numbers and dropout are those of xla.py, where the same keys can be read.
"""

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import MASKED_SCORE, AttentionInputs, split_heads
from bert_jax.models.dropout import keep_mask

MIN_CHUNK = 128  # queries; smaller products run slower than the work they save


def fits(inputs: AttentionInputs) -> bool:
    """Return whether windows of these inputs can be computed so, with at most half of the work."""
    length = inputs.q.shape[1]  # may be symbolic in an export
    if inputs.window is None or inputs.bias is not None or inputs.distances is not None or not isinstance(length, int):
        return False
    chunk, reach = _chunk(inputs), inputs.window.reach
    return length >= 2 * (chunk + 2 * reach)


def _chunk(inputs: AttentionInputs) -> int:
    assert inputs.window
    return max(inputs.window.reach, MIN_CHUNK)


def forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`, with dropout of `rate` on the probabilities."""
    assert inputs.window
    heads, (batch, length, _) = inputs.keys.shape[1], inputs.q.shape
    chunk, reach = _chunk(inputs), inputs.window.reach
    number = -(-length // chunk)

    def chunks(x: jax.Array) -> jax.Array:
        """`[batch, number, chunk, ...]`, zeros after the end."""
        x = x[:, : number * chunk]
        return _padded(x, 0, number * chunk - x.shape[1]).reshape(batch, number, chunk, *x.shape[2:])

    def around(x: jax.Array) -> jax.Array:
        """The chunks with the columns that their queries reach: `[batch, number, chunk + 2 * reach, ...]`."""
        before, after = chunks(_padded(x, reach, 0)), chunks(x[:, chunk:])
        return jnp.concatenate([before[:, :, :reach], chunks(x), after[:, :, :reach]], axis=2)

    q = chunks(split_heads(inputs.q, heads))
    k, v = (around(split_heads(x, heads)) for x in (inputs.k, inputs.v))
    query, key = jnp.arange(chunk)[:, None], jnp.arange(chunk + 2 * reach) - reach  # columns from the chunk's first
    readable = (around(inputs.mask) != 0)[:, :, None, None, :] & (jnp.abs(query - key) <= reach)
    if inputs.segments is not None:
        own, read = chunks(inputs.segments), around(inputs.segments)
        readable &= own[:, :, None, :, None] == read[:, :, None, None, :]
    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    probabilities = jax.nn.softmax(jnp.where(readable, scores, MASKED_SCORE))
    if rate > 0:
        first = jnp.arange(number)[:, None, None] * chunk
        index = ((first + query) * length + first + key).astype(jnp.uint32)[:, None]
        first_key, second_key = (inputs.keys[:, None, :, i, None, None] for i in (0, 1))
        kept = keep_mask(index, first_key, second_key, rate)
        probabilities = jnp.where(kept, probabilities / (1 - rate), 0.0)
    context = jnp.einsum("bnhqk,bnkhd->bnqhd", probabilities.astype(v.dtype), v)
    return context.reshape(batch, number * chunk, -1)[:, :length]


def _padded(x: jax.Array, before: int, after: int) -> jax.Array:
    """With zeros along the second axis."""
    return jnp.pad(x, ((0, 0), (before, after), *((0, 0),) * (x.ndim - 2)))
