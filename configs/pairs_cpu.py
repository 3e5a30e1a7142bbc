"""A small modern encoder for pairs of texts, trained on a CPU with masked tokens and next sentences.

    bert-jax pretrain --config=pairs_cpu --workdir runs/pairs --config.data.corpus=corpus/

The recipe is for 10 to 50 MB of text. The model has ModernBERT's block with token types, and the attention of every
block is global. The head for next sentences reads the mean of the tokens. One attention head initially matches equal
words of the two texts (docs/decisions/0021-matches.md). transformers has no class for this model, so the export is for
bert_jax (`predict`, `load`), ONNX and StableHLO. For single texts, `small_cpu` is better.
Hardware and time: 2 x86 cores, 40 minutes.
Score: trained on 78 books, the model predicts next sentences of held-out documents with an accuracy of 80.0 % (the
constant answer "random" has 53.9 %) and masked tokens with 38.1 %. The loss is 2.63 nats below the unigram entropy.
With two other seeds, the accuracy of next sentences is 80.5 and 69.4 % (docs/results/learning.md).
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
    config.model.update(initialization="matches", initializer_range=0.07)  # about 1 / sqrt(192)
    config.data.sentence_pairs = "next_sentence"
    config.train.update(steps=2_900, batch_size=32, log_every=20)
    # A shorter pair often holds one sentence, which has no next sentence: more of the pairs would be random.
    config.train.phases = phases(
        {"seq_len": 128, "fraction": 0.8, "mask_probability": 0.2, "mask_probability_end": 0.15},
        {"seq_len": 256, "fraction": 0.2, "batch_size": 16},
    )
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)
    return config
