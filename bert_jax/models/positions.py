"""Position schemes, which encode the order of tokens, as rows of a table; a key is a value of `model.positions`.

learned       a row of a table is added to each token's embedding
rotary        queries and keys are rotated by angles, so that a score depends on their distance (Su et al. 2021)
relative      a learned number for each head and bucket of distances is added to the scores (Raffel et al. 2020, T5)
disentangled  tokens attend to embeddings of tokens and of distances (He et al. 2021, DeBERTa)

In the disentangled scheme, the score of query i and key j has three terms, `q_i k_j + q_i k(i - j) + q(i - j) k_j`,
divided by the root of three times the features of a head. `k(d)` and `q(d)` are the layer's projections of the
embedding of the distance `d`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.init import init_scales, kernel_init
from bert_jax.models.layers import logical_param, rows_by_one_hot_product
from bert_jax.models.norms import norm_layer

PositionEmbedder = Callable[[int, jax.Array | None], jax.Array]


class Distances(NamedTuple):
    """Embeddings of distances, and the row of each distance from `-length` to `length - 1` (columns to the right)."""

    table: jax.Array  # float32 [rows, hidden]
    of_keys: jax.Array  # int32 [2 * length]: rows for the distance from a query to its key
    of_queries: jax.Array  # int32 [2 * length]: rows for the distance from a key to its query


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionScheme:
    """A row of POSITIONS: up to five functions; a function that the scheme lacks is None.

    The function `embed(module, config)` makes the parameters of the scheme in the setup of the embeddings. The result
    of `embed` is a function of the length and the segments, which returns an array to add to the token embeddings,
    float32 `[length, width]` or `[batch, length, width]`. The function `rotate(config, x, angles)` transforms the
    queries and the keys of each layer, `[batch, length, heads * head_dim]`. The function `angles(config, base, length,
    segments)` returns the input of `rotate`, a tree of arrays. This function `angles` is called once with the base of
    global blocks, and once with the base of local blocks. The function `bias(module, config, length)` returns an array
    to add to the scores, float32 `[heads, length, length]`, for each query and key. The bias is computed once for all
    layers, with shared parameters. The function `distances(module, config, length)` returns embeddings of distances for
    the queries and keys of each layer; all layers share the table of embeddings.

    For packed sequences, `segments` is int32 `[batch, length]`, and positions restart in each segment; without packing,
    `segments` is None.
    """

    embed: Callable[[nn.Module, EncoderConfig], PositionEmbedder] | None = None
    rotate: Callable[[EncoderConfig, jax.Array, Any], jax.Array] | None = None
    angles: Callable[[EncoderConfig, float, int, jax.Array | None], Any] | None = None
    bias: Callable[[nn.Module, EncoderConfig, int], jax.Array] | None = None
    distances: Callable[[nn.Module, EncoderConfig, int], Distances] | None = None

    @property
    def changes_scores(self) -> bool:
        """Return whether a kernel must add terms to the scores."""
        return self.bias is not None or self.distances is not None


def learned_positions(module: nn.Module, config: EncoderConfig) -> PositionEmbedder:
    """Make a table of learned embeddings (Devlin et al. 2018); the first position is row `position_offset`."""
    first, shape = config.position_offset, (config.position_offset + config.max_positions, config.sum_width)
    table = logical_param(module, "position", kernel_init(init_scales(config).inner), shape, ("positions", "features"))

    def embed(length: int, segments: jax.Array | None) -> jax.Array:
        rows = table[first : first + length]
        return rows if segments is None else rows_by_one_hot_product(positions_within_segments(segments), rows)

    return embed


def positions_within_segments(segments: jax.Array) -> jax.Array:
    """Return the position of each column within its segment, from 0, int32 `[batch, length]`."""
    column = jax.lax.broadcasted_iota(jnp.int32, segments.shape, 1)
    begins = jnp.pad(segments[:, 1:] != segments[:, :-1], ((0, 0), (1, 0)))
    return column - jax.lax.cummax(jnp.where(begins, column, 0), axis=1)


class Angles(NamedTuple):
    """Cosine and sine of each position's angles, float32 `[batch or 1, length, 1, head_dim / 2]`."""

    cosine: jax.Array
    sine: jax.Array


def rotary_angles(config: EncoderConfig, base: float, length: int, segments: jax.Array | None) -> Angles:
    """Return the angles `position / base^(2 i / head_dim)` of pair i; positions restart in each segment."""
    half, odd = divmod(config.head_dim, 2)
    if odd:
        raise UserError(
            f"model.positions={config.positions} needs an even number of features per head, not {2 * half + odd}"
        )
    # The angles are constants if possible, because XLA on a CPU computes a cosine again for each feature of each head.
    numbers = np if segments is None and isinstance(length, int) else jnp
    positions = numbers.arange(length)[None] if segments is None else positions_within_segments(segments)
    frequencies = base ** (-numbers.arange(half, dtype=np.float32) / half)
    angles = (positions[:, :, None] * frequencies)[:, :, None, :].astype(np.float32)
    return Angles(jnp.asarray(numbers.cos(angles)), jnp.asarray(numbers.sin(angles)))


