"""BERT-large in 8,601 steps with LAMB (You et al. 2020), with the settings of NVIDIA's published runs.

    bert-jax pretrain --config=bert_large_lamb --workdir runs/lamb --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 256 chips; the dry run estimates 0.9 to 3.2 hours, 233 to 831 chip-hours (not
measured):

    bert-jax compile --config=bert_large_lamb --topology v5e:16x16

If a batch does not fit in memory, use more micro-batches: --config.train.phases[0].grad_accum_steps=8.
Score: SQuAD 1.1 F1 about 91 (published by NVIDIA); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import lamb_recipe_of_you2020


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return lamb_recipe_of_you2020("large")
