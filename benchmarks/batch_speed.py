"""Prepared store -> finished batches on one core: tokens a second with each pairing, masking, packing, and a mixture.

    python benchmarks/batch_speed.py --corpus corpus/

Prints one line a rule and length: the median over the runs, padding included and without, and its ratio to the goal:
5 M tokens/s, and 3 M where whole words, n-grams or spans are masked.
"""

import argparse
import os
import pathlib
import statistics
import time

import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.corpus import Split, open_corpus
from bert_jax.data.sequences.pipeline import Rows, batches, make_rows, symbols_of
from bert_jax.data.tokenizer import load_tokenizer

GOAL, GOAL_OF_WORDS = 5e6, 3e6
RUNS = 5
BATCHES = 30
TOKENS_A_BATCH = 256 * 128

RULES = {
    "as BERT": DataConfig(),
    "sentence order": DataConfig(sentence_pairs="sentence_order"),
    "full sentences": DataConfig(sentence_pairs="full_sentences"),
    "document sentences": DataConfig(sentence_pairs="document_sentences"),
    "no pairing": DataConfig(sentence_pairs="none"),
    "whole words": DataConfig(masking="whole_word"),
    "n-grams": DataConfig(masking="ngram"),
    "spans": DataConfig(masking="span"),
    "static": DataConfig(dupe_factor=10),
    "packed": DataConfig(packing=8),
    "packed, sentence order": DataConfig(packing=8, sentence_pairs="sentence_order"),
    "packed, document sentences": DataConfig(packing=8, sentence_pairs="document_sentences"),
    "packed, spans": DataConfig(packing=8, masking="span"),
    "mixture of 20, smoothed": DataConfig(smoothing=0.7),
}


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
    """Measures every rule at both lengths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, type=pathlib.Path, help="directory made by `prepare`")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    corpus = open_corpus(arguments.corpus)
    symbols = symbols_of(load_tokenizer(corpus.tokenizer_directory))
    split = corpus.split("train")
    for name, config in RULES.items():
        goal = GOAL if config.masking == "token" else GOAL_OF_WORDS
        source = split if config.smoothing == 1 else Split.join([split] * 20)
        for length in (128, 512):
            rows = make_rows(source, symbols, length, 0, config)
            batch_size = TOKENS_A_BATCH // length
            speeds = [measure(rows, batch_size, run * BATCHES * batch_size) for run in range(RUNS)]
            full, real = (statistics.median(speed[kind] for speed in speeds) for kind in (0, 1))
            print(
                f"{name:27} length {length}: {full / 1e6:5.2f} M tokens/s, {real / 1e6:5.2f} M without padding; "
                f"{full / goal:.2f} times the goal"
            )


if __name__ == "__main__":
    main()
