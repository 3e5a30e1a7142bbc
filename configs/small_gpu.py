"""A modern encoder (ModernBERT's block, 12 layers x 384) for one GPU: 10 passes over 10 million words.

    bert-jax pretrain --config=small_gpu --workdir runs/small --config.data.corpus=corpus/

`--budget 2h` rescales it to another time. `bert-jax compile --config=small_gpu` says whether it fits the device.
Hardware and time: one GPU; its first 240 steps ran on an H100, the whole was not timed.
Score: not trained by us.
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("modern_small"))
    config.compute.dtype = "bfloat16"
    # About 1 / sqrt(384). Measured on the demo's smaller model alone, where both end the plateau earlier.
    config.model.update(initialization="neighbors", initializer_range=0.05)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=8_500, batch_size=128, log_every=50)  # 140 M tokens of 16,384 a step
    config.train.phases = phases({"seq_len": 128, "fraction": 0.8}, {"seq_len": 512, "fraction": 0.2, "batch_size": 32})
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=500, num_sequences=4_000, batch_size=128)
    config.checkpoint.update(every=500, keep=2)
    return config
