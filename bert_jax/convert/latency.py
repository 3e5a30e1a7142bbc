"""Latency of an exported model on one core; each runtime is measured in a separate process."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

from bert_jax.convert.expected_outputs import read_expected_outputs
from bert_jax.convert.runtimes import Arrays, open_runtime
from bert_jax.errors import UserError

BATCH_SIZES = (1, 32)
LENGTH = 128  # number of tokens of a text
SECONDS, MIN_ROUNDS = 2.0, 3  # time and minimum number of rounds for each batch size
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def measure_latency(runtime: str, directory: pathlib.Path, expected: pathlib.Path, max_length: int) -> dict[int, float]:
    """Return batch size -> median milliseconds of a batch, measured on one core in a separate process.

    Args:
        runtime: a row of RUNTIMES.
        directory: directory that the runtime opens.
        expected: file with the expected outputs; the first row of its batch is repeated to fill the batches.
        max_length: number of tokens that the model can read.

    Raises:
        UserError: the process fails.
    """
    argv = [sys.executable, "-m", __spec__.name, runtime, str(directory), str(expected), str(min(LENGTH, max_length))]
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1") | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{runtime} could not be timed: {done.stderr.strip().splitlines()[-1:]}")
    return {int(size): ms for size, ms in json.loads(done.stdout.splitlines()[-1]).items()}


def repeat_first_row_to_batch(batch: Arrays, size: int, length: int) -> dict[str, np.ndarray]:
    """Return a batch of `size` equal rows without padding: the first row of `batch`, repeated to `length` tokens."""
    rows = {}
    for name, x in batch.items():
        row = x[:1]
        if name != "masked_positions":
            row = np.tile(row, (1,) * (x.ndim - 1) + (-(-length // x.shape[-1]),))[..., :length]
        rows[name] = np.repeat(row, size, axis=0)
    return rows


def print_latency(runtime: str, directory: str, expected: str, length: str) -> None:
    """Measure the latency of a runtime; print batch size -> median milliseconds as JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    run, batch = open_runtime(runtime, directory, threads=1), read_expected_outputs(pathlib.Path(expected)).batch
    medians = {}
    for size in BATCH_SIZES:
        inputs = repeat_first_row_to_batch(batch, size, int(length))
        run(inputs)  # the first run compiles the program
        times, end = list[float](), time.perf_counter() + SECONDS
        while len(times) < MIN_ROUNDS or time.perf_counter() < end:
            begin = time.perf_counter()
            run(inputs)
            times.append(1000 * (time.perf_counter() - begin))
        medians[size] = statistics.median(times)
    print(json.dumps(medians))


if __name__ == "__main__":
    print_latency(*sys.argv[1:])
