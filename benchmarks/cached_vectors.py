"""Measure memory and time of training sentence vectors with cached gradients, in micro-batches of 64 pairs.

    python benchmarks/cached_vectors.py --batches 64 512 4096

The model is two layers of width 128 (BERT-tiny), with dropout and AdamW. The memory is the compiler's count of
arguments, results and temporary arrays. The batch sizes take turns, so that other load affects all of them, and the
time is the shortest CPU time of a step.
"""

import argparse
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, OptimizerConfig, TaskConfig
from bert_jax.models import Head, make_model
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.step import init_state, train_step

ENCODER = EncoderConfig(vocab_size=8_192, hidden_size=128, num_layers=2, num_heads=2, mlp_size=512, max_positions=128)


def constant_rate(step: jax.Array) -> jax.Array:
    """Return the learning rate of every step."""
    return jnp.full((), 1e-3)


def pairs(batch_size: int, length: int) -> dict[str, np.ndarray]:
    """Return random pairs of texts of `length` tokens."""
    rng = np.random.default_rng(0)
    shape = (batch_size, 2, length)
    return {
        "input_ids": rng.integers(5, ENCODER.vocab_size, shape, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "attention_mask": np.ones(shape, np.int32),
        "text_ids": np.arange(2 * batch_size, dtype=np.int32).reshape(batch_size, 2),
        "positives": np.ones(batch_size, np.float32),
        "example_weights": np.ones(batch_size, np.float32),
    }


def main() -> None:
    """Print a line for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 512, 4_096])
    parser.add_argument("--micro_batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    model = make_model(ENCODER, ComputeConfig(), (Head("sentence_embedding"),))
    objective = make_task_objective(model, "similarity", False, TaskConfig())
    optimizer = make_optimizer(OptimizerConfig(), objective.logical_axes, objective.sections)
    initial: Any = jax.jit(lambda: init_state(0, objective, optimizer))()
    programs, data, rows = {}, {}, {}
    for batch_size in args.batches:
        steps = max(1, batch_size // args.micro_batch)
        data[batch_size] = pairs(batch_size, args.length)
        step = functools.partial(train_step, objective, optimizer, constant_rate, steps)
        programs[batch_size] = jax.jit(step).lower(initial, data[batch_size]).compile()
        sizes: Any = programs[batch_size].memory_analysis()
        size = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
        rows[batch_size] = steps, size
    times: dict[int, list[float]] = {batch_size: [] for batch_size in args.batches}
    for _ in range(args.rounds + 1):
        for batch_size in args.batches:
            # As many steps of a small batch as of a micro-batch, so that all rows are measured over equal times.
            repeats = max(1, max(args.batches) // batch_size // 8)
            start, state = time.process_time(), initial
            for _ in range(repeats):
                state, _ = jax.block_until_ready(programs[batch_size](state, data[batch_size]))
            times[batch_size].append((time.process_time() - start) / repeats / batch_size)
    first_size, first_time = rows[args.batches[0]][1], min(times[args.batches[0]][1:])
    for batch_size, (steps, size) in rows.items():
        seconds = min(times[batch_size][1:])
        print(
            f"batch {batch_size:6,} in {steps:3} micro-batches: {size / 2**20:7.1f} MiB ({size / first_size:.2f} x), "
            f"{1e6 * seconds:8.1f} us of CPU per pair ({seconds / first_time:.2f} x)"
        )


if __name__ == "__main__":
    main()
