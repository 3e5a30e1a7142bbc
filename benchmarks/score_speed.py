"""Time the scoring of minimal pairs by a small encoder with random weights: seconds, and masked tokens per second.

    python benchmarks/score_speed.py --pairs blimp/ --fraction 0.05

The encoder has 6 layers of width 192 and a vocabulary of 8,192 by default. Goal: 5 percent of BLiMP in at most 3
minutes on two cores, compilation included.
"""

import argparse
import pathlib
import resource
import tempfile
import time

import jax

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import make_model
from bert_jax.scoring.log_probabilities import HEADS
from bert_jax.scoring.score import make_scoring_model, run_benchmark
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer


def main() -> None:
    """Score the pairs, and print the times."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pairs", default="zorro_small", help="as for `score` (default: zorro_small)")
    arguments.add_argument("--fraction", type=float, default=1.0, help="of each paradigm (default: 1)")
    arguments.add_argument("--tokenizer", help="directory (default: 8,192 tokens trained on python-docs)")
    arguments.add_argument("--layers", type=int, default=6)
    arguments.add_argument("--hidden_size", type=int, default=192)
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        if not args.tokenizer:
            train_tokenizer([["python-docs"]], 8000, f"{directory}/tokenizer")
        tokenizer = load_tokenizer(args.tokenizer or f"{directory}/tokenizer")
    sizes = {"hidden_size": args.hidden_size, "num_layers": args.layers, "mlp_size": 4 * args.hidden_size}
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, num_heads=args.hidden_size // 64, max_positions=128, **sizes
    )
    params = make_model(config, ComputeConfig(), HEADS).init(jax.random.key(0))
    model = make_scoring_model(
        OpenModel(
            config=config, heads=HEADS, params=params, labels=(), tokenizer=tokenizer, directory=pathlib.Path("random")
        )
    )
    began, worked = time.perf_counter(), cpu_seconds()
    report, scored = run_benchmark(model, "pairs", args.pairs, args.fraction)
    seconds, worked = time.perf_counter() - began, cpu_seconds() - worked
    tokens = sum(len(numbers) for item in scored for numbers in item.log_probabilities)
    print(
        f"{args.layers} x {args.hidden_size}, vocabulary {tokenizer.vocab_size:,}: {report.scored:,} of "
        f"{report.items:,} pairs of {len(report.rows)} paradigms, {tokens:,} masked tokens, {seconds:.1f} s "
        f"({worked:.1f} CPU-seconds), {tokens / seconds:,.0f} tokens/s, accuracy {report.total['accuracy']:.1%}"
    )


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, summed over the cores."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
