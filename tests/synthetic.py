"""Random rows of the documented shapes, for tests that need no text."""

from collections.abc import Iterator

import numpy as np

from bert_jax import config as c
from bert_jax.config import Config
from bert_jax.loop import Data
from bert_jax.phases import Phase

VOCAB = 100


def random_batch(first_row: int, rows: int, length: int, predictions: int = 4) -> dict[str, np.ndarray]:
    """Row r depends on r alone, as the pipeline's does."""
    made = [_row(np.random.default_rng(first_row + i), length, predictions) for i in range(rows)]
    return {name: np.stack([row[name] for row in made]) for name in made[0]}


def _row(rng: np.random.Generator, length: int, predictions: int) -> dict[str, np.ndarray]:
    real = int(rng.integers(length // 2, length + 1))
    here = np.arange(length) < real
    weights = (np.arange(predictions) < rng.integers(1, predictions + 1)).astype(np.float32)
    return {
        "input_ids": np.where(here, rng.integers(5, VOCAB, length), 0).astype(np.int32),
        "token_type_ids": ((np.arange(length) >= real // 2) & here).astype(np.int32),
        "attention_mask": here.astype(np.int32),
        "masked_positions": np.sort(rng.choice(np.arange(1, real), predictions, replace=False)).astype(np.int32),
        "masked_labels": rng.integers(0, VOCAB, predictions).astype(np.int32),
        "masked_weights": weights,
        "next_sentence_labels": np.int32(rng.integers(0, 2)),
        "example_weights": np.float32(1),
    }


def synthetic_data(config: Config, heldout_batches: int = 2) -> Data:
    """An endless stream of random rows, and a short held-out set."""

    def batches(phase: Phase, step: int) -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield random_batch(phase.first_row(step), phase.batch_size, phase.length)
            step += 1

    def heldout(phase: Phase) -> Iterator[dict[str, np.ndarray]]:
        size = config.evaluate.batch_size
        return (random_batch(10**6 + i * size, size, phase.length) for i in range(heldout_batches))

    return Data(batches, heldout, {"corpus": "synthetic", "tokenizer": "none"})


def tiny_config(seed: int = 0, model: dict | None = None, **train: object) -> Config:
    """A model that compiles in seconds, in two phases of 16 and 24 tokens."""
    made = c.default_config()
    made.seed = seed
    made.model.update(vocab_size=VOCAB, hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    made.model.update(model or {})
    made.train.update(steps=6, batch_size=8, log_every=1)
    made.train.phases = c.phases({"length": 16, "share": 0.5}, {"length": 24, "share": 0.5})
    made.optimizer.warmup_share = 0.0
    made.evaluate.update(every=3, batch_size=8)
    made.checkpoint.update(every=2)
    made.train.update(train)
    return c.resolve(made)
