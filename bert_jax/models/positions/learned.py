"""Learned positions: a row of a table is added to each token's embedding."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import deviations, kernel_init, lookup, param, sum_width
from bert_jax.models.positions.scheme import Embed


def learned(module: nn.Module, config: EncoderConfig) -> Embed:
    """A table of learned embeddings (Devlin et al. 2018), from row `position_offset` on."""
    first, shape = config.position_offset, (config.position_offset + config.max_positions, sum_width(config))
    table = param(module, "position", kernel_init(deviations(config).inner), shape, ("positions", "features"))

    def embed(length: int, segments: jax.Array | None) -> jax.Array:
        rows = table[first : first + length]
        return rows if segments is None else lookup(restarting_positions(segments), rows)

    return embed


def restarting_positions(segments: jax.Array) -> jax.Array:
    """Return the number of each column within its segment, from 0 on: int32 `[batch, length]`."""
    column = jax.lax.broadcasted_iota(jnp.int32, segments.shape, 1)
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)))
    return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)
