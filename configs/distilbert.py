"""DistilBERT (6 layers x 768, 66 M parameters): learned from a BERT-base, 6,500 steps of 4,000 sequences of 512 tokens.

    bert-jax pretrain --config=distilbert --workdir runs/distilbert --config.data.corpus=corpus/ \\
        --config.distillation.teacher=bert-base-uncased/

The corpus is prepared with the teacher's tokenizer. Steps are three passes over its 3.3 billion words, our estimate.
Hardware and time: not measured; `bert-jax compile --config=distilbert --config.distillation.teacher=base` with a
`--topology` estimates them.
Score: MNLI 82.1, SST-2 91.3 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import sanh2019


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return sanh2019()
