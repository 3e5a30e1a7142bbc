"""Disentangled attention (He et al. 2021, DeBERTa): tokens read embeddings of distances beside those of other tokens.

The score of query i and key j has three terms: `q_i k_j + q_i k(i - j) + q(i - j) k_j`, over the root of three times
the features of a head. `k(d)` and `q(d)` are what the layer's own maps make of the embedding of the distance `d`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.layers import block_width, deviations, kernel_init, param
from bert_jax.models.norms import norm_layer
from bert_jax.models.positions.scheme import Distances


def distances(module: nn.Module, config: EncoderConfig, length: int) -> Distances:
    """The table `[relative_buckets, width]` of all layers, normalized (DeBERTa version 3), and the rows of distances.

    Distances are those of the columns, so that packing changes nothing. The original drops features of the table in
    training; here they are kept.
    """
    shape = (config.relative_buckets, block_width(config))
    table = param(module, "table", kernel_init(deviations(config).inner), shape, ("positions", "features"))
    table = norm_layer(config, jnp.dtype(jnp.float32), name="norm")(table)
    away = jnp.arange(2 * length) - length
    return Distances(table, bucket(-away, config), bucket(away, config))


def bucket(away: jax.Array, config: EncoderConfig) -> jax.Array:
    """Return the row of each distance, int32: of a query from its key, or of a key from its query.

    Of each half, the first half of the rows has one distance each; the others grow logarithmically up to
    `relative_max_distance`, and the last takes all beyond.
    """
    half, most = config.relative_buckets // 2, config.relative_max_distance
    single = half // 2
    if config.relative_buckets % 2 or single < 2 or most - 1 <= single:
        raise UserError(
            f"model.relative_buckets={config.relative_buckets}, model.relative_max_distance={most}: the first must be "
            "even and at least 8, and the second larger than a quarter of it by at least 2"
        )
    distance = np.arange(most + 1)  # in float64, as the original: a number is rounded up
    ratio = np.log(np.maximum(distance, single) / single) / np.log((most - 1) / single)
    steps = np.where(distance <= single, distance, single + np.ceil(ratio * (single - 1))).astype(np.int32)
    signed = jnp.sign(away) * jnp.asarray(steps)[jnp.minimum(jnp.abs(away), most)]
    return jnp.clip(half + signed, 0, config.relative_buckets - 1)
