"""Heads of the first block that read a token's neighbors from the start (docs/decisions/0014-neighbors.md).

The score of a query and a key is given a part that depends on their distance alone, and peaks at one distance: a sum
of cosines. Rotary positions make cosines of whatever all tokens share, so all rows of the token table get a part in
common. Learned positions make them of waves in the position table.

A head of the first block that reads, from the start, its own token in the other text of a pair.

Whether two texts have words in common is most of what a small model can know of next sentences and of questions with
their answers (docs/decisions/0021-matches.md). Attention finds it late: a token reads itself best. Here the
query and the key of the head are one projection of the token, and token types let it prefer the other text.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import table_width
from bert_jax.models.positions import POSITIONS

OFFSETS = (-1, 1, -2, 2)  # of the key that a head reads, from its query; heads take turns
VARIANCE = 0.77  # of a standard normal cut at two deviations
ROTATIONS = 3  # of a head's frequencies the fastest, which tell neighboring distances apart
ROTARY_SCORE = 24.0  # nats, where the distance is the head's
WAVES = np.geomspace(0.1, 2.5, 8)  # radians per position: no distance below 128 comes near to their sum at 0
WAVE_SCORE = 12.0


class Start(NamedTuple):
    """What is added to parameters at the start, float32; tables in standard deviations of their entries."""

    token: np.ndarray  # [table width], to each row of the token table
    position: np.ndarray  # [positions, table width], to the position table, where there is one
    query: np.ndarray  # [width, width], to the first block's kernels
    key: np.ndarray


def read_neighbors(params: dict[str, Any], config: EncoderConfig) -> dict[str, Any]:
    """Return the parameters of a model just drawn, float32, so changed that heads of the first block read neighbors."""
    start, deviation = STARTS[config.positions].start(config), config.initializer_range
    params = jax.tree.map(lambda x: x, params)  # the caller's dictionaries stay as they are
    tables, attention = params["encoder"]["embeddings"], params["encoder"]["layers"]["attention"]
    tables["token"] = tables["token"].at[: config.vocab_size].add(deviation * start.token)
    if "position" in tables:
        tables["position"] += deviation * start.position
    for name, kernel in (("query", start.query), ("key", start.key)):
        attention[name]["kernel"] = attention[name]["kernel"].at[0].add(kernel)
    return params


def rotary_start(config: EncoderConfig) -> Start:
    """Return the start with rotary positions, on tables of any width; the phases are those of positions/rotary.py."""
    width, tables, head_dim = config.hidden_size, table_width(config), config.hidden_size // config.num_heads
    half = head_dim // 2
    speeds = config.rotary_base ** (-np.arange(half) / half)[:ROTATIONS]
    number = len(speeds)
    common = (-1.0) ** np.arange(tables)  # of mean 0, which norms keep, as is every even piece of it
    # Between tables and blocks of other widths the identity stands at the start, which cuts or pads.
    row = np.pad(common[:width], (0, max(0, width - tables)))[:, None] / math.sqrt(min(width, tables))
    size = _size(config, ROTARY_SCORE / number, 1 / (1 + VARIANCE))
    query, key = np.zeros((2, width, config.num_heads, head_dim))
    for head, offset in enumerate(_offsets(config)):
        query[:, head, :number] = size * row
        key[:, head, :number] = size * row * np.cos(offset * speeds)
        key[:, head, half : half + number] = size * row * -np.sin(offset * speeds)
    return _start(common, np.zeros(tables), query, key)


def learned_start(config: EncoderConfig) -> Start:
    """Return the start with learned positions: a head compares the waves of a query with those of a key."""
    width, head_dim = config.hidden_size, config.hidden_size // config.num_heads
    speeds = WAVES[-(head_dim // 2) :]
    number = len(speeds)
    cosine, sine = np.split(directions(width, range(width - 2 * number, width)), 2, axis=1)
    angles = np.arange(config.position_offset + config.max_positions)[:, None] * speeds
    waves = np.cos(angles) @ cosine.T + np.sin(angles) @ sine.T
    # What a norm leaves of the waves beside token, position and token type as they are drawn.
    size = _size(config, WAVE_SCORE, 1 / (1 + VARIANCE * (2 + bool(config.num_token_types))))
    query, key = np.zeros((2, width, config.num_heads, head_dim))
    for head, offset in enumerate(_offsets(config)):
        by_cosine, by_sine = np.cos(offset * speeds), np.sin(offset * speeds)
        query[:, head, : 2 * number] = size * np.hstack([cosine, sine])
        # The waves of the key, moved to the query's position.
        key[:, head, :number] = size * (cosine * by_cosine + sine * by_sine)
        key[:, head, number : 2 * number] = size * (sine * by_cosine - cosine * by_sine)
    return _start(np.zeros(width), math.sqrt(width / number) * waves, query, key)


def _offsets(config: EncoderConfig) -> list[int]:
    offsets = [offset for offset in OFFSETS if offset < 0 or not config.causal]
    return [offsets[head % len(offsets)] for head in range(config.num_heads)]


def _size(config: EncoderConfig, score: float, fraction: float) -> float:
    """Return the entry of a query and of a key that gives `score`, of vectors with `fraction` of their square in it."""
    return math.sqrt(score * math.sqrt(config.hidden_size // config.num_heads) / (fraction * config.hidden_size))


def directions(width: int, frequencies: range) -> np.ndarray:
    """Return an orthonormal column for each frequency of 1 to `width - 1`, of mean 0, which norms keep (DCT-II)."""
    angles = math.pi / width * np.outer(np.arange(width) + 0.5, frequencies)
    return math.sqrt(2 / width) * np.cos(angles)


def _start(token: np.ndarray, position: np.ndarray, query: np.ndarray, key: np.ndarray) -> Start:
    kernels = (x.reshape(len(x), -1) for x in (query, key))
    return Start(*(x.astype(np.float32) for x in (token, position, *kernels)))


class Scheme(NamedTuple):
    """A row of STARTS."""

    start: Callable[[EncoderConfig], Start]
    projected: bool  # also of tables that are narrower or wider than the blocks


# By model.positions; with others, heads cannot start so.
STARTS = {"rotary": Scheme(rotary_start, projected=True), "learned": Scheme(learned_start, projected=False)}


def can_read_neighbors(config: EncoderConfig) -> bool:
    """Return whether heads can start by reading neighbors in this architecture."""
    scheme = STARTS.get(config.positions)
    if config.bottleneck_size or config.trigram_embeddings:  # heads do not read the sum of the tables
        return False
    return scheme is not None and (scheme.projected or config.embedding_size is None)


SCORE = 15.0  # nats, of a token and itself
OTHER_TEXT = 5.0  # nats more for a key of the other text, and less for one of the same
TYPES = 0.7  # size of the token types, in that of a token
TURN = 1.5  # radians that a pair of features may turn within TEXT positions, to be read at any distance
TEXT = 128


def read_matches(params: dict[str, Any], config: EncoderConfig) -> dict[str, Any]:
    """Return parameters as `read_neighbors` leaves them, so changed that the last head of the first block matches."""
    width, head_dim = config.hidden_size, config.hidden_size // config.num_heads
    features = _slow(config, head_dim)
    columns = directions(width, range(2, 2 + len(features)))
    other = directions(width, range(1, 2))[:, 0] * math.sqrt(width)  # of entries of variance 1
    # What a norm leaves of the token beside the part in common and the type.
    token, kind = (size / (VARIANCE + 1 + TYPES**2) for size in (VARIANCE, TYPES**2))
    query = np.zeros((width, head_dim))
    query[:, features] = columns * math.sqrt(SCORE * math.sqrt(head_dim) / (token * len(features)))
    key = query.copy()
    by_type = other / width * math.sqrt(OTHER_TEXT * math.sqrt(head_dim) / kind)
    query[:, features[-1]], key[:, features[-1]] = by_type, -by_type
    tables, attention = params["encoder"]["embeddings"], params["encoder"]["layers"]["attention"]
    types = config.initializer_range * TYPES * np.stack([other, -other])
    tables["token_type"] = tables["token_type"].at[:2].set(types.astype(np.float32))
    for name, kernel in (("query", query), ("key", key)):
        attention[name]["kernel"] = attention[name]["kernel"].at[0, :, -head_dim:].set(kernel.astype(np.float32))
    return params


def _slow(config: EncoderConfig, head_dim: int) -> np.ndarray:
    """The features of a head that rotary positions turn little within a text."""
    half = head_dim // 2
    slow = np.flatnonzero(config.rotary_base ** (-np.arange(half) / half) * TEXT < TURN)
    return np.concatenate([slow, half + slow])


def can_read_matches(config: EncoderConfig) -> bool:
    """Return whether a head can start by matching tokens in this architecture."""
    rotary = POSITIONS[config.positions].angles is not None and table_width(config) == config.hidden_size
    return rotary and config.num_token_types >= 2 and len(_slow(config, config.hidden_size // config.num_heads)) >= 16
