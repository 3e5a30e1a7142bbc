"""Weights of a model of short sequences for training on longer ones."""

import dataclasses
from typing import Any

import numpy as np

from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import EncoderConfig
from bert_jax.console import Console
from bert_jax.models import Params
from bert_jax.models.positions import POSITIONS


def with_longer_positions(found: Weights, wanted: EncoderConfig, console: Console) -> Weights:
    """Return the weights with as many positions as `wanted` has, where they have fewer; otherwise as they are.

    A table of learned positions is repeated from its first row on, so that each stretch starts as it was trained
    (Longformer, Beltagy et al. 2020). Rotary positions have no table: they take the base of `wanted`, whose slower
    rotations separate distant tokens (Xiong et al. 2023). A line says what was done.
    """
    ours, theirs = wanted.max_positions, found.config.max_positions
    scheme = POSITIONS[found.config.positions]
    if ours <= theirs or wanted.positions != found.config.positions:
        return found
    changed: dict[str, Any] = {"max_positions": ours}
    params = found.params
    said = f"{theirs:,} positions extended to {ours:,}"
    if scheme.embed:
        params = _repeated(params, found.config.position_offset, ours)
        said += ", by repeating their table"
    if scheme.angles and wanted.rotary_base != found.config.rotary_base:
        changed["rotary_base"] = wanted.rotary_base
        said += f", with the rotary base {wanted.rotary_base:,g} instead of {found.config.rotary_base:,g}"
    console.say(said)
    return found._replace(config=dataclasses.replace(found.config, **changed), params=params)


def _repeated(params: Params, offset: int, positions: int) -> Params:
    embeddings = params["encoder"]["embeddings"]
    table = np.asarray(embeddings["position"])
    longer = np.resize(table[offset:], (positions, table.shape[1]))  # repeats whole rows
    embeddings = {**embeddings, "position": np.concatenate([table[:offset], longer])}
    return {**params, "encoder": {**params["encoder"], "embeddings": embeddings}}
