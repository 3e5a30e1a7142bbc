"""A task of GLUE with RoBERTa's settings: ten epochs at a low learning rate.

    bert-jax finetune --config=roberta_glue --workdir runs/mrpc --config.init_from=roberta/ \\
        --config.task.name=mrpc --config.task.data=glue/

For RTE and STS-B: --config.optimizer.peak_learning_rate=2e-5.
Hardware and time: three times the time of configs/finetune/glue.py on the same hardware.
Score: RoBERTa-base has 87.6 on MNLI, 90.2 on MRPC (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=10, batch_size=16, learning_rate=1e-5, warmup_fraction=0.06)
    config.optimizer.update(beta2=0.98, weight_decay=0.1, clip_norm=None)
    return config
