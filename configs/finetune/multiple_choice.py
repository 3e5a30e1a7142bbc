"""SWAG and other multiple choice: each ending with the beginning is a row, and one score.

    python -m bert_jax finetune --config configs/finetune/multiple_choice.py --workdir runs/swag \\
        --config.init_from=my-bert/ --config.task.name=swag --config.task.data=swag/

Hardware and time: BERT-base on one accelerator, about an hour.
Score: BERT-base has 81.6 on SWAG's dev set (published; not run here).
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """The recipe."""
    return finetuning(epochs=3, batch_size=16, learning_rate=2e-5)
