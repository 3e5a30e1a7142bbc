"""The rows of INITIALIZATIONS against the distributions in their papers and docstrings."""

import dataclasses
import math

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.config.presets import PRESETS
from bert_jax.models import Head, make_model
from bert_jax.models.init import rotary_neighbor_terms

CUT = 0.8796  # deviation of a standard normal cut at two deviations
CONFIG = dataclasses.replace(PRESETS["modern_mini"], vocab_size=200, initializer_range=0.05)


@pytest.mark.parametrize("name", ["normal", "depth_scaled", "identity_head", "neighbors"])
def test_deviations_of_the_weights_at_the_start(name: str) -> None:
    config = dataclasses.replace(CONFIG, initialization=name)
    model = make_model(config, ComputeConfig(), (Head("masked_token"),))
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    layers, dense = params["encoder"]["layers"], params["masked_token"]["dense"]["kernel"]
    scaled = 0.05 / math.sqrt(2 * config.num_layers)
    output, of_dense = {"normal": (0.05, 0.05), "depth_scaled": (scaled, scaled)}.get(name, (scaled, 0))
    tokens = params["encoder"]["embeddings"]["token"][:200]
    if name == "neighbors":
        tokens = tokens - 0.05 * rotary_neighbor_terms(config).token
    for kernel, deviation in (
        (layers["attention"]["query"]["kernel"][1:], 0.05),
        (layers["attention"]["output"]["kernel"], output),
        (layers["mlp_gate"]["kernel"], 0.05),
        (layers["mlp_down"]["kernel"], output),
        (
            params["encoder"]["embeddings"]["token"][:200]
            - (name == "neighbors") * 0.05 * rotary_neighbor_terms(config).token,
            0.05,
        ),
        (dense - np.eye(len(dense)) * (of_dense == 0), of_dense),
    ):
        assert kernel.std() == pytest.approx(CUT * deviation, rel=0.03)
