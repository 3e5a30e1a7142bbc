"""BERT-mini (4 layers x 256) in about an hour and a half on two CPU cores: a corpus of tens of MB, one or two passes.

    bert-jax pretrain --config=bert_mini_cpu --workdir runs/mini --config.data.corpus=corpus/

Hardware and time: 2 x86 cores; docs/results.md has the run on 82 books.
Score: docs/results.md. A model this small learns words and syntax from so little text, not facts.
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("mini"))
    config.model.update(dropout=0.0, attention_dropout=0.0)  # a sentence is seen once or twice: nothing to overfit
    config.model.initializer_range = 0.05  # 0.02 keeps so narrow a model on the unigram plateau for longer
    config.train.update(steps=2_400, batch_size=32, log_every=20)
    config.train.phases = phases(
        {"seq_len": 128, "fraction": 0.95}, {"seq_len": 512, "fraction": 0.05, "batch_size": 8}
    )
    config.optimizer.update(peak_learning_rate=1e-3, warmup_fraction=0.06, schedule="linear")
    config.evaluate.update(every=500, num_sequences=2_000, batch_size=32)
    config.checkpoint.update(every=250, keep=2)
    return config
