"""Measure how time and memory of a training step grow with the sequence length, for local and global attention.

A row is one step of `modern_mini` (forward and backward pass, float32, random weights) on 8,192 tokens, in sequences of
one length. One variant has only local attention, computed in chunks. The other variant is the published model, in which
every third block computes the attention of all pairs of tokens. Times are medians of interleaved steps.

    python benchmarks/long_sequences.py [--lengths 1024 8192] [--steps 3]
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bert_jax.config import ComputeConfig
from bert_jax.models import PRESETS, Head, make_model

TOKENS, VOCAB = 8192, 8192
EVERY = {"local alone": 0, "one global in three": 3}


def step_of(every: int, length: int) -> tuple[Callable[[], Any], float]:
    """Return a function that runs a compiled step, and the bytes of its temporary arrays."""
    model = dataclasses.replace(PRESETS["modern_mini"], vocab_size=VOCAB, global_every=every)
    made = make_model(model, ComputeConfig(scan_layers=False), (Head("hidden_states"),))
    params = jax.jit(made.init)(jax.random.key(0))
    ids = np.random.default_rng(0).integers(5, VOCAB, (TOKENS // length, length)).astype(np.int32)
    batch: Any = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": np.ones_like(ids)}

    def loss(params: Any) -> jax.Array:
        return (made.apply(params, batch, None)["hidden_states"][-1] ** 2).mean()

    program = jax.jit(jax.grad(loss)).lower(params).compile()
    analysis: Any = program.memory_analysis()
    return lambda: jax.block_until_ready(program(params)), analysis.temp_size_in_bytes


def main() -> None:
    """Time the steps of all lengths, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {TOKENS:,} tokens a step")
    print(f"{'blocks':20} {'length':>7} {'ms a step':>10} {'to the first':>13} {'temporary MB':>13}")
    for name, every in EVERY.items():
        steps = {length: step_of(every, length) for length in args.lengths}
        times: dict[int, list[float]] = {length: [] for length in args.lengths}
        for _ in range(args.steps + 1):
            for length, (run, _) in steps.items():
                begun = time.perf_counter()
                run()
                times[length].append(1e3 * (time.perf_counter() - begun))
        medians = {length: statistics.median(of_length[1:]) for length, of_length in times.items()}
        for length, (_, temporary) in steps.items():
            ratio = medians[length] / medians[args.lengths[0]]
            print(f"{name:20} {length:7,} {medians[length]:10.0f} {ratio:12.2f}x {temporary / 1e6:13,.0f}", flush=True)


if __name__ == "__main__":
    main()
