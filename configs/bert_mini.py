"""BERT-mini (4 layers x 256, 11.3 M parameters), the paper's recipe: 1,000,000 steps of 256 rows, 900k at length 128,
100k at 512.

    python -m bert_jax pretrain --config configs/bert_mini.py --workdir runs/mini --config.data.corpus=corpus/

Hardware and time: 4.4 chip-hours of TPU v5e at 40 % of its peak, by the FLOPs; estimated, not measured.
Score: GLUE 65.8 (google-research/bert's README).
"""

import ml_collections

from bert_jax.config.recipes import devlin2019


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    return devlin2019("mini")
