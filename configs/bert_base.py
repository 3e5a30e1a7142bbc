"""BERT-base (12 layers x 768, 110 M parameters): 900k steps of 256 x 128 tokens, then 100k of 256 x 512 (the paper).

    bert-jax pretrain --config=bert_base --workdir runs/base --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 16 chips; the dry run estimates 3.1 to 10.9 hours, 50 to 174 chip-hours (not
measured):

    bert-jax compile --config=bert_base --topology v5e:4x4

The paper trained this model for 4 days on 4 Cloud TPUs (16 chips).
Score: MNLI 84.7, SQuAD 1.1 F1 88.4 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import bert_recipe_of_devlin2019


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = bert_recipe_of_devlin2019("base")
    config.compute.scan_layers = False  # on a TPU: fewer bytes and less memory for some minutes of compilation
    return config
