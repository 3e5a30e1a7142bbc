"""BERT-small (4 layers x 512, 29.1 M parameters), the paper's recipe: 1,000,000 steps of 256 rows, 900k at length 128,
100k at 512.

    python -m bert_jax pretrain --config configs/bert_small.py --workdir runs/small --config.data.corpus=corpus/

Hardware and time: 14 chip-hours of TPU v5e at 40 % of its peak, by the FLOPs; estimated, not measured.
Score: GLUE 71.2 (google-research/bert's README).
"""

import ml_collections

from bert_jax.config.recipes import devlin2019


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    return devlin2019("small")
