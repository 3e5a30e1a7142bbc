"""Named entities and other token classification with a cased model; the first token of each word gets the label.

    bert-jax finetune --config=token_classification --workdir runs/ner --config.init_from=my-bert/ \\
        --config.task.name=wnut17 --config.task.data=wnut17/

Hardware and time: BERT-base on one accelerator, minutes.
Score: BERT-base cased has F1 96.4 on CoNLL-2003's dev set (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import finetuning


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return finetuning(epochs=3, batch_size=32, learning_rate=5e-5)
