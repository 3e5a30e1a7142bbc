"""Measure the speed of each rule of a cleaning recipe, of all rules, and of `prepare` with and without the recipe.

    python benchmarks/cleaning_speed.py --input 'books/*.txt' --vocab vocab.txt

The texts are cut into documents of some 4,000 characters, as web pages have. A rule is timed in this process, on the
documents that the rules before it keep. All times are CPU seconds, summed over all processes, so that other work on the
machine affects them less. The last lines of the output are ratios of medians.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator

DOCUMENT_CHARACTERS = 4000


def main() -> None:
    """Measure the speeds and print them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--input", nargs="+", required=True, help="text, as for `prepare`")
    arguments.add_argument("--vocab", required=True, help="a tokenizer directory or vocab.txt")
    arguments.add_argument("--recipe", default="web", help="recipe of cleaning (default: web)")
    arguments.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="number of processes (default: all cores)"
    )
    arguments.add_argument("--megabytes", type=float, default=20, help="text that is used (default: 20)")
    arguments.add_argument("--repeats", type=int, default=3, help="repetitions of `prepare`, alternating (default: 3)")
    args = arguments.parse_args()

    from bert_jax.corpus.build.prepare import prepare
    from bert_jax.readers import read_documents

    texts: list[str] = []
    left = args.megabytes * 1e6
    for document in read_documents(args.input):
        for text in documents_of(document.text):
            if left > 0:
                texts.append(text)
                left -= len(text.encode())
    megabytes = args.megabytes - left / 1e6
    print(f"{len(texts):,} documents, {megabytes:.1f} MB, {args.workers} workers")
    time_rules(args.recipe, texts)
    seconds: dict[str, list[float]] = {"prepare": [], "prepare --clean": [], "prepare --clean, no rules": []}
    with tempfile.TemporaryDirectory() as directory:
        source, empty = pathlib.Path(directory) / "texts.jsonl", pathlib.Path(directory) / "empty.toml"
        source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        empty.write_text("")
        recipes = dict(zip(seconds, (None, args.recipe, empty), strict=True))
        for _ in range(args.repeats):
            for name, recipe in recipes.items():
                output = pathlib.Path(directory) / "corpus"
                start = cpu_seconds()
                prepare([str(source)], args.vocab, output, workers=args.workers, clean=recipe)
                seconds[name].append(cpu_seconds() - start)
                shutil.rmtree(output)
                print(f"{name:<28} {megabytes / seconds[name][-1]:8.2f} MB per CPU second", flush=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        ratio = median / medians["prepare"]
        print(f"{name:<28} median {megabytes / median:6.2f} MB per CPU second, {ratio:.2f} times the cost")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its child processes that ended."""
    return sum(os.times()[:4])


def documents_of(text: str) -> Iterator[str]:
    """Yield documents of about DOCUMENT_CHARACTERS characters, each joined from consecutive paragraphs."""
    own: list[str] = []
    for paragraph in text.split("\n\n"):
        own.append(paragraph)
        if sum(map(len, own)) >= DOCUMENT_CHARACTERS:
            yield "\n\n".join(own)
            own = []
    if own:
        yield "\n\n".join(own)


def time_rules(recipe: str, texts: list[str]) -> None:
    """Print the speed of each rule that needs no survey of the corpus, and of these rules together."""

    from bert_jax.corpus.build.cleaning.chunk import bind_rules
    from bert_jax.corpus.build.cleaning.recipe import read_recipe
    from bert_jax.corpus.build.cleaning.rules import RULES

    steps = [step for step in read_recipe(recipe).steps if not RULES[step.rule].survey]
    everything, all_seconds = sum(len(text.encode()) for text in texts) / 1e6, 0.0
    for name, rule in bind_rules(steps):
        rule(texts[0])  # loads the data of the rule
        megabytes = sum(len(text.encode()) for text in texts) / 1e6
        start = time.process_time()
        cleaned = [rule(text) for text in texts]
        seconds = time.process_time() - start
        all_seconds += seconds
        left = [text for text in cleaned if isinstance(text, str)]
        print(f"{name:<28} {megabytes / seconds:8.1f} MB/s, {len(texts) - len(left):,} documents removed", flush=True)
        texts = left
    print(f"{'all of these':<28} {everything / all_seconds:8.1f} MB/s")


if __name__ == "__main__":
    main()
