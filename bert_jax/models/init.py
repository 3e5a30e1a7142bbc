"""Initial values of parameters: scales by `model.initialization`, and attention heads with a designed start.

**Neighbor heads** of the first block attend to a token's neighbors from the start (docs/decisions/0014-neighbors.md).
The score of a query and a key gets a term that depends only on their distance and peaks at one distance. The term is a
sum of cosines of the distance. With rotary positions, features with equal values in all tokens give cosines of the
distance, so all rows of the token table get a common vector. With learned positions, sinusoids in the rows of the
position table give cosines of the distance.

**The matching head**, the last head of the first block, attends to equal tokens in the other text of a pair. For a
small model, words in common are the best evidence that two sentences, or a question and its answer, belong together
(docs/decisions/0021-matches.md). Attention takes long to learn to find common words, because a token first learns to
attend to itself. In the matching head, query and key are the same projection of the token, and token types make the
head prefer the other text.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import EncoderConfig

# As in BERT, a normal distribution is cut at two standard deviations and not rescaled, so its deviation is 0.88 of the
# nominal deviation.
kernel_init = jax.nn.initializers.truncated_normal
VARIANCE = 0.77  # variance of a standard normal distribution that is cut at two deviations


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitScales:
    """A row of INITIALIZATIONS for an architecture: the standard deviations of its normal distributions."""

    inner: float  # deviation of tables, and of matrices that read the residual stream
    output: float  # deviation of the last matrices of attention and MLP, which write to the residual stream
    dense: float  # deviation of the dense layer in a head
    identity: float = 0.0  # added to the diagonal of the dense layer
    neighbors: bool = False  # whether heads of the first block start by reading neighbors
    matches: bool = False  # whether the last head of the first block starts by reading equal tokens in the other text


def normal_scales(config: EncoderConfig) -> InitScales:
    """Return equal standard deviations for all parameters, as in BERT."""
    return InitScales(inner=config.initializer_range, output=config.initializer_range, dense=config.initializer_range)


def depth_scaled_scales(config: EncoderConfig) -> InitScales:
    """Divide standard deviations of output maps and heads by the root of the number of sublayers (ModernBERT).

    The number of sublayers is `2 * num_layers`. With this scale, the sum of the outputs of all sublayers starts as
    large as the unscaled output of a single sublayer (Radford et al. 2019).
    """
    scaled = config.initializer_range / math.sqrt(2 * config.num_layers)
    return InitScales(inner=config.initializer_range, output=scaled, dense=scaled)


def identity_head_scales(config: EncoderConfig) -> InitScales:
    """Scale as in `depth_scaled_scales`, and start the dense layer of output heads as the identity.

    With a random dense layer, the blocks need hundreds of steps to learn features that fit the token table.
    """
    return dataclasses.replace(depth_scaled_scales(config), dense=0.0, identity=1.0)


def neighbor_scales(config: EncoderConfig) -> InitScales:
    """Scale as in `identity_head_scales`; heads of the first block start by attending to neighboring tokens."""
    return dataclasses.replace(identity_head_scales(config), neighbors=True)


def matching_scales(config: EncoderConfig) -> InitScales:
    """Scale as in `neighbor_scales`; the last head of block 1 starts by attending to equal tokens in the other text."""
    return dataclasses.replace(neighbor_scales(config), matches=True)


INITIALIZATIONS: dict[str, Callable[[EncoderConfig], InitScales]] = {
    "normal": normal_scales,
    "depth_scaled": depth_scaled_scales,
    "identity_head": identity_head_scales,
    "neighbors": neighbor_scales,
    "matches": matching_scales,
}


def init_scales(config: EncoderConfig) -> InitScales:
    """Return the standard deviations that `model.initialization` chooses."""
    return INITIALIZATIONS[config.initialization](config)


def matrix_initializer(stddev: float, identity: float) -> Callable[..., jax.Array]:
    """Return an initializer of matrices: `kernel_init(stddev)`, plus `identity` on the diagonal."""
    normal = kernel_init(stddev)

    def init(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
        return normal(rng, shape, dtype) + identity * jnp.eye(shape[0], shape[1], dtype=dtype)

    return init if identity else normal


def vocabulary_initializer(init: Callable[..., jax.Array], vocab_size: int) -> Callable[..., jax.Array]:
    """Return an initializer of tables over the padded vocabulary: `init` draws token rows; padding rows are 0."""

    def padded_table(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
        rows = init(rng, (vocab_size, shape[1]), dtype)
        return jnp.zeros(shape, dtype).at[:vocab_size].set(rows)

    return padded_table


OFFSETS = (-1, 1, -2, 2)  # columns from a query to the key that a head reads; heads take the offsets in turns
ROTATIONS = 3  # number of a head's fastest frequencies, which tell neighboring distances apart
ROTARY_SCORE = 24.0  # score at the distance of the head, in nats
WAVES = np.geomspace(
    0.1, 2.5, 8
)  # radians per position; the sum of cosines at distances 1 to 127 stays far below the sum at 0
WAVE_SCORE = 12.0


class NeighborTerms(NamedTuple):
    """Terms to add to initial parameters, float32; terms of tables are in standard deviations of the entries."""

    token: np.ndarray  # [table width], added to each row of the token table
    position: np.ndarray  # [positions, table width], added to the position table, if there is a table
    query: np.ndarray  # [width, heads * head_dim], added to the query kernel of the first block
    key: np.ndarray  # [width, heads * head_dim], added to the key kernel of the first block


def init_neighbor_heads(params: dict[str, Any], config: EncoderConfig) -> dict[str, Any]:
    """Return new parameters, float32, in which heads of the first block attend to neighboring tokens."""
    terms, deviation = NEIGHBOR_SCHEMES[config.positions].terms(config), config.initializer_range
    params = jax.tree.map(lambda x: x, params)  # the caller's dictionaries stay as they are
    tables, attention = params["encoder"]["embeddings"], params["encoder"]["layers"]["attention"]
    tables["token"] = tables["token"].at[: config.vocab_size].add(deviation * terms.token)
    if "position" in tables:
        tables["position"] += deviation * terms.position
    for name, kernel in (("query", terms.query), ("key", terms.key)):
        attention[name]["kernel"] = attention[name]["kernel"].at[0].add(kernel)
    return params


def rotary_neighbor_terms(config: EncoderConfig) -> NeighborTerms:
    """Return the terms for rotary positions, for tables of any width; the phases follow positions.py."""
    width, table_width, half = config.hidden_size, config.table_width, config.head_dim // 2
    speeds = config.rotary_base ** (-np.arange(half) / half)[:ROTATIONS]
    num_pairs = len(speeds)
    common = (-1.0) ** np.arange(table_width)  # each even number of entries has mean 0, which norms preserve
    # If tables and blocks differ in width, the projection between them starts as the identity, which cuts or pads
    # vectors.
    row = np.pad(common[:width], (0, max(0, width - table_width)))[:, None] / math.sqrt(min(width, table_width))
    entry = _matrix_entry_for_attention_score(config, ROTARY_SCORE / num_pairs, 1 / (1 + VARIANCE))
    query, key = np.zeros((2, width, config.num_heads, config.head_dim))
    for head, offset in enumerate(offsets_of_neighbor_heads(config)):
        query[:, head, :num_pairs] = entry * row
        key[:, head, :num_pairs] = entry * row * np.cos(offset * speeds)
        key[:, head, half : half + num_pairs] = entry * row * -np.sin(offset * speeds)
    return _neighbor_terms(common, np.zeros(table_width), query, key)


def learned_neighbor_terms(config: EncoderConfig) -> NeighborTerms:
    """Return the terms for learned positions: sinusoids in the position table, which a head compares."""
    width = config.hidden_size
    speeds = WAVES[-(config.head_dim // 2) :]
    num_waves = len(speeds)
    cosine, sine = np.split(cosine_columns(width, range(width - 2 * num_waves, width)), 2, axis=1)
    angles = np.arange(config.position_offset + config.max_positions)[:, None] * speeds
    waves = np.cos(angles) @ cosine.T + np.sin(angles) @ sine.T
    # The last argument is the fraction of the waves in a vector after a norm. The random embeddings of the token, the
    # position and the token type are the rest of the vector.
    entry = _matrix_entry_for_attention_score(
        config, WAVE_SCORE, 1 / (1 + VARIANCE * (2 + bool(config.num_token_types)))
    )
    query, key = np.zeros((2, width, config.num_heads, config.head_dim))
    for head, offset in enumerate(offsets_of_neighbor_heads(config)):
        by_cosine, by_sine = np.cos(offset * speeds), np.sin(offset * speeds)
        query[:, head, : 2 * num_waves] = entry * np.hstack([cosine, sine])
        # The waves of the key, moved to the query's position.
        key[:, head, :num_waves] = entry * (cosine * by_cosine + sine * by_sine)
        key[:, head, num_waves : 2 * num_waves] = entry * (sine * by_cosine - cosine * by_sine)
    return _neighbor_terms(np.zeros(width), math.sqrt(width / num_waves) * waves, query, key)


def offsets_of_neighbor_heads(config: EncoderConfig) -> list[int]:
    """Return the offset from a query to the key that each neighbor head of the first block attends to, by head."""
    offsets = [offset for offset in OFFSETS if offset < 0 or not config.causal]
    num_heads = config.num_heads - init_scales(config).matches  # the last head may be the matching head
    return [offsets[head % len(offsets)] for head in range(num_heads)]


def _matrix_entry_for_attention_score(config: EncoderConfig, score: float, fraction: float) -> float:
    """Return the entry of query and key matrices that gives `score` from `fraction` of a vector's squared length."""
    return math.sqrt(score * math.sqrt(config.head_dim) / (fraction * config.hidden_size))


