"""Left to right (causal language modeling) for a CPU: the block of `small_cpu` predicts each next token.

    bert-jax pretrain --config=left_to_right_cpu --workdir runs/causal --config.data.corpus=corpus/

This recipe is for comparison with masked tokens. After so few tokens, neither objective makes a better encoder than the
other (docs/results/learning.md). No class of transformers reads this block from left to right, so the export is for
bert_jax, ONNX and StableHLO.
Hardware and time: 33 minutes on one x86 core of a busy machine.
Score: on four books that are not among the 78 training books, the loss of the next token is 4.49 nats, which is 1.86
nats below the unigram entropy, and the accuracy is 23.7 %. After fine-tuning, entity F1 on WNUT-17 is 18.8 (12.3 from
random weights). All figures are from one run (docs/results/learning.md).
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.objective = "left_to_right"
    config.model.update(architecture("modern_mini"))
    config.model.update(family="research", causal=True, initialization="neighbors", initializer_range=0.07)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=1_000, batch_size=64, log_every=20)
    config.train.phases = phases({"seq_len": 64, "fraction": 0.8}, {"seq_len": 128, "fraction": 0.2, "batch_size": 32})
    config.optimizer.update(name="muon", peak_learning_rate=2e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)
    return config
