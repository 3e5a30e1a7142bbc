"""RoBERTa-base (125 M parameters): masked tokens, full sentences across documents, 500,000 steps of 8,192 x 512 tokens.

    bert-jax tokenizer --input 'texts/*.txt' --kind byte_level --cased --vocab_size 50265 --output tok/
    bert-jax prepare --input 'texts/*.txt' --tokenizer tok/ --output corpus/
    bert-jax pretrain --config=roberta_base --workdir runs/roberta --config.data.corpus=corpus/

Hardware and time: fits a v5e slice of 256 chips; the dry run estimates 7 to 24 hours, 1,780 to 6,026 chip-hours (not
measured):

    bert-jax compile --config=roberta_base --topology v5e:16x16

If a batch does not fit in memory, use more micro-batches: --config.train.grad_accum_steps=8.
Score: MNLI 87.6, SST-2 94.8 on the development sets (published); not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import roberta_recipe_of_liu2019


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return roberta_recipe_of_liu2019("base", peak_learning_rate=6e-4, warmup_steps=24_000)
