"""Measure the gain of another vocabulary: train a model further on Python's documentation, in three variants.

    python benchmarks/vocabulary_gain.py --model small/ --output vocabulary/ [--steps 200] [--seeds 1]

In the first variant, the model keeps its vocabulary. In the second variant, the model is given a vocabulary trained on
the new text (`bert-jax vocabulary`). In the third variant, the model starts from random weights with the new
vocabulary. All variants read equally many characters, so they have different numbers of steps. All variants are scored
on the same held-out lines by the bits per character of the pseudo-likelihood, which can be compared across
vocabularies. The split depends only on the text, so the same documents are held out with both vocabularies.
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

from bert_jax.corpus.build.signatures import choose_split, split_hash
from bert_jax.corpus.store import open_corpus
from bert_jax.readers import read_documents
from bert_jax.tokenizer import load_tokenizer

STARTS = ("own", "carried", "random")
HELDOUT = 0.05
LINES, LINE = 150, slice(80, 400)  # number of held-out lines that are scored, and their lengths in characters


def main() -> None:
    """Train each variant, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=pathlib.Path, required=True, help="an export of small_cpu, or of a model of its size"
    )
    parser.add_argument("--output", type=pathlib.Path, required=True, help="for tokenizer, corpora, runs and scores")
    parser.add_argument("--steps", type=int, default=200, help="of 4,096 tokens, with the model's own vocabulary")
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    output, size = args.output, load_tokenizer(args.model).vocab_size
    output.mkdir(parents=True, exist_ok=True)
    new = output / "tokenizer"
    run("tokenizer", input="python-docs", kind="wordpiece", vocab_size=size, output=new)
    run("vocabulary", model=args.model, tokenizer=new, output=output / "carried")
    corpora = {"own": prepare(args.model, output / "own-corpus"), "new": prepare(new, output / "new-corpus")}
    tokens = {name: open_corpus(corpus).split("train").num_tokens for name, corpus in corpora.items()}
    text = heldout_lines(output / "heldout.txt")
    ratio = tokens["own"] / tokens["new"]
    print(f"{args.seeds} seeds, JAX {jax.__version__}, {platform.machine()}")
    print(f"The model's own vocabulary needs {ratio:.2f} tokens where the new vocabulary needs one token.")
    print("| start | steps | bits per character |\n| --- | --- | --- |")
    for start in STARTS:
        kind = "own" if start == "own" else "new"
        steps, scores = round(args.steps * tokens[kind] / tokens["own"]), []
        for seed in range(args.seeds):
            workdir = output / f"{start}-{seed}"
            first = {"own": args.model, "carried": output / "carried"}.get(start)
            train(workdir, corpora[kind], first, steps, seed)
            scores.append(bits(workdir, text, output / f"{start}-{seed}.json"))
        spread = f" ± {statistics.stdev(scores):.3f}" if args.seeds > 1 else ""
        print(f"| {start} | {steps} | {statistics.mean(scores):.3f}{spread} |", flush=True)


def run(verb: str, *words: str, **options: Any) -> str:
    """Run a verb of the command line unless its output file exists; return the text that the verb prints."""
    if "output" in options and pathlib.Path(options["output"]).exists():
        return ""
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bert_jax", verb, *words, *given]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def prepare(tokenizer: pathlib.Path, output: pathlib.Path) -> pathlib.Path:
    """Prepare the documentation of Python as a corpus, and return the path of the corpus."""
    run("prepare", input="python-docs", tokenizer=tokenizer, output=output, heldout_fraction=HELDOUT)
    return output


def heldout_lines(path: pathlib.Path) -> pathlib.Path:
    """Write lines of the held-out documents, and return the path."""
    if not path.exists():
        documents = [one.text for one in read_documents(["python-docs"])]
        held = [text for text in documents if choose_split(split_hash(text), HELDOUT) == "heldout"]
        lines = [line for text in held for line in text.splitlines() if LINE.start < len(line) < LINE.stop]
        path.write_text("\n".join(lines[:: max(1, len(lines) // LINES)][:LINES]) + "\n")
    return path


def train(workdir: pathlib.Path, corpus: pathlib.Path, start: pathlib.Path | None, steps: int, seed: int) -> None:
    """Pretrain with the settings of small_cpu, in fewer steps."""
    overrides = {
        "data.corpus": corpus,
        "train.steps": steps,
        "seed": seed,
        "evaluate.every": steps,
        "checkpoint.every": steps,
        **({"init_from": start} if start else {}),
    }
    words = [f"--config.{name}={value}" for name, value in overrides.items()]
    run("pretrain", "--config=small_cpu", *words, workdir=workdir)


def bits(workdir: pathlib.Path, text: pathlib.Path, output: pathlib.Path) -> float:
    """Return the bits per character of the pseudo-likelihood of the held-out lines."""
    run("score", model=workdir, text=text, output=output)
    (report,) = json.loads(output.read_text())["results"]
    return float(report["total"]["bits_per_character"])


if __name__ == "__main__":
    main()
