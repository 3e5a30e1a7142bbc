"""A task of GLUE with ELECTRA's settings: a higher learning rate, multiplied by 0.8 for each layer below the top.

    bert-jax finetune --config=electra_glue --workdir runs/mrpc --config.init_from=electra/ \\
        --config.task.name=mrpc --config.task.data=glue/

For the large model: --config.optimizer.peak_learning_rate=5e-5 --config.optimizer.layer_decay=0.9.
Hardware and time: see configs/finetune/glue.py.
Score: ELECTRA-base has 88.8 on MNLI, 89.5 on MRPC (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=3, batch_size=32, learning_rate=1e-4)
    config.optimizer.layer_decay = 0.8
    return config