def cosine_columns(width: int, frequencies: range) -> np.ndarray:
    """Return orthonormal columns of the DCT-II, one for each frequency from 1 to `width - 1`; their means are 0."""
    angles = math.pi / width * np.outer(np.arange(width) + 0.5, frequencies)
    return math.sqrt(2 / width) * np.cos(angles)


def _neighbor_terms(token: np.ndarray, position: np.ndarray, query: np.ndarray, key: np.ndarray) -> NeighborTerms:
    """Return the terms as float32; the axes of heads and features of `query` and `key` are merged."""
    kernels = (x.reshape(len(x), -1) for x in (query, key))
    return NeighborTerms(*(x.astype(np.float32) for x in (token, position, *kernels)))


class NeighborScheme(NamedTuple):
    """A row of NEIGHBOR_SCHEMES: neighbor heads with a position scheme."""

    terms: Callable[[EncoderConfig], NeighborTerms]
    any_table_width: bool  # whether tables may be narrower or wider than the blocks
    matching_head: bool  # whether the last head can match tokens


# The keys are values of model.positions; models with other positions have no neighbor heads.
NEIGHBOR_SCHEMES = {
    "rotary": NeighborScheme(rotary_neighbor_terms, any_table_width=True, matching_head=True),
    "learned": NeighborScheme(learned_neighbor_terms, any_table_width=False, matching_head=False),
}


