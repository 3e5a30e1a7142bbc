"""Run by test_meshes.py on several CPU devices: one short training run per mesh, each in WORKDIR/NAME.

python tests/helpers/mesh_run.py WORKDIR '{"NAME": {"mesh": [8, 1, 1], "grad_accum_steps": 1, "packing": 1}, ...}'
"""

import json
import pathlib
import sys

from bert_jax import config as c
from bert_jax.config import PretrainConfig
from tests.helpers.synthetic import VOCAB, synthetic_data, train

STEPS = 12
REPLACED = {
    "objective": "replaced_tokens",
    "data": {"sentence_pairs": "full_sentences"},
    "model": {"hidden_size": 32},
    "replaced_tokens": {"generator_size": 1.0},
}
VALUES = {
    "masked_tokens": {},
    "replaced_tokens": REPLACED,
    "disentangled": REPLACED | {"replaced_tokens": {"generator_size": 1.0, "embedding_sharing": "disentangled"}},
}


def mesh_config(
    mesh: tuple[int, int, int], grad_accum_steps: int, packing: int = 1, objective: str = "masked_tokens"
) -> PretrainConfig:
    """A model with dropout, all of whose axes are divisible by eight, and 16 sequences per step."""
    made = c.pretrain_config()
    made.model.update(vocab_size=VOCAB, hidden_size=16, num_layers=2, num_heads=8, mlp_size=32, max_positions=16)
    made.mesh.data, made.mesh.fsdp, made.mesh.tensor = mesh
    made.train.update(steps=STEPS, batch_size=16, grad_accum_steps=grad_accum_steps, log_every=1)
    made.train.phases = c.phases({"seq_len": 16})
    made.optimizer.update(peak_learning_rate=1e-3, warmup_fraction=0.1)
    made.evaluate.update(every=6, batch_size=8)
    made.checkpoint.every = None
    made.data.packing = packing
    made.update(VALUES[objective])
    return c.resolve(c.PretrainConfig, made)


def main(workdir: str, runs: str) -> None:
    """Train all runs in turn."""
    for name, run in json.loads(runs).items():
        config = mesh_config(**run)
        place = pathlib.Path(workdir) / name
        place.mkdir()
        assert train(config, synthetic_data(config), place)


if __name__ == "__main__":
    main(*sys.argv[1:])
