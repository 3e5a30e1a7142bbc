"""The useful FLOP/s of the devices of a run, measured with real training steps on the corpus of the run."""

import contextlib
import functools
import math
import statistics
import time
from collections.abc import Generator

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config import OptimizerConfig
from bert_jax.objectives.base import Batch, Objective
from bert_jax.parallel import sharding
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import init_state, jit_train_step, state_layout

SECONDS = 4.0  # approximate duration of the timed steps
MIN_STEPS, MAX_STEPS = 3, 50  # minimum and maximum number of timed steps


def measure_flops_per_second(
    objective: Objective,
    settings: OptimizerConfig,
    phases: tuple[Phase, ...],
    mesh: jax.sharding.Mesh,
    batches: Generator[Batch, None, None],
    *,
    seed: int,
    deterministic: bool,
) -> float:
    """Measure the FLOP/s of the model's matrix products; return the median over training steps of the first phase.

    Every process of a run must call this function. The trained state is discarded.

    Args:
        objective: the objective of the run.
        settings: the settings of the optimizer.
        phases: the phases of the run.
        mesh: the mesh of the run.
        batches: the batches of the first phase for this host; this function closes them.
        seed: the seed of the parameters.
        deterministic: as in `config.compute`.
    """
    phase, schedule = phases[0], functools.partial(learning_rate, settings, phases)
    optimizer = make_optimizer(settings, objective.logical_axes, objective.sections, phase.weight_decay)
    with jax.set_mesh(mesh), contextlib.closing(batches):
        _, shardings = state_layout(objective, optimizer, mesh)
        state = jax.jit(functools.partial(init_state, seed, objective, optimizer), out_shardings=shardings)()
        step = jit_train_step(
            objective.of_phase(phase.index),
            optimizer,
            schedule,
            phase.grad_accum_steps,
            mesh=mesh,
            shardings=shardings,
            deterministic=deterministic,
        )
        compiled = step.lower(state, sharding.place_batch(next(batches), mesh)).compile()
        seconds, count = list[float](), MIN_STEPS
        while len(seconds) <= count:
            began = time.perf_counter()
            state, metrics = compiled(state, sharding.place_batch(next(batches), mesh))
            jax.block_until_ready(metrics)
            seconds.append(time.perf_counter() - began)
            if len(seconds) == 2:  # process 0 chooses the number of steps of all processes
                wanted = min(max(MIN_STEPS, math.ceil(SECONDS / seconds[1])), MAX_STEPS)
                count = int(multihost_utils.broadcast_one_to_all(np.int32(wanted)))
    flops = phase.batch_size * objective.of_phase(phase.index).flops(phase.seq_len, phase.index)
    return flops / statistics.median(seconds[1:])  # the first step, which waits for the batches, is left out
