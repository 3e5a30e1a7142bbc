"""Relative positions in buckets (Raffel et al. 2020, T5): a learned number per head and bucket, added to the scores."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.layers import deviations, kernel_init, lookup, param


def relative_bias(module: nn.Module, config: EncoderConfig, length: int) -> jax.Array:
    """Return float32 `[heads, length, length]`, by query and key, from the table `[relative_buckets, heads]`.

    Within a segment of a packed sequence distances are those of the columns, so that packing changes nothing.
    """
    shape = (config.relative_buckets, config.num_heads)
    table = param(module, "table", kernel_init(deviations(config).inner), shape, ("positions", "heads"))
    distances = jnp.arange(2 * length)  # of key from query, modulo 2 * length
    distances = jnp.where(distances < length, distances, distances - 2 * length)
    numbers = bucket(distances, config.relative_buckets, config.relative_max_distance)
    by_distance = lookup(numbers[None], table)[0].T
    # Rows that begin one element further left each, without a gather, whose gradient would be a slow scatter.
    repeated = jnp.broadcast_to(by_distance[:, None], (config.num_heads, length, 2 * length))
    flat = repeated.reshape(config.num_heads, -1)[:, : length * (2 * length - 1)]
    return flat.reshape(config.num_heads, length, 2 * length - 1)[:, :, :length]


def bucket(distances: jax.Array, buckets: int, max_distance: int) -> jax.Array:
    """Return the bucket of each distance of a key from a query, int32, as T5's encoder.

    Half of the buckets are for keys to the right. Of each half, the first half has one distance each; the others grow
    logarithmically up to `max_distance`, and the last takes all beyond.
    """
    side, single = buckets // 2, buckets // 4
    if buckets % 2 or max_distance <= single:
        raise UserError(
            f"model.relative_buckets={buckets}, model.relative_max_distance={max_distance}: the first must be even, "
            "and the second larger than a quarter of it"
        )
    away = jnp.abs(distances)
    ratio = jnp.log(jnp.maximum(away, single).astype(jnp.float32) / single) / math.log(max_distance / single)
    far = jnp.minimum(single + (ratio * (side - single)).astype(jnp.int32), side - 1)
    return jnp.where(distances > 0, side, 0) + jnp.where(away < single, away, far)
