"""Measure how fast batches are made from a corpus, on one core, for each kind of sentence pairs, masking and packing.

    python benchmarks/batch_speed.py --corpus corpus/

A mixture of several sources is measured as well. Prints one line per rule and length: the median speed over the runs,
with padding counted and not counted, and the ratio of the speed to the goal. The goal is 5 M tokens/s, or 3 M if whole
words, n-grams or spans are masked.
"""

import argparse
import os
import pathlib
import statistics
import time

import numpy as np

from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import Sequences, make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig
from bert_jax.corpus.store import Split, open_corpus
from bert_jax.tokenizer import load_tokenizer

GOAL, GOAL_OF_WORDS = 5e6, 3e6
RUNS = 5
BATCHES = 30
TOKENS_PER_BATCH = 256 * 128

RULES = {
    "next sentence": DataConfig(),
    "sentence order": DataConfig(sentence_pairs="sentence_order"),
    "full sentences": DataConfig(sentence_pairs="full_sentences"),
    "document sentences": DataConfig(sentence_pairs="document_sentences"),
    "full text": DataConfig(sentence_pairs="full_text"),
    "none": DataConfig(sentence_pairs="none"),
    "whole words, next sentence": DataConfig(masking="whole_word"),
    "n-grams, next sentence": DataConfig(masking="ngram"),
    "spans, next sentence": DataConfig(masking="span"),
    "static": DataConfig(dupe_factor=10),
    "packed, next sentence": DataConfig(packing=8),
    "packed, sentence order": DataConfig(packing=8, sentence_pairs="sentence_order"),
    "packed, document sentences": DataConfig(packing=8, sentence_pairs="document_sentences"),
    "packed, spans": DataConfig(packing=8, masking="span"),
    "mixture of 20 sources, smoothed": DataConfig(smoothing=0.7),
}


def measure(sequences: Sequences, batch_size: int, first: int) -> tuple[float, float]:
    """Return the tokens per second, with padding counted and not counted, over `BATCHES` batches."""
    stop = first + BATCHES * batch_size
    start = time.perf_counter()
    counts = [
        (batch["input_ids"].size, int(np.count_nonzero(batch["attention_mask"])))
        for batch in batches(sequences, first, batch_size, num_threads=0, stop=stop)
    ]
    seconds = time.perf_counter() - start
    return sum(count[0] for count in counts) / seconds, sum(count[1] for count in counts) / seconds


def main() -> None:
    """Measure every rule at both lengths of a sequence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, type=pathlib.Path, help="directory made by `prepare`")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    corpus = open_corpus(arguments.corpus)
    symbols = special_ids_and_vocabulary(load_tokenizer(corpus.tokenizer_directory))
    split = corpus.split("train")
    for name, config in RULES.items():
        goal = GOAL if config.masking == "token" else GOAL_OF_WORDS
        source = split if config.smoothing == 1 else Split.join([split] * 20)
        for seq_len in (128, 512):
            sequences = make_sequences(source, symbols, seq_len, 0, config)
            batch_size = TOKENS_PER_BATCH // seq_len
            speeds = [measure(sequences, batch_size, run * BATCHES * batch_size) for run in range(RUNS)]
            full, real = (statistics.median(speed[kind] for speed in speeds) for kind in (0, 1))
            print(
                f"{name:27} length {seq_len}: {full / 1e6:5.2f} M tokens/s, {real / 1e6:5.2f} M without padding; "
                f"{full / goal:.2f} times the goal"
            )


if __name__ == "__main__":
    main()
