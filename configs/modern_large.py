"""ModernBERT-large as published (Warner et al. 2024), which `transformers` opens as `ModernBertForMaskedLM`.

    bert-jax pretrain --config=modern_large --workdir runs/modern --config.data.corpus=corpus/

`--budget 20h` scales the recipe to the machine and the corpus. `bert-jax compile --config=modern_large` says whether
the recipe fits the devices.
Hardware and time: 2 trillion tokens need a pod; `bert-jax compile` estimates the time. Not measured.
Score: not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import modernbert_recipe_of_warner2024


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return modernbert_recipe_of_warner2024("large", peak_learning_rate=5e-4)
