"""Time the encoding of the same sentences by several models; each time is also relative to the first model.

python benchmarks/encode_speed.py --models runs/small runs/student --input sentences.txt
"""

import argparse
import pathlib
import statistics
import time

import jax

import bert_jax

PASSES = 7


def main() -> None:
    """Encode the sentences with each model in turn, and print the median time of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="work directories or exports")
    parser.add_argument("--input", type=pathlib.Path, required=True, help="a sentence per line")
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    texts = [line for line in args.input.read_text(encoding="utf-8").splitlines() if line.strip()]
    models = {name: bert_jax.load(name) for name in args.models}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for pass_index in range(1 + PASSES):  # the first pass compiles
        for name, model in models.items():
            began = time.perf_counter()
            model.encode(texts, batch_size=args.batch_size, truncate=True)
            if pass_index:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    first = next(iter(medians.values()))
    print(f"{len(texts):,} sentences, medians of {PASSES}, {jax.devices()[0].device_kind}, JAX {jax.__version__}\n")
    print("| model | seconds | of the first |\n| --- | --- | --- |")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {median / first:.2f} |")


if __name__ == "__main__":
    main()
