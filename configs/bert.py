"""BERT of any size by the paper's recipe: 1,000,000 steps of 256 sequences, 900k at length 128 and 100k at 512.

    bert-jax pretrain --config=bert:tiny --workdir runs/tiny --config.data.corpus=corpus/
    bert-jax pretrain --config configs/bert.py:L4_H256 --workdir runs/mini --config.data.corpus=corpus/

Hardware and time: chip-hours of TPU v5e at 40 % of its peak, computed from the FLOPs, not measured.
Score: GLUE, from the README of google-research/bert; not trained by us.

    size     layers x width   parameters   chip-hours   GLUE
    tiny            2 x 128        4.4 M            1   64.2
    mini            4 x 256       11.3 M          4.4   65.8
    small           4 x 512       29.1 M           14   71.2
    medium          8 x 512       41.7 M           27   73.5
    base           12 x 768        110 M   see bert_base.py
    large         24 x 1024        336 M   see bert_large.py

The other sizes of Turc et al. 2019 are named by layers and width, from L2_H128 to L12_H768.
"""

import ml_collections

from bert_jax.config.recipes import bert_recipe_of_devlin2019


def get_config(size: str = "base") -> ml_collections.ConfigDict:
    """Return the recipe for one size."""
    return bert_recipe_of_devlin2019(size)
