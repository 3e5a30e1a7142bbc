"""Compare our speed from text to sequences with `tokenizers` and transformers' whole-word collator, on one core.

    python benchmarks/text_to_sequences.py --input books.txt --vocab tok/

Both programs make sequences of 128 tokens from the same text and vocabulary, and mask 15 % of the tokens by whole
words. Our program runs `prepare` (sentences, ids, corpus on disk) and reads one epoch of next-sentence pairs. The other
program follows the example run_mlm.py of transformers: lines are encoded in batches, concatenated, cut into sequences,
and masked by `DataCollatorForLanguageModeling(whole_word_mask=True)`. The other program makes no corpus, sentences or
pairs. Prints the kB/s of each program (medians of interleaved runs), their ratio (goal: 1.5), and our speed relative to
the published 46 to 69 kB/s of create_pretraining_data.py, BERT's original script (goal: 20).
"""

import argparse
import itertools
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
import transformers

from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.store import open_corpus
from bert_jax.tokenizer import load_tokenizer, save_tokenizer

SEQ_LEN, BATCH, LINES = 128, 256, 1000
PUBLISHED = (46.0, 69.0)  # kB/s
GOAL_PUBLISHED, GOAL = 20, 1.5


def ours(text: pathlib.Path, vocabulary: pathlib.Path) -> int:
    """Prepare the text and make an epoch of sequences; return the number of sequences."""
    with tempfile.TemporaryDirectory() as place:
        prepare([str(text)], vocabulary, f"{place}/corpus", workers=1, heldout_fraction=0.0)
        split = open_corpus(f"{place}/corpus").split("train")
        config = DataConfig(masking="whole_word")
        sequences = make_sequences(split, special_ids_and_vocabulary(load_tokenizer(vocabulary)), SEQ_LEN, 0, config)
        for first in range(0, sequences.num_per_epoch, BATCH):
            sequences.batch(np.arange(first, min(first + BATCH, sequences.num_per_epoch)))
        return sequences.num_per_epoch


def theirs(text: pathlib.Path, vocabulary: pathlib.Path) -> int:
    """Encode the lines, cut them into sequences and collate the sequences; return the number of sequences."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(vocabulary)
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, return_tensors="np")
    files = sorted(text.rglob("*")) if text.is_dir() else [text]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines() if line.strip()]
    made = 0
    left: dict[str, list[int]] = {"input_ids": [], "special_tokens_mask": [], "offset_mapping": []}
    for start in range(0, len(lines), LINES):
        batch = lines[start : start + LINES]
        encoded = tokenizer(batch, return_special_tokens_mask=True, return_offsets_mapping=True)
        left = {name: values + list(itertools.chain.from_iterable(encoded[name])) for name, values in left.items()}
        num_sequences = len(left["input_ids"]) // SEQ_LEN
        sequences = [
            {name: v[i * SEQ_LEN : (i + 1) * SEQ_LEN] for name, v in left.items()} for i in range(num_sequences)
        ]
        left = {name: values[num_sequences * SEQ_LEN :] for name, values in left.items()}
        for first in range(0, len(sequences), BATCH):
            collate(sequences[first : first + BATCH])
        made += num_sequences
    return made


def seconds(function: Callable[[pathlib.Path, pathlib.Path], int], *arguments: pathlib.Path) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main() -> None:
    """Measure both programs in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, type=pathlib.Path, help="a text, or a directory of texts")
    parser.add_argument("--vocab", required=True, type=pathlib.Path, help="a tokenizer directory")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    files = [arguments.input] if arguments.input.is_file() else [f for f in arguments.input.rglob("*") if f.is_file()]
    kilobytes = sum(file.stat().st_size for file in files) / 1000
    speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory() as directory:
        vocabulary = pathlib.Path(directory) / "tokenizer"
        save_tokenizer(load_tokenizer(arguments.vocab), vocabulary)  # as transformers opens it
        for _ in range(arguments.repeats):
            for name, function in (("ours", ours), ("theirs", theirs)):
                speeds[name].append(kilobytes / seconds(function, arguments.input, vocabulary))
    our_speed, their_speed = (statistics.median(speeds[name]) for name in ("ours", "theirs"))
    slowest, fastest = our_speed / PUBLISHED[1], our_speed / PUBLISHED[0]
    print(f"{kilobytes:,.0f} kB, one core, transformers {transformers.__version__}")
    print(f"ours    {our_speed:,.0f} kB/s: {slowest:.0f} to {fastest:.0f} times the original's published")
    print(f"theirs  {their_speed:,.0f} kB/s; ours over theirs: {our_speed / their_speed:.2f} (goal {GOAL})")


if __name__ == "__main__":
    main()
