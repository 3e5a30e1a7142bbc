"""Measure `bert-jax attention` on a model with random weights: seconds, size of the page, and memory.

    python benchmarks/attention_page.py [--preset base] [--tokens 512] [--output page.html]

The page shows all heads, and one head in detail. The page is made twice: without and with the relevance for a [MASK]
token; texts above 512 tokens have no relevance. The queries are 16 times as large as at the start of training, so that
the attention weights have all sizes. The clock starts after the model is loaded, and includes compilation. Goals for
BERT base at 512 tokens on two cores: 10 s and a page of 6 MB.
"""

import argparse
import dataclasses
import os
import pathlib
import resource
import tempfile
import time
from typing import Any

import jax

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import ComputeConfig
from bert_jax.config.presets import PRESETS
from bert_jax.models import make_model
from bert_jax.reports.attention.page import attention_page
from bert_jax.reports.attention.text import text_attention
from bert_jax.scoring.log_probabilities import HEADS
from bert_jax.tokenizer import Tokenizer, load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer

LARGER = 16  # queries than at the start of training
WORDS = "the old ship left harbour with nine men and a cat because wind had turned to north again"


def main() -> None:
    """Make the pages and print the measurements."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--preset", default="base", choices=PRESETS, help="of the model (default: base)")
    arguments.add_argument("--tokens", type=int, default=512, help="at most, of the text (default: 512)")
    arguments.add_argument("--tokenizer", help="directory (default: 4,096 tokens trained on python-docs)")
    arguments.add_argument("--output", help="file for the page (default: the page is not kept)")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if not args.tokenizer:
            train_tokenizer([["python-docs"]], 4096, f"{directory}/tokenizer")
        tokenizer = load_tokenizer(args.tokenizer or f"{directory}/tokenizer")
    config = dataclasses.replace(PRESETS[args.preset], vocab_size=tokenizer.vocab_size)
    params = jax.tree_util.tree_map_with_path(
        larger, make_model(config, ComputeConfig(), HEADS).init(jax.random.key(0))
    )
    model = OpenModel(
        config=config, heads=HEADS, params=params, labels=(), tokenizer=tokenizer, directory=pathlib.Path("random")
    )
    for first in ("the", "[MASK]"):
        text = of_length(tokenizer, first, args.tokens)
        began, worked = time.perf_counter(), cpu_seconds()
        shown = attention_page(model, text_attention(model, text), text, detail_of=(0, 0))
        seconds, worked = time.perf_counter() - began, cpu_seconds() - worked
        print(
            f"{config.num_layers} x {config.num_heads} heads, "
            f"{len(tokenizer.encode(text))} tokens, the first {first}: {seconds:.1f} s, {worked:.1f} "
            f"CPU-seconds, {len(shown.encode()) / 1e6:.2f} MB; at most {peak_gigabytes():.1f} GB of memory so far"
        )
    if args.output:
        pathlib.Path(args.output).write_text(shown, encoding="utf-8")


def of_length(tokenizer: Tokenizer, first: str, tokens: int) -> str:
    """Return a text of at most the given number of tokens."""
    text, words = first, WORDS.split()
    for number in range(tokens):
        longer = f"{text} {words[number * number % len(words)]}"
        if len(tokenizer.encode(longer)) > tokens:
            break
        text = longer
    return text


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, summed over the cores."""
    used = os.times()
    return used.user + used.system


def peak_gigabytes() -> float:
    """Return the peak memory of this process in gigabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def larger(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
    """Return the parameter, multiplied by `LARGER` if the parameter belongs to a query projection."""
    return leaf * LARGER if "query" in jax.tree_util.keystr(path) else leaf


if __name__ == "__main__":
    main()
