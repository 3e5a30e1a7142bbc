"""A student with half of the layers of `small_cpu`: 3 layers learn from 6 layers, in a third of the time (DistilBERT).

    bert-jax pretrain --config=student_cpu --workdir runs/student --config.data.corpus=corpus/ \\
        --config.distillation.teacher=runs/small

The corpus is the teacher's corpus, or another corpus that was prepared with the teacher's tokenizer.
Hardware and time: 2 x86 cores, 16 minutes on a busy machine.
Score: on four books that are not among the 78 training books, the loss of masked tokens is 3.32 nats and the accuracy
of masked tokens is 40.1 % (teacher: 3.33 nats and 40.3 %). The student needs half of the teacher's time for a sentence.
The accuracies of two other seeds are 40.8 and 40.3 %, with teachers of 41.0 % (docs/results/tasks.md).
"""

import ml_collections

from bert_jax.config import phases, pretrain_config
from bert_jax.config.presets import architecture


def get_config() -> ml_collections.ConfigDict:
    """Return the recipe."""
    config = pretrain_config()
    config.objective = "distillation"
    config.model.update(architecture("modern_mini"))
    config.model.update(num_layers=3, initializer_range=0.07)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=1_000, batch_size=64, log_every=20)
    config.train.phases = phases(
        {"seq_len": 64, "fraction": 0.8, "mask_probability": 0.3, "mask_probability_end": 0.2},
        {"seq_len": 128, "fraction": 0.2, "mask_probability": 0.2, "mask_probability_end": 0.15, "batch_size": 32},
    )
    config.optimizer.update(name="muon", peak_learning_rate=1e-3, warmup_fraction=0.05, schedule="linear")
    config.evaluate.update(every=200, num_sequences=1_000, batch_size=64)
    config.checkpoint.update(every=200, keep=2)
    return config
