"""Prepared store -> finished batches (pairs, masks, padding) on one core: tokens a second at lengths 128 and 512.

    python benchmarks/batch_speed.py --corpus corpus/

Prints one line a length: the median over the runs, and its ratio to the goal of 5 M tokens/s.
"""

import argparse
import os
import pathlib
import statistics
import time

import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.corpus import open_corpus
from bert_jax.data.pipeline import Rows, SpecialIds, batches, make_rows
from bert_jax.data.tokenizer import load_tokenizer

GOAL = 5e6
RUNS = 7
BATCHES = 40
TOKENS_A_BATCH = 256 * 128


def measure(rows: Rows, batch_size: int, first_row: int) -> tuple[float, float]:
    """Tokens a second, padding included and without, over `BATCHES` batches."""
    stop_row = first_row + BATCHES * batch_size
    start = time.perf_counter()
    counts = [
        (batch["input_ids"].size, int(np.count_nonzero(batch["attention_mask"])))
        for batch in batches(rows, first_row, batch_size, threads=0, stop_row=stop_row)
    ]
    seconds = time.perf_counter() - start
    return sum(count[0] for count in counts) / seconds, sum(count[1] for count in counts) / seconds


def main() -> None:
    """Measures both lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, type=pathlib.Path, help="directory made by `prepare`")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    corpus = open_corpus(arguments.corpus)
    tokenizer = load_tokenizer(corpus.tokenizer_directory)
    special_ids = SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    for length in (128, 512):
        rows = make_rows(corpus.split("train"), special_ids, corpus.vocab_size, length, 0, DataConfig())
        batch_size = TOKENS_A_BATCH // length
        speeds = [measure(rows, batch_size, run * BATCHES * batch_size) for run in range(RUNS)]
        full, real = (statistics.median(speed[kind] for speed in speeds) for kind in (0, 1))
        print(
            f"length {length}, batch {batch_size}: {full / 1e6:.2f} M tokens/s, {real / 1e6:.2f} M without padding; "
            f"{full / GOAL:.2f} times the goal ({real / GOAL:.2f} without padding)"
        )


if __name__ == "__main__":
    main()
