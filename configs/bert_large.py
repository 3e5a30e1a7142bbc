"""BERT-large (24 layers x 1024, 336 M parameters): 900k steps of 256 x 128 tokens, then 100k of 256 x 512 (the paper).

    bert-jax pretrain --config=bert_large --workdir runs/large --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 16 chips; the dry run estimates 9.5 to 29.7 hours, 153 to 475 chip-hours (not
measured):

    bert-jax compile --config=bert_large --topology v5e:4x4

The paper trained this model for 4 days on 16 Cloud TPUs (64 chips).
Score: MNLI 86.6, SQuAD 1.1 F1 90.9 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import bert_recipe_of_devlin2019


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return bert_recipe_of_devlin2019("large")
