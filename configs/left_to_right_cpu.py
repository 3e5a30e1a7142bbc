"""Left to right (causal language modeling) for a CPU: the block of `small_cpu`, each token from those before it.

    bert-jax pretrain --config=left_to_right_cpu --workdir runs/causal --config.data.corpus=corpus/

For comparison with masked tokens; after as few tokens neither makes the better encoder: docs/results/learning.md. No
class of transformers reads this block from left to right: the export is for bert_jax, ONNX and StableHLO.
Hardware and time: 33 minutes on one x86 core beside other work.
Score: next tokens of four other books than the 78 learned from 4.49 nats, 1.86 below their unigram entropy, accuracy
23.7 %; after fine-tuning, entity F1 18.8 on WNUT-17 (12.3 from random weights). One run; docs/results/learning.md.
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
