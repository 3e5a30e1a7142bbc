"""Sentence vectors without labels, for a CPU: pairs of texts from a corpus, in batches of 128 pairs.

    bert-jax pairs --corpus corpus/ --output pairs/ --rule crop
    bert-jax finetune --config=vectors_cpu --workdir runs/vectors --config.init_from=runs/small \\
        --config.task.train=pairs/train.jsonl --config.task.dev=pairs/dev.jsonl

Micro-batches of 64 pairs share the loss of the whole batch. The learning rate is for encoders of two to six layers.
Hardware and time: 2 CPU cores; 3 CPU minutes for 40,960 pairs and an encoder of 4 layers x 128.
Score: nDCG@10 of 0.136 on the development paragraphs of SQuAD and 0.148 on Cranfield, for a weak encoder that was
trained for 15 minutes. Before the training of the vectors, nDCG@10 is 0.046 on SQuAD and 0.049 on Cranfield. BM25 has
0.849 on SQuAD and 0.472 on Cranfield (docs/results/retrieval.md).
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=1, batch_size=128, learning_rate=2e-3)
    config.train.grad_accum_steps = 2
    config.task.update(name="custom", kind="similarity", max_seq_len=72)
    config.evaluate.every = 50
    return config
