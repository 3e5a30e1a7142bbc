"""Extension of a model's positions, for training on longer sequences."""

import dataclasses

import numpy as np

from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import EncoderConfig
from bert_jax.console import Console
from bert_jax.models import Params
from bert_jax.models.positions import POSITIONS


def with_longer_positions(weights: Weights, wanted: EncoderConfig, console: Console) -> Weights:
    """Return weights with at least as many positions as the config `wanted`; weights with enough stay unchanged.

    A table of learned positions is repeated, so that each part of the longer table starts with trained rows
    (Longformer, Beltagy et al. 2020). Rotary positions have no table; they take the rotary base of `wanted`, whose
    slower rotations separate distant tokens (Xiong et al. 2023). The console prints the change.
    """
    old, new = weights.config.max_positions, wanted.max_positions
    scheme = POSITIONS[weights.config.positions]
    if new <= old or wanted.positions != weights.config.positions:
        return weights
    params, rotary_base, local_base = weights.params, weights.config.rotary_base, weights.config.local_rotary_base
    message = f"{old:,} positions extended to {new:,}"
    if scheme.embed:
        params = _repeat_position_table(params, weights.config.position_offset, new)
        message += ", by repeating their table"
    if scheme.angles and wanted.rotary_base != rotary_base:
        message += f", with the rotary base {wanted.rotary_base:,g} instead of {rotary_base:,g}"
        if local_base is None and wanted.local_rotary_base is not None:  # local layers keep their rotary base
            local_base = rotary_base
        rotary_base = wanted.rotary_base
    console.say(message)
    config = dataclasses.replace(
        weights.config, max_positions=new, rotary_base=rotary_base, local_rotary_base=local_base
    )
    return dataclasses.replace(weights, config=config, params=params)


def _repeat_position_table(params: Params, offset: int, num_positions: int) -> Params:
    """Return parameters with a longer position table: rows from `offset` on repeat, and fill `num_positions` rows."""
    embeddings = params["encoder"]["embeddings"]
    table = np.asarray(embeddings["position"])
    rows = np.resize(table[offset:], (num_positions, table.shape[1]))  # repeats whole rows
    embeddings = {**embeddings, "position": np.concatenate([table[:offset], rows])}
    return {**params, "encoder": {**params["encoder"], "embeddings": embeddings}}