def can_init_neighbor_heads(config: EncoderConfig) -> bool:
    """Return whether the architecture supports neighbor heads."""
    scheme = NEIGHBOR_SCHEMES.get(config.positions)
    if config.bottleneck_size or config.trigram_embeddings:  # heads of such a model do not read the sum of the tables
        return False
    fits = scheme is not None and (scheme.any_table_width or config.embedding_size is None)
    return fits and config.head_dim >= 2


SAME_TOKEN_SCORE = 15.0  # score of a token with itself, in nats
OTHER_TEXT_SCORE = 5.0  # nats added for a key of the other text, subtracted for a key of the query's text
TYPE_SIZE = 0.7  # size of the token types, as a fraction of the size of a token
MAX_TURN = 1.5  # radians within TEXT_LENGTH positions: slower pairs of features match at any distance
TEXT_LENGTH = 128


def init_matching_head(params: dict[str, Any], config: EncoderConfig) -> dict[str, Any]:
    """Return parameters of `init_neighbor_heads`, changed so that the first block's last head is the matching head."""
    width, head_dim, features = config.hidden_size, config.head_dim, _slowly_rotating_features(config)
    columns = cosine_columns(width, range(2, 2 + len(features)))
    other_text = cosine_columns(width, range(1, 2))[:, 0] * math.sqrt(width)  # entries have variance 1
    # The fractions of the token and of its type in a vector after a norm; the common vector is the rest.
    token_part, type_part = (size / (VARIANCE + 1 + TYPE_SIZE**2) for size in (VARIANCE, TYPE_SIZE**2))
    query = np.zeros((width, head_dim))
    query[:, features] = columns * math.sqrt(SAME_TOKEN_SCORE * math.sqrt(head_dim) / (token_part * len(features)))
    key = query.copy()
    by_type = other_text / width * math.sqrt(OTHER_TEXT_SCORE * math.sqrt(head_dim) / type_part)
    query[:, features[-1]], key[:, features[-1]] = by_type, -by_type
    tables, attention = params["encoder"]["embeddings"], params["encoder"]["layers"]["attention"]
    types = config.initializer_range * TYPE_SIZE * np.stack([other_text, -other_text])
    tables["token_type"] = tables["token_type"].at[:2].set(types.astype(np.float32))
    for name, kernel in (("query", query), ("key", key)):
        attention[name]["kernel"] = attention[name]["kernel"].at[0, :, -head_dim:].set(kernel.astype(np.float32))
    return params


def _slowly_rotating_features(config: EncoderConfig) -> np.ndarray:
    """Return the features of a head that rotary positions rotate little within a text."""
    half = config.head_dim // 2
    slow = np.flatnonzero(config.rotary_base ** (-np.arange(half) / half) * TEXT_LENGTH < MAX_TURN)
    return np.concatenate([slow, half + slow])


def can_init_matching_head(config: EncoderConfig) -> bool:
    """Return whether the architecture supports a matching head."""
    scheme = NEIGHBOR_SCHEMES.get(config.positions)
    fits = scheme is not None and scheme.matching_head and config.table_width == config.hidden_size
    return fits and config.num_token_types >= 2 and len(_slowly_rotating_features(config)) >= 16