def rotate(config: EncoderConfig, x: jax.Array, angles: Angles) -> jax.Array:
    """Rotate pairs of features of each head by the angles of their position, computed in float32.

    A pair is features i and i + head_dim / 2 of a head, as in GPT-NeoX and transformers.
    """
    heads = x.astype(jnp.float32).reshape(*x.shape[:2], config.num_heads, -1)
    first, second = jnp.split(heads, 2, axis=-1)
    rotated = (first * angles.cosine - second * angles.sine, second * angles.cosine + first * angles.sine)
    return jnp.concatenate(rotated, axis=-1).reshape(x.shape).astype(x.dtype)


def relative_bias(module: nn.Module, config: EncoderConfig, length: int) -> jax.Array:
    """Return the bias for each query and key, float32 `[heads, length, length]`, from the table of buckets.

    A distance is the difference of two columns, so packing does not change the distances within a segment.
    """
    shape = (config.relative_buckets, config.num_heads)
    table = logical_param(module, "table", kernel_init(init_scales(config).inner), shape, ("positions", "heads"))
    distances = jnp.arange(2 * length)  # distances of a key from the query, modulo 2 * length
    distances = jnp.where(distances < length, distances, distances - 2 * length)
    buckets = distance_buckets(distances, config.relative_buckets, config.relative_max_distance)
    by_distance = rows_by_one_hot_product(buckets[None], table)[0].T
    # Shift each row one element further left, without a gather, whose gradient would be a slow scatter.
    repeated = jnp.broadcast_to(by_distance[:, None], (config.num_heads, length, 2 * length))
    flat = repeated.reshape(config.num_heads, -1)[:, : length * (2 * length - 1)]
    return flat.reshape(config.num_heads, length, 2 * length - 1)[:, :, :length]


def distance_buckets(distances: jax.Array, num_buckets: int, max_distance: int) -> jax.Array:
    """Return the bucket of each distance of a key from a query, int32, as in T5's encoder.

    Half of the buckets are for keys to the right of the query, and half for all other keys. For each direction, the
    first half of the buckets hold a single distance each. The sizes of the other buckets of a direction grow
    logarithmically up to `max_distance`, and the last bucket also holds all larger distances.
    """
    side, single = num_buckets // 2, num_buckets // 4
    if num_buckets % 2 or max_distance <= single:
        raise UserError(
            f"model.relative_buckets={num_buckets}, model.relative_max_distance={max_distance}: the first must be "
            "even, and the second larger than a quarter of it"
        )
    away = jnp.abs(distances)
    ratio = jnp.log(jnp.maximum(away, single).astype(jnp.float32) / single) / math.log(max_distance / single)
    far = jnp.minimum(single + (ratio * (side - single)).astype(jnp.int32), side - 1)
    return jnp.where(distances > 0, side, 0) + jnp.where(away < single, away, far)


def distance_embeddings(module: nn.Module, config: EncoderConfig, length: int) -> Distances:
    """Return the normalized table `[relative_buckets, width]` of all layers (DeBERTa 3), and each distance's row.

    A distance is the difference of two columns, so packing does not change distances. In training, the original DeBERTa
    applies dropout to the table; here the table has no dropout.
    """
    shape = (config.relative_buckets, config.block_width)
    table = logical_param(module, "table", kernel_init(init_scales(config).inner), shape, ("positions", "features"))
    table = norm_layer(config, jnp.dtype(jnp.float32), name="norm")(table)
    away = jnp.arange(2 * length) - length
    return Distances(table, distance_embedding_rows(-away, config), distance_embedding_rows(away, config))


def distance_embedding_rows(signed_distances: jax.Array, config: EncoderConfig) -> jax.Array:
    """Return the table row of each signed distance between a query and a key, int32.

    For each sign of the distance, half of the rows have a single distance each. The other rows have ranges of distances
    that grow logarithmically up to `relative_max_distance`, and the last row also holds all larger distances.
    """
    half, max_distance = config.relative_buckets // 2, config.relative_max_distance
    single = half // 2
    if config.relative_buckets % 2 or single < 2 or max_distance - 1 <= single:
        raise UserError(
            f"model.relative_buckets={config.relative_buckets}, model.relative_max_distance={max_distance}: the first "
            "must be even and at least 8, and the second larger than a quarter of it by at least 2"
        )
    distance = np.arange(max_distance + 1)  # in float64 as in the original, because a number is rounded up
    ratio = np.log(np.maximum(distance, single) / single) / np.log((max_distance - 1) / single)
    steps = np.where(distance <= single, distance, single + np.ceil(ratio * (single - 1))).astype(np.int32)
    signed = jnp.sign(signed_distances) * jnp.asarray(steps)[jnp.minimum(jnp.abs(signed_distances), max_distance)]
    return jnp.clip(half + signed, 0, config.relative_buckets - 1)


POSITIONS: dict[str, PositionScheme] = {
    "learned": PositionScheme(embed=learned_positions),
    "rotary": PositionScheme(rotate=rotate, angles=rotary_angles),
    "relative": PositionScheme(bias=relative_bias),
    "disentangled": PositionScheme(distances=distance_embeddings),
    "learned_relative": PositionScheme(embed=learned_positions, bias=relative_bias),
}
