"""Scores of equal queries on meshes of eight devices and of one device, as JSON; run by tests/scoring/test_score.py.

python tests/helpers/mesh_scores.py
"""

import json

import jax
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import PRETRAINING_HEADS, make_model
from bert_jax.parallel import sharding
from bert_jax.scoring.log_probabilities import make_log_probability_scorer
from bert_jax.scoring.queries import Queries

CONFIG = EncoderConfig(vocab_size=200, hidden_size=16, num_layers=2, num_heads=4, mlp_size=32, max_positions=24)


def main() -> None:
    rng = np.random.default_rng(0)
    queries = []
    for length in rng.integers(3, 25, 30):
        inputs = list(rng.integers(5, 200, (length - 2, length)).astype(np.int32))
        queries.append(Queries(inputs, np.arange(1, length - 1, dtype=np.int32), rng.integers(5, 200, length - 2)))
    model = make_model(CONFIG, ComputeConfig(), PRETRAINING_HEADS)
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    found = {}
    for shape in ((1, 1, 1), (8, 1, 1), (2, 2, 2), (1, 4, 2)):
        devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
        mesh = jax.sharding.Mesh(devices, sharding.AXES)
        placed = jax.device_put(params, sharding.named_shardings(model.logical_axes, mesh))
        scores = make_log_probability_scorer(CONFIG, "float32", mesh, 0)(placed, queries, lambda done, total: None)
        found[str(shape)] = [one.tolist() for one in scores]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
