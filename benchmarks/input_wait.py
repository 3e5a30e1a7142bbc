"""Measure the fraction of the wall time in which the training loop waits for input; the goal is below 2 %.

    python benchmarks/input_wait.py --corpus CORPUS [--config configs/demo.py] [--steps 200] [--config.KEY=VALUE ...]

Runs `bert-jax pretrain` in this process, in a temporary work directory, and reads `input_wait_fraction` from its
metrics.jsonl. The first line is left out, because its time includes the filling of the empty pipeline.
"""

import argparse
import pathlib
import tempfile

from bert_jax.api import pretrain
from bert_jax.config import PretrainConfig, read_config
from bert_jax.parallel.platform import use_compilation_cache
from bert_jax.training.metrics import read_metrics


def main() -> None:
    """Train, then print the fraction of waiting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="made by `bert-jax prepare`")
    parser.add_argument("--config", default="configs/demo.py", help="a recipe")
    parser.add_argument("--steps", type=int, default=200)
    arguments, overrides = parser.parse_known_args()

    use_compilation_cache()
    fixed = {
        "data.corpus": arguments.corpus,
        "train.steps": arguments.steps,
        "train.log_every": max(1, arguments.steps // 10),
        "evaluate.every": None,
        "evaluate.num_sequences": 1,
        "checkpoint.every": None,
        "checkpoint.max_time_fraction": None,
    }
    config = read_config(
        PretrainConfig, arguments.config, [*overrides, *(f"--config.{key}={value}" for key, value in fixed.items())]
    )
    with tempfile.TemporaryDirectory() as workdir:
        pretrain(config, workdir)
        lines = [line for line in read_metrics(pathlib.Path(workdir, "metrics.jsonl")) if line["split"] == "train"]
    first, *rest = lines
    # Every line covers the same number of steps, so its seconds are proportional to tokens / (tokens per second).
    seconds = [line["batch_size"] * line["seq_len"] / line["tokens_per_second"] for line in rest]
    fractions = [line["input_wait_fraction"] for line in rest]
    mean = sum(f * t for f, t in zip(fractions, seconds, strict=True)) / sum(seconds)
    print(f"waiting for input: {mean:.3%} of the wall time (lines: {min(fractions):.3%} to {max(fractions):.3%}; first "
          f"{first['input_wait_fraction']:.3%}), {1e3 * sum(seconds) / len(seconds):.1f} ms per step")  # fmt: skip


if __name__ == "__main__":
    main()
