"""A modern encoder (ModernBERT's block, 6 layers x 192) for a CPU: 10 to 50 MB of text, 50 minutes on two cores.

    bert-jax tokenizer --input 'books/*.txt' --kind wordpiece --vocab_size 8192 --output tok/
    bert-jax prepare --input 'books/*.txt' --tokenizer tok/ --output corpus/
    bert-jax pretrain --config=small_cpu --workdir runs/small --config.data.corpus=corpus/

`--budget 30m` scales the recipe to another time. docs/learning.md shows the gain of each choice.
Hardware and time: 2 x86 cores, 50 minutes.
Score: three seeds were trained on 78 books and measured on four other books. The losses of masked tokens are 3.27, 3.22
and 3.23 nats (unigram loss: 6.48), and the accuracies are 41.5, 41.6 and 41.6 %. The scores on Zorro are 78.3, 76.2 and
74.2 %, and on BLiMP 59.7, 60.6 and 58.6 % (34 paradigms, 30 % of the pairs of each). See docs/results/learning.md.
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("modern_mini"))
    config.model.update(initialization="neighbors", initializer_range=0.07)  # about 1 / sqrt(192)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=2_900, batch_size=64, log_every=20)
    config.train.phases = phases(
        {"seq_len": 64, "fraction": 0.8, "mask_probability": 0.3, "mask_probability_end": 0.2},
        {"seq_len": 128, "fraction": 0.2, "mask_probability": 0.2, "mask_probability_end": 0.15, "batch_size": 32},
    )
    # These rates are Adam's, which trains the token table, the norms and the head; Muon keeps its own rate.
    config.optimizer.update(name="muon", peak_learning_rate=8e-3, beta2=0.98, weight_decay=0.05)
    config.optimizer.update(warmup_fraction=0.05, schedule="linear")
    config.compute.scan_layers = False  # compiles for longer, and saves a few percent of a step
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)
    return config
