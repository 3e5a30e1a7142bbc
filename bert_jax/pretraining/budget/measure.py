"""Useful FLOP/s of the devices present, from real training steps on the run's own corpus."""

import contextlib
import functools
import math
import statistics
import time

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config import PretrainConfig
from bert_jax.corpus.mixture import Mixture
from bert_jax.objectives import make_objective
from bert_jax.parallel import sharding
from bert_jax.pretraining.data import corpus_data
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_layout, init_state, jit_step, state_shardings

SECONDS = 4.0  # of timed steps
MIN_STEPS, MAX_STEPS = 3, 50


def measure(config: PretrainConfig, corpus: Mixture) -> float:
    """Return FLOPs of the model's matrix products per second, the median over steps of the first phase.

    Every process of a run calls it. Its state is thrown away.

    Raises:
        UserError: devices, model and batch do not fit each other.
    """
    objective, phases = make_objective(config), plan_phases(config.train)
    mesh, phase = check_layout(config, objective, phases), phases[0]
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    batches = corpus_data(config, corpus, sharding.batch_blocks(mesh)).batches(phase, 0)
    with jax.set_mesh(mesh), contextlib.closing(batches):
        _, shardings = state_shardings(config, objective, optimizer, mesh)
        init = functools.partial(init_state, config, objective, optimizer)
        state = jax.jit(init, out_shardings=shardings)()
        step = jit_step(config, objective, optimizer, phases, phase, mesh, shardings)
        compiled = step.lower(state, sharding.place_batch(next(batches), mesh)).compile()
        seconds, count = list[float](), MIN_STEPS
        while len(seconds) <= count:
            began = time.perf_counter()
            state, metrics = compiled(state, sharding.place_batch(next(batches), mesh))
            jax.block_until_ready(metrics)
            seconds.append(time.perf_counter() - began)
            if len(seconds) == 2:  # all processes must take the same number of steps: as many as the first one says
                asked = min(max(MIN_STEPS, math.ceil(SECONDS / seconds[1])), MAX_STEPS)
                count = int(multihost_utils.broadcast_one_to_all(np.int32(asked)))
    flops = phase.batch_size * objective.flops(phase.seq_len, phase.number)
    return flops / statistics.median(seconds[1:])  # without the first, which waits for the batches
