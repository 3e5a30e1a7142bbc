"""ELECTRA-base (12 layers x 768, 110 M parameters): replaced tokens, 766,000 steps of 256 sequences of 512 tokens.

    bert-jax pretrain --config=electra_base --workdir runs/electra --config.data.corpus=corpus/
    bert-jax export --workdir runs/electra --output electra/
    bert-jax export --workdir runs/electra --output generator/ --part generator

Hardware and time: fits a v5e slice of 16 chips; the dry run estimates 6.1 to 24 hours, 97 to 380 chip-hours (not
measured):

    bert-jax compile --config=electra_base --topology v5e:4x4

Score: MNLI 88.8, SST-2 95.1 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import electra_recipe_of_clark2020


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = electra_recipe_of_clark2020("base", seq_len=512)
    config.replaced_tokens.generator_size = 1 / 3
    config.train.update(steps=766_000, batch_size=256)
    config.optimizer.peak_learning_rate = 2e-4
    return config
