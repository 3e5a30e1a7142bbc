"""Attention within a window, in memory and time linear in the length: plain operations over chunks of queries.

The queries of a chunk read the chunk itself and as many columns beside it as the window reaches, as Longformer does
(Beltagy et al. 2020), and the global tokens, where there are any. Numbers and dropout are those of xla.py, where the
same keys can be read.
"""

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import MASKED_SCORE, AttentionInputs, of_global, split_heads, within_reach
from bert_jax.models.dropout import drop

MIN_CHUNK = 128  # queries; smaller products run slower than the work they save


def fits(inputs: AttentionInputs) -> bool:
    """Return whether windows of these inputs can be computed so, with at most half of the work."""
    length = inputs.q.shape[1]  # may be symbolic in an export
    if inputs.window is None or inputs.bias is not None or inputs.distances is not None or not isinstance(length, int):
        return False
    chunk, reach = _chunk(inputs), inputs.window.reach
    return length >= 2 * (chunk + 2 * reach + inputs.window.beside)


def _chunk(inputs: AttentionInputs) -> int:
    assert inputs.window
    block = inputs.window.block
    return -(-max(inputs.window.reach, MIN_CHUNK) // block) * block


def forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`, with dropout of `rate` on the probabilities.

    Of global tokens the first `inputs.window.beside` are read, and read all.
    """
    assert inputs.window
    tokens = inputs.global_tokens
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

    def beside(x: jax.Array) -> jax.Array:
        """What all chunks read: `[batch, number, inputs.window.beside, ...]`."""
        taken = _of_columns(inputs, x)[:, None]
        return jnp.broadcast_to(taken, (batch, number, *taken.shape[2:]))

    def read(x: jax.Array) -> jax.Array:
        return around(x) if tokens is None else jnp.concatenate([around(x), beside(x)], axis=2)

    q = chunks(split_heads(inputs.q, heads))
    k, v = (read(split_heads(x, heads)) for x in (inputs.k, inputs.v))
    query, key = jnp.arange(chunk)[:, None], jnp.arange(chunk + 2 * reach) - reach  # columns from the chunk's first
    readable = (read(inputs.mask) != 0)[:, :, None, None, :]
    near = within_reach(query, key, inputs.reach, inputs.window)  # of this layer, at most that of the window
    if tokens is not None:  # which count once, though they lie within the window
        near = near & ~around(tokens.chosen)[:, :, None, None, :]
        present = jnp.broadcast_to(beside(tokens.chosen)[:, :, None, None], (*near.shape[:4], inputs.window.beside))
        near = jnp.concatenate([near, present], axis=-1)
    readable &= near
    if inputs.segments is not None:
        readable &= chunks(inputs.segments)[:, :, None, :, None] == read(inputs.segments)[:, :, None, None, :]
    scores = jnp.einsum("bnqhd,bnkhd->bnhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    if tokens is not None and tokens.extra is not None:
        scores += read(tokens.extra)[:, :, None, None, :]
    probabilities = jax.nn.softmax(jnp.where(readable, scores, MASKED_SCORE))
    if rate > 0:
        first = jnp.arange(number)[:, None, None] * chunk
        index = ((first + query) * length + first + key).astype(jnp.uint32)[:, None]
        if tokens is not None:
            others = (first + query) * length + tokens.columns[:, None, None, :]
            whole = jnp.broadcast_to(index, (batch, *index.shape))
            index = jnp.concatenate([whole, others.astype(jnp.uint32)[:, :, None]], axis=-1)
        first_key, second_key = (inputs.keys[:, None, :, i, None, None] for i in (0, 1))
        probabilities = drop(probabilities, index, first_key, second_key, rate)
    context = jnp.einsum("bnhqk,bnkhd->bnqhd", probabilities.astype(v.dtype), v)
    context = context.reshape(batch, number * chunk, -1)[:, :length]
    return context if tokens is None else _with_global(inputs, context, rate)


def _of_columns(inputs: AttentionInputs, x: jax.Array) -> jax.Array:
    """Return those of `x`, `[batch, length, ...]`, at the columns of global tokens."""
    assert inputs.global_tokens
    columns = inputs.global_tokens.columns
    return jnp.take_along_axis(x, columns.reshape(*columns.shape, *(1,) * (x.ndim - 2)), axis=1)


def _with_global(inputs: AttentionInputs, context: jax.Array, rate: float) -> jax.Array:
    """Return the context with that of the global tokens, which read the whole sequence."""
    tokens, own, heads, length = inputs.global_tokens, of_global(inputs), inputs.keys.shape[1], inputs.q.shape[1]
    assert tokens
    q = _of_columns(inputs, split_heads(own.q, heads))
    k, v = (split_heads(x, heads) for x in (own.k, own.v))
    readable = inputs.mask[:, None, None, :] != 0
    if inputs.segments is not None:
        readable &= _of_columns(inputs, inputs.segments)[:, None, :, None] == inputs.segments[:, None, None, :]
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    probabilities = jax.nn.softmax(jnp.where(readable, scores, MASKED_SCORE))
    if rate > 0:
        index = (tokens.columns[:, None, :, None] * length + jnp.arange(length)).astype(jnp.uint32)
        first_key, second_key = (inputs.keys[:, :, i, None, None] for i in (0, 1))
        probabilities = drop(probabilities, index, first_key, second_key, rate)
    found = jnp.einsum("bhqk,bkhd->bqhd", probabilities.astype(v.dtype), v)
    columns = jnp.where(_of_columns(inputs, tokens.chosen), tokens.columns, length)  # beyond the end: dropped
    put = jax.vmap(lambda context, columns, found: context.at[columns].set(found, mode="drop"))
    return put(context, columns, found.reshape(*found.shape[:2], -1))


def _padded(x: jax.Array, before: int, after: int) -> jax.Array:
    """With zeros along the second axis."""
    return jnp.pad(x, ((0, 0), (before, after), *((0, 0),) * (x.ndim - 2)))
