"""Measure the seconds from the start of a pretraining process to its first logged step, with a cold and a warm cache.

    python benchmarks/start_time.py --corpus CORPUS [--config configs/demo.py] [--rounds 3] [--config.KEY=VALUE ...]

Runs `bert-jax pretrain`, which logs every step, and stops it after the first step; the figures are medians.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence


def seconds_to_first_step(command: Sequence[str], workdir: pathlib.Path, cache: pathlib.Path) -> float:
    """Return the seconds of one run in a new `workdir` from its start to its first step."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, f"--workdir={workdir}"],
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("step 1/"):
            seconds = time.perf_counter() - began
            process.kill()
            process.communicate()
            return seconds
    sys.exit("".join(said))


def main() -> None:
    """Time starts with an empty and with a warm cache in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="made by `bert-jax prepare`")
    parser.add_argument("--config", default="configs/demo.py", help="a recipe")
    parser.add_argument("--rounds", type=int, default=3)
    arguments, overrides = parser.parse_known_args()
    command = [sys.executable, "-m", "bert_jax", "pretrain", f"--config={arguments.config}"]
    command += [*overrides, f"--config.data.corpus={arguments.corpus}", "--config.train.log_every=1"]

    seconds: dict[str, list[float]] = {"empty": [], "warm": []}
    with tempfile.TemporaryDirectory() as directory:
        for round_index in range(arguments.rounds):
            cache = pathlib.Path(directory, f"cache{round_index}")
            for name, times in seconds.items():
                times.append(seconds_to_first_step(command, pathlib.Path(directory, f"{name}{round_index}"), cache))
                print(f"{name} cache: {times[-1]:.2f} s", flush=True)
    empty, warm = (statistics.median(times) for times in seconds.values())
    print(f"medians of {arguments.rounds}: {empty:.2f} s with an empty cache, {warm:.2f} s with a warm cache")


if __name__ == "__main__":
    main()
