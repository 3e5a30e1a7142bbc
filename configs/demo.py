"""A modern encoder of 2 layers on the documentation strings of Python's standard library: trained by `make demo`.

    bert-jax pretrain --config=demo --workdir demo/run --config.data.corpus=demo/corpus

Hardware and time: 2 CPU cores, 4 minutes.
Score: the loss of held-out masked tokens is 3.58 nats (unigram loss: 6.29); the accuracy is 39.9 %.
The loss and the accuracy are from seed 0, on 7,868 held-out tokens; docs/results/learning.md has two more seeds.
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("modern_tiny"))
    # Of 2 to 4 layers at about equal time a step, the widest was best after 800 steps.
    config.model.update(num_layers=2, hidden_size=192, num_heads=4, mlp_size=512, rotary_base=10_000.0)
    config.model.update(initialization="neighbors", initializer_range=0.08)
    config.compute.scan_layers = False  # faster on a CPU
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=980, batch_size=32, log_every=50)
    config.train.phases = phases({"seq_len": 64, "mask_probability": 0.4, "mask_probability_end": 0.15})
    config.optimizer.update(name="muon", warmup_fraction=0.03, schedule="linear", beta2=0.98)
    # The run reads its text eight times, so weight decay, which is multiplied by the learning rate, gains 0.17 nats.
    config.optimizer.update(peak_learning_rate=1e-2, weight_decay=0.1)
    config.evaluate.update(every=300, num_sequences=1_000, batch_size=64)
    config.checkpoint.every = 300
    return config
