"""Compare fine-tuning of an adapter with fine-tuning of all weights: trained weights, optimizer state, step time.

    python benchmarks/adapter_cost.py [--size small] [--batch 16] [--length 128] [--rounds 5]

The model has random weights and a head of two classes, and is trained with AdamW in float32. The programs take turns,
one step each, so that other load affects all of them. The time of a step is the shortest over the rounds; the CPU time
is measured in the same step.
"""

import argparse
import dataclasses
import functools
import os
import platform
import time
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from bert_jax.config import AdapterConfig, ComputeConfig, EncoderConfig, FinetuneConfig, MeshConfig
from bert_jax.interop.huggingface.peft import make_adapter
from bert_jax.models import PRESETS, make_model
from bert_jax.models.adapters import with_adapter
from bert_jax.objectives import Objective
from bert_jax.objectives.frozen_encoder import with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import init_state, jit_train_step, state_layout

KIND = "sequence_classification"
ROWS = {
    "all weights": AdapterConfig(),
    "rank 8, queries and values": AdapterConfig(rank=8),
    "rank 8, all linear maps": AdapterConfig(rank=8, targets="all-linear"),
}


def objective_of(config: EncoderConfig, settings: AdapterConfig) -> Objective:
    """Return the objective of a task with two labels, with the adapter that the settings name."""
    model, adapter = make_model(config, ComputeConfig(), (task_head(KIND, 2),)), make_adapter(config, settings)
    objective = make_task_objective(with_adapter(model, adapter) if adapter else model, KIND, freeze_encoder=False)
    return with_frozen_encoder(objective, config.num_layers) if adapter else objective


def num_bytes(tree: Any) -> int:
    """Return the number of bytes of all arrays in a tree."""
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def main() -> None:
    """Measure each row of the comparison, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", choices=PRESETS)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    config = dataclasses.replace(PRESETS[arguments.size], vocab_size=PRESETS[arguments.size].vocab_size or 30_522)
    shape, rng, run = (arguments.batch, arguments.length), np.random.default_rng(0), FinetuneConfig()
    batch = {
        "input_ids": rng.integers(0, config.vocab_size, shape, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "attention_mask": np.ones(shape, np.int32),
        "labels": rng.integers(0, 2, shape[:1], np.int32),
        "example_weights": np.ones(shape[:1], np.float32),
    }
    mesh, phase = make_mesh(MeshConfig()), Phase(end=1000, seq_len=arguments.length, batch_size=arguments.batch)
    steps, states, seconds = {}, {}, {name: list[tuple[float, float]]() for name in ROWS}
    with jax.set_mesh(mesh):
        for name, settings in ROWS.items():
            objective = objective_of(config, settings)
            optimizer = make_optimizer(run.optimizer, objective.logical_axes, objective.sections)
            _, shardings = state_layout(objective, optimizer, mesh)
            schedule = functools.partial(learning_rate, run.optimizer, (phase,))
            state = jax.jit(functools.partial(init_state, 0, objective, optimizer))()
            state = state._replace(frozen=jax.jit(objective.init_frozen)(jax.random.key(1)))
            steps[name] = jit_train_step(objective, optimizer, schedule, 1, mesh=mesh, shardings=shardings)
            states[name], _ = jax.block_until_ready(steps[name](jax.device_put(state, shardings), batch))
        for _ in range(arguments.rounds):
            for name, step in steps.items():
                began, cpu = time.perf_counter(), time.process_time()
                states[name], _ = jax.block_until_ready(step(states[name], batch))
                seconds[name].append((time.perf_counter() - began, time.process_time() - cpu))
    print(f"{arguments.size}, {shape[0]} x {shape[1]} tokens, {os.cpu_count()} cores, jax {version('jax')}")
    print(f"{platform.processor() or platform.machine()}")
    print("| trained | weights | optimizer state | step (of the processor) |")
    print("| --- | --- | --- | --- |")
    for name, state in states.items():
        weights = sum(x.size for x in jax.tree.leaves(state.params))
        wall, cpu = min(seconds[name])
        print(f"| {name} | {weights:,} | {num_bytes(state.opt_state) / 1e6:,.1f} MB | {wall:.2f} s ({cpu:.2f} s) |")


if __name__ == "__main__":
    main()
