"""Measure the gain of training sentence vectors with in-batch negatives, on Korean sentence pairs (KorSTS).

    python benchmarks/similarity_gain.py --model runs/korean --data DATA/kor-nlu --output similarity/

Trains on the similar pairs of the training set, without their labels, and chooses the epoch on the development set; the
test set is only for the report. A sentence vector is the mean of the tokens. Prints Spearman's correlation of cosine
and label, in percent, on the development and test set, before and after the training; the correlation after the
training is printed as mean and standard deviation over the seeds.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import scipy.stats
from korean_text import rows

import bert_jax

ROOT = pathlib.Path(__file__).resolve().parents[1]
Pairs = list[dict[str, Any]]


def main() -> None:
    """Score the model before training, then train and score it with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a work directory or an export")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="directory of sts-train.tsv.gz and the others")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="for pairs, runs and table.md")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--positive_from", type=float, default=2.5, help="label from which on a pair belongs together")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=1.5e-3)
    args = parser.parse_args()
    sets = {split: read(args.data / f"sts-{split}.tsv.gz") for split in ("train", "dev", "test")}
    positives = [pair for pair in sets["train"] if pair["label"] >= args.positive_from]
    sets["train"] = [{key: pair[key] for key in ("text", "text_pair")} for pair in positives]
    args.output.mkdir(parents=True, exist_ok=True)
    for split, pairs in sets.items():
        text = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs)
        (args.output / f"{split}.jsonl").write_text(text, encoding="utf-8")
    before = [spearman(args.model, sets[split]) for split in ("dev", "test")]
    print(f"before: dev {before[0]:.1f}, test {before[1]:.1f}", flush=True)
    after = []
    for seed in range(args.seeds):
        workdir = args.output / f"seed{seed}"
        train(args, seed, workdir)
        after.append([spearman(workdir, sets[split]) for split in ("dev", "test")])
        print(f"seed {seed}: dev {after[-1][0]:.1f}, test {after[-1][1]:.1f}", flush=True)
    lines = [
        f"{len(sets['train']):,} pairs, {args.seeds} seeds, JAX {jax.__version__}, {platform.machine()}",
        "",
        "| set | mean of the tokens | after training | gain |",
        "| --- | --- | --- | --- |",
    ]
    for split, start, scores in zip(("dev", "test"), before, zip(*after, strict=True), strict=True):
        mean, spread = statistics.mean(scores), statistics.stdev(scores) if len(scores) > 1 else 0.0
        lines.append(f"| {split} | {start:.1f} | {mean:.1f} ± {spread:.1f} | {mean - start:+.1f} |")
    (args.output / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def read(path: pathlib.Path) -> Pairs:
    """Return the pairs of a file of KorSTS."""
    return [{"text": row[5], "text_pair": row[6], "label": float(row[4])} for row in rows(path)]


def spearman(model: pathlib.Path, pairs: Pairs) -> float:
    """Return Spearman's correlation of the labels and the cosines of mean-pooled vectors, in percent."""
    loaded = bert_jax.load(model)
    first, second = (
        np.asarray(loaded.encode([pair[side] for pair in pairs], pooling="mean", normalize=True, truncate=True))
        for side in ("text", "text_pair")
    )
    cosines = (first * second).sum(1)
    return 100 * float(scipy.stats.spearmanr(cosines, [pair["label"] for pair in pairs]).statistic)


def train(args: argparse.Namespace, seed: int, workdir: pathlib.Path) -> None:
    """Run or resume `finetune` with one seed."""
    files = {split: (args.output / f"{split}.jsonl").absolute() for split in ("train", "dev")}
    command = [sys.executable, "-m", "bert_jax", "finetune", "--config", "similarity"]
    command += ["--workdir", str(workdir.absolute()), f"--config.init_from={args.model.absolute()}"]
    command += [f"--config.task.train={files['train']}", f"--config.task.dev={files['dev']}"]
    command += [f"--config.seed={seed}", f"--config.task.epochs={args.epochs}"]
    command += [f"--config.train.batch_size={args.batch_size}"]
    command += [f"--config.optimizer.peak_learning_rate={args.learning_rate}"]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
