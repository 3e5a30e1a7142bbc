"""ModernBERT-large as published (Warner et al. 2024), which `transformers` opens as `ModernBertForMaskedLM`.

    bert-jax pretrain --config=modern_large --workdir runs/modern --config.data.corpus=corpus/

`--budget 20h` scales the recipe to the machine and the corpus. `bert-jax compile --config=modern_large` says whether
the recipe fits the devices.
Unlike in the paper, the weights do not start from copies of the weights of ModernBERT-base.
Hardware and time: 2 trillion tokens need a pod; `bert-jax compile` estimates the time. Not measured.
Score: not trained by us.
"""

import ml_collections

from bert_jax.config.recipes import modernbert_recipe_of_warner2024


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    lowered = {"peak_learning_rate": 5e-5, "weight_decay": 1e-6}
    return modernbert_recipe_of_warner2024(
        "large",
        batch_size=4_928,
        peak_learning_rate=5e-4,
        warmup_steps=1_532,  # 2 billion tokens
        short=[
            {"steps": 3_630, "batch_stages": 11},  # from 448 sequences on; 10 billion tokens
            {"steps": 176_400},  # 890 billion tokens
            {"steps": 162_300, **lowered},  # 819 billion tokens
        ],
        long=[
            {"steps": 49_540, "batch_size": 616, **lowered},  # 250 billion tokens
            {"steps": 9_780, "batch_size": 624, "decay_fraction": 1.0, **lowered},  # 50 billion tokens
        ],
    )
