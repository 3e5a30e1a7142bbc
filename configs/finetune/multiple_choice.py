"""SWAG and other multiple choice: each ending, together with the beginning, is a sequence with one score.

    bert-jax finetune --config=multiple_choice --workdir runs/swag --config.init_from=my-bert/ \\
        --config.task.name=swag --config.task.data=swag/

Hardware and time: BERT-base on one accelerator, about an hour.
Score: BERT-base has 81.6 on SWAG's dev set (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return finetuning(epochs=3, batch_size=16, learning_rate=2e-5)
