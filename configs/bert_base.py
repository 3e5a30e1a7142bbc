"""BERT-base (12 layers x 768, 110 M parameters), the paper's recipe: 1,000,000 steps of 256 rows, 900k at length 128,
100k at 512.

    python -m bert_jax pretrain --config configs/bert_base.py --workdir runs/base --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 16 chips; 3.2 to 10.2 hours, 51 to 163 chip-hours by the dry run, not measured:

    python -m bert_jax compile --config configs/bert_base.py --topology v5e:4x4

The paper trained it for 4 days on 4 Cloud TPUs (16 chips).
Score: MNLI 84.7, SQuAD 1.1 F1 88.4 on the development sets (published).
"""

import ml_collections

from bert_jax.config.recipes import devlin2019


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    config = devlin2019("base")
    config.compute.scan_layers = False  # fewer bytes and less memory on a TPU for some minutes of compilation
    return config
