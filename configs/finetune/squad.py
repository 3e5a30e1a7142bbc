"""SQuAD 1.1 or 2.0 with the settings of google-research/bert: windows of 384 tokens, one every 128 tokens.

    bert-jax finetune --config=squad --workdir runs/squad --config.init_from=my-bert/ \\
        --config.task.name=squad1 --config.task.data=squad/

Hardware and time: BERT-base on one accelerator, one to two hours.
Score: BERT-base uncased has F1 88.4 and exact match 81.2 on SQuAD 1.1 (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return finetuning(epochs=2, batch_size=32, learning_rate=3e-5, max_seq_len=384)
