"""ModernBERT-base as published (Warner et al. 2024), which `transformers` opens as `ModernBertForMaskedLM`.

    bert-jax pretrain --config=modern_base --workdir runs/modern --config.data.corpus=corpus/

`--budget 20h` scales the recipe to the machine and the corpus. `bert-jax compile --config=modern_base` says whether the
recipe fits the devices.
Hardware and time: 2 trillion tokens need a pod; `bert-jax compile` estimates the time. Not measured.
Score: not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import modernbert_recipe_of_warner2024


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    return modernbert_recipe_of_warner2024(
        "base",
        batch_size=4_608,
        peak_learning_rate=8e-4,
        warmup_steps=3_421,  # 3 billion tokens
        short=[
            {"steps": 18_168, "batch_stages": 6},  # from 768 sequences on; 50 billion tokens
            {"steps": 353_700},  # 1,669 billion tokens
        ],
        long=[
            {"steps": 52_980, "batch_size": 576, "peak_learning_rate": 3e-4},  # 250 billion tokens
            {"steps": 10_600, "batch_size": 576, "peak_learning_rate": 3e-4, "decay_fraction": 1.0},  # 50 billion
        ],
    )
