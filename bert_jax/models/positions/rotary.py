"""Rotary positions (Su et al. 2021): the score of a query and a key depends on their distance alone."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.layers import block_width
from bert_jax.models.positions.learned import restarting_positions


class Angles(NamedTuple):
    """Cosine and sine of each position's angles: float32 `[batch or 1, length, 1, head_dim / 2]`."""

    cosine: jax.Array
    sine: jax.Array


def angles(config: EncoderConfig, base: float, length: int, segments: jax.Array | None) -> Angles:
    """Return the angles `position / base^(2 i / head_dim)` of pair i; positions restart in each segment."""
    half, odd = divmod(block_width(config) // config.num_heads, 2)
    if odd:
        raise UserError(
            f"model.positions={config.positions} needs an even number of features per head, not {2 * half + odd}"
        )
    numbers = jnp.arange(length)[None] if segments is None else restarting_positions(segments)
    frequencies = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    turned = (numbers[:, :, None] * frequencies)[:, :, None, :]
    return Angles(jnp.cos(turned), jnp.sin(turned))


def rotate(config: EncoderConfig, x: jax.Array, by: Angles) -> jax.Array:
    """Rotate pairs of features of each head by the angles of their position; float32 inside.

    The pairs of a head are its feature i and i + head_dim / 2, as in GPT-NeoX and transformers.
    """
    heads = x.astype(jnp.float32).reshape(*x.shape[:2], config.num_heads, -1)
    first, second = jnp.split(heads, 2, axis=-1)
    turned = (first * by.cosine - second * by.sine, second * by.cosine + first * by.sine)
    return jnp.concatenate(turned, axis=-1).reshape(x.shape).astype(x.dtype)
