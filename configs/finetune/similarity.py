"""Sentence vectors from pairs of texts that belong together, with the other pairs of a batch as negatives.

    bert-jax finetune --config=similarity --workdir runs/vectors --config.init_from=my-bert/ \\
        --config.task.train=pairs.jsonl --config.task.dev=dev.jsonl

A line of pairs.jsonl is {"text": ..., "text_pair": ...}, of dev.jsonl also "label": a number, higher for more alike. A
line with a "negative", a third text, makes a triple. Larger batches have more negatives. The result opens in
sentence-transformers.
The rate is for encoders of the size of BERT-base; encoders of two to six layers want 1e-3 and more epochs.
Hardware and time: some minutes on 2 CPU cores for thousands of pairs and a small model.
Score: Korean STS with a two-layer encoder of ours, Spearman 51.7 before and 67.4 after (dev), 42.1 and 58.2 (test);
rate 1.5e-3, 10 epochs, docs/results/tasks.md.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = finetuning(epochs=3, batch_size=64, learning_rate=2e-5)
    config.task.update(name="custom", kind="similarity", max_seq_len=64)
    return config
