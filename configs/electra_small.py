"""ELECTRA-small (12 layers x 256, 14 M parameters): replaced tokens, 1,000,000 steps of 128 sequences of 128 tokens.

    bert-jax pretrain --config=electra_small --workdir runs/electra --config.data.corpus=corpus/
    bert-jax export --workdir runs/electra --output electra/
    bert-jax export --workdir runs/electra --output generator/ --part generator

Hardware and time: fits a v5e slice of 16 chips; the dry run estimates 14 to 94 minutes, 4 to 25 chip-hours (not
measured):

    bert-jax compile --config=electra_small --topology v5e:4x4

Score: MNLI 81.3, SST-2 91.2 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import electra_recipe_of_clark2020


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = electra_recipe_of_clark2020("small", seq_len=128)
    config.replaced_tokens.generator_size = 0.25
    config.train.update(steps=1_000_000, batch_size=128)
    config.optimizer.peak_learning_rate = 5e-4
    return config
