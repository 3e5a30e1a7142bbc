"""Sentence vectors without labels, for a CPU: pairs of texts from a corpus, in batches of 512 pairs.

    bert-jax pairs --corpus corpus/ --output pairs/
    bert-jax finetune --config=vectors_cpu --workdir runs/vectors --config.init_from=runs/small \\
        --config.task.train=pairs/train.jsonl --config.task.dev=pairs/dev.jsonl

Micro-batches of 64 pairs share the loss of the whole batch. The learning rate is for encoders of two to six layers.
Hardware and time: 2 CPU cores; about 3 ms for a pair and an encoder of 2 layers x 128, so 5 minutes for 100,000 pairs.
Score: not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=1, batch_size=512, learning_rate=1e-3)
    config.train.grad_accum_steps = 8
    config.task.update(name="custom", kind="similarity", max_seq_len=72)
    config.evaluate.every = 50
    return config
