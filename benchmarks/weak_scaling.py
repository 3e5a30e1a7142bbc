"""Measure weak scaling on virtual CPU devices: compare 8 devices, on 8 times the sequences, with one device.

    python benchmarks/weak_scaling.py [--size mini] [--batch_size 8] [--seq_len 128] [--rounds 5] [--mesh 8,1,1]

Prints t(8) / (8 t(1)), where t(n) is the median time of a step of n devices in alternating processes. The ratio shows
the overhead of the mesh, because all devices share the cores of this machine. The step of one device also uses all
cores; a ratio below 1 only means that eight devices use the cores better.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any


def measure(size: str, batch_size: int, seq_len: int, rounds: int, mesh: list[int]) -> None:
    """Print the median seconds of a step on the mesh; runs in a separate process."""
    import jax
    import numpy as np

    from bert_jax import config as c
    from bert_jax.batches.pipeline import batch_shapes
    from bert_jax.config.presets import architecture
    from bert_jax.objectives import make_objective
    from bert_jax.parallel.sharding import make_mesh, place_batch
    from bert_jax.training.optimizers import make_optimizer
    from bert_jax.training.schedules import learning_rate, plan_phases
    from bert_jax.training.step import check_divisible_by_mesh, init_state, jit_train_step, state_layout

    made = c.pretrain_config()
    made.model.update(architecture(size), vocab_size=30_522)
    made.mesh.data, made.mesh.fsdp, made.mesh.tensor = mesh
    made.train.batch_size = batch_size * len(jax.devices())
    made.evaluate.batch_size = made.train.batch_size
    made.train.phases = c.phases({"seq_len": seq_len})
    config = c.resolve(c.PretrainConfig, made)
    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    phases = plan_phases(config.train)
    device_mesh = make_mesh(config.mesh)
    check_divisible_by_mesh(device_mesh, objective, phases, config.evaluate.batch_size)
    rng = np.random.default_rng(0)
    with jax.set_mesh(device_mesh):
        _, shardings = state_layout(objective, optimizer, device_mesh)
        state = jax.jit(lambda: init_state(config.seed, objective, optimizer), out_shardings=shardings)()
        shapes = batch_shapes(made.train.batch_size, seq_len, config.data)
        numbers: Any = {name: rng.integers(0, 2, shape).astype(dtype) for name, (shape, dtype) in shapes.items()}
        batch = place_batch(numbers, device_mesh)
        schedule = functools.partial(learning_rate, config.optimizer, phases)
        jitted = jit_train_step(
            objective, optimizer, schedule, phases[0].grad_accum_steps, mesh=device_mesh, shardings=shardings
        )
        step = jitted.lower(state, batch).compile()
        times = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            state, metrics = step(state, batch)
            jax.block_until_ready((state, metrics))
            times.append(time.perf_counter() - began)
    print(json.dumps(statistics.median(times[1:])))


def main() -> None:
    """Start processes with 8 devices and with one device in turn, and print the ratio of their step times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="mini")
    parser.add_argument("--batch_size", type=int, default=8, help="sequences per device")
    parser.add_argument("--seq_len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5, help="steps per process")
    parser.add_argument("--turns", type=int, default=3, help="processes of each kind")
    parser.add_argument("--mesh", default="8,1,1", help="data,fsdp,tensor of the eight devices")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        mesh = [int(size) for size in options.only.split(",")]
        measure(options.size, options.batch_size, options.seq_len, options.rounds, mesh)
        return
    seconds: dict[str, list[float]] = {"1,1,1": [], options.mesh: []}
    for _ in range(options.turns):
        for sizes, times in seconds.items():
            devices = 8 if sizes == options.mesh else 1
            # NPROC sets the size of XLA's thread pool: collectives that wait must not take all threads.
            env = os.environ | {
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
                "JAX_PLATFORMS": "cpu",
                "NPROC": "64",
            }
            done = subprocess.run(
                [sys.executable, *sys.argv, "--only", sizes], env=env, capture_output=True, text=True, check=True
            )
            times.append(json.loads(done.stdout))
    alone, all_eight = (statistics.median(times) for times in seconds.values())
    print(f"{options.size}, {options.batch_size} x {options.seq_len} tokens per device, mesh {options.mesh}")
    print(
        f"t(1) {alone * 1e3:,.0f} ms, t(8) {all_eight * 1e3:,.0f} ms, t(8) / (8 t(1)) = {all_eight / (8 * alone):.2f}"
    )


if __name__ == "__main__":
    main()
