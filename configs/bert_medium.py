"""BERT-medium (8 layers x 512, 41.7 M parameters), the paper's recipe: 1,000,000 steps of 256 rows, 900k at length 128,
100k at 512.

    python -m bert_jax pretrain --config configs/bert_medium.py --workdir runs/medium --config.data.corpus=corpus/

Hardware and time: 27 chip-hours of TPU v5e at 40 % of its peak, by the FLOPs; estimated, not measured.
Score: GLUE 73.5 (google-research/bert's README).
"""

import ml_collections

from bert_jax.config.recipes import devlin2019


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    return devlin2019("medium")
