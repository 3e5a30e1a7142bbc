"""Sentence order (ALBERT's pairs) and masked tokens on a CPU, with the block of `pairs_cpu`.

    bert-jax pretrain --config=sentence_order_cpu --workdir runs/order --config.data.corpus=corpus/

This recipe is for comparison: `pairs_cpu` learns next sentences much better than this recipe learns sentence order.
Hardware and time: 26 minutes on one x86 core of a busy machine.
Score: the accuracy of the sentence order is 54.3 % on held-out pairs (50.6 % of them are swapped). On four books that
are not among the 78 training books, the accuracy of the sentence order is 57.5 % (53.1 % are swapped). So the model
learned almost nothing about the order of sentences. On these books, the loss of masked tokens is 3.93 nats, which is
2.42 nats below the unigram entropy, and the accuracy of masked tokens is 33.9 %. All figures are from one run
(docs/results/learning.md).
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("modern_mini"))
    config.model.update(family="research", num_layers=4, num_token_types=2, pooling="mean")
    config.model.update(local_window=None, global_every=1, local_rotary_base=None)
    config.model.update(initialization="matches", initializer_range=0.07)
    config.data.sentence_pairs = "sentence_order"
    config.train.update(steps=1_000, batch_size=32, log_every=20)
    config.train.phases = phases({"seq_len": 128, "mask_probability": 0.2, "mask_probability_end": 0.15})
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)
    return config
