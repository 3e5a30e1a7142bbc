"""BERT of any size by the paper's recipe: 1,000,000 steps of 256 sequences, 900k at length 128 and 100k at 512.

    bert-jax pretrain --config=bert:tiny --workdir runs/tiny --config.data.corpus=corpus/
    bert-jax pretrain --config configs/bert.py:L4_H256 --workdir runs/mini --config.data.corpus=corpus/

Hardware and time: chip-hours of TPU v5e at 40 % of its peak, computed from the FLOPs, not measured.
Score: GLUE, from the README of google-research/bert; not trained by us.

    tiny: 2 layers x 128, 4.4 M parameters, 1 chip-hour, GLUE 64.2
    mini: 4 layers x 256, 11.3 M parameters, 4.4 chip-hours, GLUE 65.8
    small: 4 layers x 512, 29.1 M parameters, 14 chip-hours, GLUE 71.2
    medium: 8 layers x 512, 41.7 M parameters, 27 chip-hours, GLUE 73.5
    base: 12 layers x 768, 110 M parameters (see bert_base.py)
    large: 24 layers x 1024, 336 M parameters (see bert_large.py)

The other sizes of Turc et al. 2019 are named by layers and width, from L2_H128 to L12_H768.
"""

import ml_collections

from bert_jax.config.recipes import bert_recipe_of_devlin2019


def get_config(size: str = "base") -> ml_collections.ConfigDict:
    """Return the recipe for one size."""
    return bert_recipe_of_devlin2019(size)
