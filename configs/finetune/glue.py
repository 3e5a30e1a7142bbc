"""A task of GLUE, or another sequence classification or regression, with the settings of the BERT paper.

    bert-jax finetune --config=glue --workdir runs/mrpc --config.init_from=my-bert/ \\
        --config.task.name=mrpc --config.task.data=glue/

The paper's grid: --config.task.learning_rates="(5e-5,3e-5,2e-5)", batches of 16 and 32, 2 to 4 epochs.
Hardware and time: BERT-base on one accelerator, minutes for the small tasks and about an hour for MNLI and QQP.
Score: BERT-base has 84.7 on MNLI, 91.8 on QNLI, 92.7 on SST-2 (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return finetuning(epochs=3, batch_size=32, learning_rate=3e-5)
