"""Measure the sequences per second from a corpus on slow storage, read directly or staged on the local disk.

    python benchmarks/slow_storage.py --corpus corpus/

Each read of a shard takes 20 ms longer, as on a mounted bucket without a cache. benchmarks/slow_reads.c causes the
delay; it is loaded with LD_PRELOAD, which needs Linux and a C compiler. Goals: 1,500 sequences of 128 tokens per second
from slow storage, and 20,000 from the staged corpus.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig
from bert_jax.corpus.cache import copy_corpus_to_cache
from bert_jax.corpus.store import open_corpus
from bert_jax.tokenizer import load_tokenizer

BATCH_SIZE, SEQ_LEN = 64, 128
SECONDS = 10.0


def measure(directory: pathlib.Path, threads: int) -> str:
    """Measure for SECONDS after the first ten batches, in which the shards are opened and the storage is timed."""
    corpus = open_corpus(directory)
    symbols = special_ids_and_vocabulary(load_tokenizer(corpus.tokenizer_directory))
    sequences = make_sequences(corpus.split("train"), symbols, SEQ_LEN, 0, DataConfig())
    made = batches(sequences, 0, BATCH_SIZE, num_threads=threads, prefetch=max(threads, 4))
    for _ in range(10):
        next(made)
    began, cpu, num_sequences = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() < began + SECONDS:
        next(made)
        num_sequences += BATCH_SIZE
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    made.close()
    return f"{num_sequences / seconds:8,.0f} sequences/s, {num_sequences / cpu:8,.0f} per CPU-second"


def main() -> None:
    """Measure each storage with each number of threads, in a new process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, type=pathlib.Path, help="directory made by `prepare`")
    parser.add_argument("--milliseconds", type=int, default=20, help="of each read (default: 20)")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2, 4, 8], help="config.data.num_threads")
    parser.add_argument("--measure", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        print(measure(arguments.corpus, arguments.measure), flush=True)
        return
    source = pathlib.Path(__file__).with_name("slow_reads.c")
    with tempfile.TemporaryDirectory() as scratch:
        shim = f"{scratch}/slow_reads.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, str(source), "-ldl"], check=True)
        slow = {"LD_PRELOAD": shim, "READ_MILLISECONDS": str(arguments.milliseconds)}
        local = copy_corpus_to_cache(arguments.corpus.resolve().as_uri(), cache=scratch)
        for name, directory, variables in (("remote", arguments.corpus, slow), ("staged", local, {})):
            for threads in arguments.threads:
                print(f"{name}, {threads} threads: ", end="", flush=True)
                command = [sys.executable, __file__, f"--corpus={directory}", f"--measure={threads}"]
                subprocess.run(command, env=os.environ | variables, check=True)


if __name__ == "__main__":
    main()
