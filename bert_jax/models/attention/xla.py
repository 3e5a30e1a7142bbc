"""Attention as plain operations, which XLA compiles for any platform; the softmax is float32."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention import local
from bert_jax.models.attention.inputs import (
    MASKED_SCORE,
    AttentionInputs,
    of_global,
    of_rows,
    readable_keys,
    split_heads,
)
from bert_jax.models.dropout import drop

Gradients = tuple[jax.Array, jax.Array, jax.Array]  # of q, k and v
ROWS = 128  # queries at a time, where memory must not grow with the square of the length


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; the backward pass computes the probabilities again."""
    if local.fits(inputs) and inputs.global_tokens is None:
        return _attend_locally(inputs._replace(reach=jnp.asarray(inputs.reach, jnp.int32)), rate)
    return jax.checkpoint(functools.partial(_beside_a_window(inputs), rate=rate))(inputs)


def _beside_a_window(inputs: AttentionInputs) -> Callable[..., jax.Array]:
    """What computes a layer that may have global tokens: all pairs where the sequence is short.

    In a long one, chunks, where these can read every global token. Otherwise rows, in the time of all pairs and memory
    linear in the length, so that a program of both stays small.
    """
    if not local.fits(inputs):
        return whole
    assert inputs.window
    if (isinstance(inputs.reach, int) or inputs.window.always) and inputs.window.all_beside:
        return local.forward
    return _by_number


def _by_number(inputs: AttentionInputs, rate: float) -> jax.Array:
    assert inputs.window
    assert inputs.global_tokens
    number = inputs.global_tokens.chosen.sum(axis=1).max()
    fits = (number <= inputs.window.beside) & (jnp.asarray(inputs.reach) <= inputs.window.reach)
    some, any_number = (functools.partial(one, rate=rate) for one in (local.forward, by_rows))
    return cast(jax.Array, jax.lax.cond(fits, some, any_number, inputs))


def by_rows(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the same as `whole`, from the scores of some queries at a time."""
    batch, length, width = inputs.q.shape
    number = -(-length // ROWS)
    rows = jnp.minimum(jnp.arange(number * ROWS), length - 1).reshape(number, ROWS)  # the last are computed again
    some = jax.checkpoint(lambda rows: whole(inputs._replace(rows=rows), rate))
    return jax.lax.map(some, rows).swapaxes(0, 1).reshape(batch, number * ROWS, width)[:, :length]


def recomputed(
    forward: Callable[[AttentionInputs, float], jax.Array],
    backward: Callable[[AttentionInputs, jax.Array, float], Gradients],
) -> Callable[[AttentionInputs, float], jax.Array]:
    """Return `forward` with the gradients of `backward`, which keeps the inputs alone."""

    @functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
    def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
        return forward(inputs, rate)

    def keep(inputs: AttentionInputs, rate: float) -> tuple[jax.Array, AttentionInputs]:
        return forward(inputs, rate), inputs

    def pull(rate: float, inputs: AttentionInputs, gradient: jax.Array) -> tuple[AttentionInputs]:
        q, k, v = backward(inputs, gradient, rate)
        nothing = AttentionInputs(*(None,) * len(inputs))  # type: ignore[arg-type]  # None: no gradient
        return (nothing._replace(q=q, k=k, v=v, window=inputs.window),)

    attend.defvjp(keep, pull)
    return attend


def forward(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`, with dropout of `rate` on the probabilities."""
    near, all_pairs = (functools.partial(one, rate=rate) for one in (local.forward, whole))
    return cast(jax.Array, _by_reach(near, all_pairs, inputs))


def backward(inputs: AttentionInputs, gradient: jax.Array, rate: float) -> Gradients:
    """Return the gradients of q, k and v from that of the context."""

    def pull(
        context: Callable[[AttentionInputs, float], jax.Array], inputs: AttentionInputs, gradient: jax.Array
    ) -> Any:
        _, of_inputs = jax.vjp(lambda q, k, v: context(inputs._replace(q=q, k=k, v=v), rate), *inputs[:3])
        return of_inputs(gradient)

    near, all_pairs = (functools.partial(pull, one) for one in (local.forward, whole))
    return cast(Gradients, _by_reach(near, all_pairs, inputs, gradient))


def _by_reach(
    near: Callable[..., Any], all_pairs: Callable[..., Any], inputs: AttentionInputs, *more: jax.Array
) -> Any:
    """The first where the layer is local and its window is computed by chunks; a scanned program has both."""
    if not local.fits(inputs):
        return all_pairs(inputs, *more)
    assert inputs.window
    if inputs.window.always:
        return near(inputs, *more)
    return jax.lax.cond(jnp.asarray(inputs.reach) <= inputs.window.reach, near, all_pairs, inputs, *more)


def whole(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the same from the scores of all pairs."""
    length, keys, weights = inputs.q.shape[1], inputs.keys, probabilities(inputs)
    if rate > 0:
        if inputs.rows is None:
            index = jnp.arange(length * length, dtype=jnp.uint32).reshape(length, length)
        else:
            index = (inputs.rows[:, None] * length + jnp.arange(length)).astype(jnp.uint32)
        weights = drop(weights, index, keys[:, :, 0, None, None], keys[:, :, 1, None, None], rate)
    return read_by(weights, inputs)


def read_by(weights: jax.Array, inputs: AttentionInputs) -> jax.Array:
    """Return the context `[batch, queries, heads * head_dim]` of weights as those of `probabilities`."""
    v = split_heads(inputs.v, inputs.keys.shape[1])
    context = jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)
    context = context.reshape(*context.shape[:2], inputs.q.shape[2])
    if inputs.global_tokens is None:
        return context
    chosen = of_rows(inputs, inputs.global_tokens.chosen)[:, :, None]
    return jnp.where(chosen, read_by(weights, of_global(inputs)), context)


def probabilities(inputs: AttentionInputs) -> jax.Array:
    """Return how much each query reads of each key: float32 `[batch, heads, queries, length]`, rows that sum to 1."""
    heads, bias = inputs.keys.shape[1], inputs.bias
    q, k = (split_heads(x, heads) for x in (of_rows(inputs, inputs.q), inputs.k))
    scale = ((1 if inputs.distances is None else 3) * q.shape[-1]) ** -0.5
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * scale, k, preferred_element_type=jnp.float32)
    if inputs.distances is not None:
        keys_there, queries_there = (x.reshape(-1, heads, q.shape[-1]) for x in inputs.distances)
        scores += read_distances(q * scale, keys_there) + read_distances(k * scale, queries_there).swapaxes(2, 3)
    scores = scores if bias is None else scores + bias
    if inputs.global_tokens is not None and inputs.global_tokens.extra is not None:
        scores += inputs.global_tokens.extra[:, None, None, :]
    scores = jnp.where(readable_keys(inputs), scores, MASKED_SCORE)
    if inputs.global_tokens is None:
        return jax.nn.softmax(scores)
    chosen = of_rows(inputs, inputs.global_tokens.chosen)[:, None, :, None]
    return jnp.where(chosen, probabilities(of_global(inputs)), jax.nn.softmax(scores))


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


_attend_locally = recomputed(forward, backward)
