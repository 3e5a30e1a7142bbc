"""Position schemes: how a model knows the order of its tokens, as rows of one table keyed by `model.positions`."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.layers import kernel_init, lookup, param, table_width

ROTARY_BASE = 10_000.0  # wavelength of the slowest pair, over 2 pi

Embed = Callable[[int, jax.Array | None], jax.Array]


class PositionScheme(NamedTuple):
    """A row of POSITIONS: up to three parts, None where the scheme does not have it.

    `embed(module, config)`: makes the parameters of the scheme in the setup of the embeddings, and returns a function
    of the length and the segments, whose result is added to the token embeddings: float32 `[length, width]` or
    `[batch, length, width]`.
    `rotate(config, x, segments)`: transforms the queries and the keys of each layer, `[batch, length, heads *
    head_dim]`.
    `bias(module, config, length)`: float32 `[heads, length, length]`, added to the scores of each layer, in which it
    may make parameters.

    `segments`: int32 `[batch, length]` of packed sequences, whose positions restart; None where nothing is packed.
    """

    embed: Callable[[nn.Module, EncoderConfig], Embed] | None = None
    rotate: Callable[[EncoderConfig, jax.Array, jax.Array | None], jax.Array] | None = None
    bias: Callable[[nn.Module, EncoderConfig, int], jax.Array] | None = None


def learned(module: nn.Module, config: EncoderConfig) -> Embed:
    """A table of learned embeddings (Devlin et al. 2018), from row `position_offset` on."""
    first, shape = config.position_offset, (config.position_offset + config.max_positions, table_width(config))
    table = param(module, "position", kernel_init(config.initializer_range), shape, ("positions", "features"))

    def embed(length: int, segments: jax.Array | None) -> jax.Array:
        rows = table[first : first + length]
        return rows if segments is None else lookup(restarting_positions(segments), rows)

    return embed


def restarting_positions(segments: jax.Array) -> jax.Array:
    """Return the number of each column within its segment, from 0 on: int32 `[batch, length]`."""
    column = jax.lax.broadcasted_iota(jnp.int32, segments.shape, 1)
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)))
    return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)


def rotary(config: EncoderConfig, x: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Rotate pairs of features by an angle proportional to the position (Su et al. 2021); float32 inside.

    The pairs of a head are its feature i and i + head_dim / 2, as in GPT-NeoX and transformers.
    """
    batch, length, width = x.shape
    half, odd = divmod(width // config.num_heads, 2)
    if odd:
        raise UserError(
            f"model.positions=rotary needs an even number of features per head, not {width // config.num_heads}"
        )
    numbers = jnp.arange(length)[None] if segments is None else restarting_positions(segments)
    frequencies = ROTARY_BASE ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = (numbers[:, :, None] * frequencies)[:, :, None, :]  # [batch or 1, length, 1, half]
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32).reshape(batch, length, config.num_heads, 2 * half), 2, axis=-1)
    turned = jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


POSITIONS: dict[str, PositionScheme] = {
    "learned": PositionScheme(embed=learned),
    "rotary": PositionScheme(rotate=rotary),
}
