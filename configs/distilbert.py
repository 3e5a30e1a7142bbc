"""DistilBERT (6 layers x 768, 66 M parameters): learns from BERT-base in 6,500 steps of 4,000 sequences of 512 tokens.

    bert-jax pretrain --config=distilbert --workdir runs/distilbert --config.data.corpus=corpus/ \\
        --config.distillation.teacher=bert-base-uncased/

Prepare the corpus with the teacher's tokenizer. We estimate that the steps read 3.3 billion words three times.
Hardware and time: fits a v5e slice of 16 chips; the dry run estimates 0.7 to 2.3 hours, 11 to 37 chip-hours (not
measured):

    bert-jax compile --config=distilbert --topology v5e:4x4 --config.distillation.teacher=base

Score: MNLI 82.1, SST-2 91.3 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import distilbert_recipe_of_sanh2019


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return distilbert_recipe_of_sanh2019()
