"""Attention as plain operations, which XLA compiles for any platform; the softmax is float32."""

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from bert_jax.models.attention import local
from bert_jax.models.attention.inputs import MASKED_SCORE, AttentionInputs, readable_keys, split_heads
from bert_jax.models.dropout import keep_mask

Gradients = tuple[jax.Array, jax.Array, jax.Array]  # of q, k and v


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; the backward pass computes the probabilities again."""
    if local.fits(inputs):
        return _attend_locally(inputs._replace(reach=jnp.asarray(inputs.reach, jnp.int32)), rate)
    return jax.checkpoint(functools.partial(whole, rate=rate))(inputs)


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
    return jax.lax.cond(jnp.asarray(inputs.reach) <= inputs.window.reach, near, all_pairs, inputs, *more)


def whole(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the same from the scores of all pairs."""
    length, keys, weights = inputs.q.shape[1], inputs.keys, probabilities(inputs)
    if rate > 0:
        index = jnp.arange(length * length, dtype=jnp.uint32).reshape(length, length)
        kept = keep_mask(index, keys[:, :, 0, None, None], keys[:, :, 1, None, None], rate)
        weights = jnp.where(kept, weights / (1 - rate), 0.0)
    return read_by(weights, inputs)


def read_by(weights: jax.Array, inputs: AttentionInputs) -> jax.Array:
    """Return the context, as `inputs.q`, of weights as those of `probabilities`."""
    v = split_heads(inputs.v, inputs.keys.shape[1])
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v).reshape(inputs.q.shape)


def probabilities(inputs: AttentionInputs) -> jax.Array:
    """Return how much each query reads of each key: float32 `[batch, heads, length, length]`, rows that sum to 1."""
    heads, bias = inputs.keys.shape[1], inputs.bias
    q, k = (split_heads(x, heads) for x in (inputs.q, inputs.k))
    scale = ((1 if inputs.distances is None else 3) * q.shape[-1]) ** -0.5
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * scale, k, preferred_element_type=jnp.float32)
    if inputs.distances is not None:
        keys_there, queries_there = (x.reshape(-1, heads, q.shape[-1]) for x in inputs.distances)
        scores += read_distances(q * scale, keys_there) + read_distances(k * scale, queries_there).swapaxes(2, 3)
    scores = scores if bias is None else scores + bias
    scores = jnp.where(readable_keys(inputs), scores, MASKED_SCORE)
    return jax.nn.softmax(scores)


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
