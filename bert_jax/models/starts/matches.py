"""A head of the first block that reads, from the start, its own token in the other text of a pair.

Whether two texts have words in common is most of what a small model can know of next sentences and of questions with
their answers (docs/decisions/2026-11-23-matches.md). Attention finds it late: a token reads itself best. Here the
query and the key of the head are one projection of the token, and token types let it prefer the other text.
"""

import math
from typing import Any

import numpy as np

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import table_width
from bert_jax.models.positions import POSITIONS
from bert_jax.models.starts.neighbors import VARIANCE, directions

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
