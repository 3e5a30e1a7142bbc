"""BERT-mini (4 layers x 256) in about an hour and a half on two CPU cores: one or two passes over tens of MB of text.

    bert-jax pretrain --config=bert_mini_cpu --workdir runs/mini --config.data.corpus=corpus/

The model has BERT's block: post-norm and learned positions. `small_cpu` learns more in the same time.
Hardware and time: 94 minutes on one x86 core of a busy machine; with AdamW instead of Muon, 41 minutes on two idle
cores.
Score: on held-out books at 128 tokens (step 2,000), the loss is 2.47 nats below the unigram entropy and the accuracy of
masked tokens is 32.5 %. At 512 tokens, the loss is 2.33 nats below the unigram entropy, the accuracy of masked tokens
is 30.8 %, and the accuracy of next sentences is 63.6 %. docs/results/learning.md has three seeds.
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("mini"))
    config.model.update(dropout=0.0, attention_dropout=0.0)  # a sentence is seen once or twice: nothing to overfit
    # With random heads and AdamW so narrow a model of this block stays on the unigram plateau for the whole run.
    config.model.update(initialization="neighbors", initializer_range=0.06)  # about 1 / sqrt(256)
    config.train.update(steps=2_400, batch_size=32, log_every=20)
    config.train.phases = phases(
        {"seq_len": 128, "fraction": 0.95, "mask_probability": 0.3, "mask_probability_end": 0.15},
        {"seq_len": 512, "fraction": 0.05, "batch_size": 8},
    )
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=500, num_sequences=2_000, batch_size=32)
    config.checkpoint.update(every=250, keep=2)
    return config
