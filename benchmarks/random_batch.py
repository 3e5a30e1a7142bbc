"""Random batches of pretraining, for timings; needs only numpy."""

from typing import Protocol

import numpy as np

Batch = dict[str, np.ndarray]


class HasVocabulary(Protocol):
    """Sizes of an architecture that a batch needs."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the vocabulary."""


def random_batch(config: HasVocabulary, batch: int, length: int, predictions: int) -> Batch:
    """Return full sequences of random tokens; the contents do not change the speed of a step."""
    rng = np.random.default_rng(0)
    positions = np.sort(rng.random((batch, length)).argsort(axis=1)[:, :predictions], axis=1)
    return {
        "input_ids": rng.integers(0, config.vocab_size, (batch, length), np.int32),
        "token_type_ids": np.tile((np.arange(length) >= length // 2).astype(np.int32), (batch, 1)),
        "attention_mask": np.ones((batch, length), np.int32),
        "masked_positions": positions.astype(np.int32),
        "masked_labels": rng.integers(0, config.vocab_size, (batch, predictions), np.int32),
        "masked_weights": np.ones((batch, predictions), np.float32),
        "next_sentence_labels": rng.integers(0, 2, batch, np.int32),
        "example_weights": np.ones(batch, np.float32),
    }


def packed(batch: Batch) -> Batch:
    """Return the batch with four examples in each sequence, without labels of sentence pairs."""
    sequences, length = batch["input_ids"].shape
    segments = np.tile(1 + 4 * np.arange(length, dtype=np.int32) // length, (sequences, 1))
    return {name: x for name, x in batch.items() if name != "next_sentence_labels"} | {"segment_ids": segments}
