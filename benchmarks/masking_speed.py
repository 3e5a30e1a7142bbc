"""Measure the masking rules without the rest of the input pipeline, on one core: tokens per second.

    python benchmarks/masking_speed.py

Examples have 128 or 512 random tokens. Three quarters of the tokens begin a word; three special tokens are never
masked. Prints one line per rule and length: the median speed over batches of 32,768 tokens, and its ratio to the goal.
"""

import os
import statistics
import time

import numpy as np

from bert_jax.batches.masking import MASKINGS, Vocabulary, mask_tokens
from bert_jax.config import DataConfig

GOALS = {"token": 8e6, "whole_word": 5e6, "ngram": 5e6, "span": 5e6}
BATCHES = 100
TOKENS_PER_BATCH = 256 * 128
VOCAB_SIZE, WORD_BEGINS = 30_522, 20_000  # ids from the second on continue a word
BEGIN_FRACTION = 0.75


def seconds_of_batches(kind: str, length: int) -> list[float]:
    """Return the seconds of each of `BATCHES` batches."""
    random = np.random.default_rng(0)
    examples = TOKENS_PER_BATCH // length
    vocabulary = Vocabulary(VOCAB_SIZE, mask=4, continues=np.arange(VOCAB_SIZE) >= WORD_BEGINS)
    starts = np.arange(examples + 1) * length
    column = np.arange(TOKENS_PER_BATCH) % length
    maskable = (column != 0) & (column != length // 2) & (column != length - 1)
    config = DataConfig(masking=kind)
    seconds = []
    for batch in range(BATCHES):
        begins = random.random(TOKENS_PER_BATCH) < BEGIN_FRACTION
        ids = random.integers(
            np.where(begins, 5, WORD_BEGINS), np.where(begins, WORD_BEGINS, VOCAB_SIZE), dtype=np.int32
        )
        numbers = batch * examples + np.arange(examples)
        start = time.perf_counter()
        mask_tokens(ids, maskable, starts, numbers, seed=0, config=config, vocabulary=vocabulary)
        seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Measure each rule at both lengths of an example."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for kind in MASKINGS:
        for length in (128, 512):
            speed = TOKENS_PER_BATCH / statistics.median(seconds_of_batches(kind, length))
            print(f"{kind}, length {length}: {speed / 1e6:.2f} M tokens/s, {speed / GOALS[kind]:.2f} times the goal")


if __name__ == "__main__":
    main()
