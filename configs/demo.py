"""BERT-tiny on the documentation strings of this Python installation: the model that `make demo` trains.

    bert-jax pretrain --config=demo --workdir demo/run --config.data.corpus=demo/corpus

Hardware and time: 2 CPU cores, about 4 minutes.
Score: held-out loss on masked tokens well below the unigram entropy; next-sentence accuracy 54 to 56 %, where the
majority-class baseline has 53 %: so short a run learns little more of it (docs/results.md).
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.model.update(architecture("tiny"))
    config.model.update(dropout=0.0, attention_dropout=0.0)  # so short a run cannot overfit
    config.model.initializer_range = 0.08  # 0.02 keeps so narrow a model on the unigram plateau for longer
    config.train.update(steps=3_000, batch_size=32, log_every=50)
    config.train.phases = phases({"seq_len": 64, "fraction": 0.6}, {"seq_len": 128, "fraction": 0.4, "batch_size": 16})
    config.optimizer.update(peak_learning_rate=2e-3, warmup_fraction=0.1)
    config.evaluate.update(every=500, num_sequences=1_000, batch_size=64)
    config.checkpoint.every = 500
    return config
