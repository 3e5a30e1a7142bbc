"""ALBERT-base (12 M parameters, one block for 12 layers): sentence order, masked n-grams, LAMB, 125,000 x 4,096 x 512.

    bert-jax tokenizer --input 'texts/*.txt' --kind unigram --vocab_size 30000 --output tok/
    bert-jax prepare --input 'texts/*.txt' --tokenizer tok/ --output corpus/
    bert-jax pretrain --config=albert_base --workdir runs/albert --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 256 chips; the dry run estimates 0.8 to 2.8 hours, 216 to 707 chip-hours (not
measured):

    bert-jax compile --config=albert_base --topology v5e:16x16

If a batch does not fit in memory, use more micro-batches: --config.train.grad_accum_steps=4.
Score: MNLI 84.6, SQuAD 1.1 F1 90.2 on the development sets (version 2, published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import albert_recipe_of_lan2020


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return albert_recipe_of_lan2020("base")
