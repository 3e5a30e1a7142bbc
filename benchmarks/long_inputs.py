"""Recipes for the dry run: memory of a training step whose sequences have 1,024, 4,096 and 8,192 tokens.

    bert-jax compile --config=benchmarks/long_inputs.py:longformer_base

The word after the colon names a preset, which has 8,192 positions here: `longformer_base`, `big_bird_base`,
`modern_base_local` (ModernBERT with only local blocks), or `base` (BERT, for comparison). Each phase has another
length, but every step has 8,192 tokens. So if memory is linear in the length, the memory is equal in all phases.
"""

import dataclasses

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import PRESETS

TOKENS, LENGTHS = 8192, (1024, 4096, 8192)


def get_config(name: str = "longformer_base") -> ml_collections.ConfigDict:
    """Return the recipe of a preset."""
    config, chosen = pretrain_config(), PRESETS[name.removesuffix("_local")]
    if name.endswith("_local"):
        chosen = dataclasses.replace(chosen, global_every=0, local_rotary_base=None)
    config.model.update(dataclasses.asdict(dataclasses.replace(chosen, max_positions=max(LENGTHS))))
    config.compute.remat = True
    config.data.sentence_pairs = "none"
    each = 1 / len(LENGTHS)
    config.train.phases = phases(*({"seq_len": n, "batch_size": TOKENS // n, "fraction": each} for n in LENGTHS))
    return config
