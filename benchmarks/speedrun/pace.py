"""Measure the training step of two recipes in turn, in one process, so that other load slows both.

    python benchmarks/speedrun/pace.py entries.py:BASELINE entries.py:NAME --corpus DIR --output FILE

Writes JSON: `seconds` of a step in each phase of the entry, `baseline_seconds` of all steps of the baseline's recipe,
and `ratio`, the time of all steps of the entry relative to the baseline with a 95 % interval over the rounds.
"""

import argparse
import contextlib
import functools
import itertools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from scipy import stats

from bert_jax.config import PretrainConfig, read_config, with_vocab_size
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.objectives import Batch, make_objective
from bert_jax.parallel import sharding
from bert_jax.pretraining.data import sequence_rules, training_batches
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, jit_train_step, state_layout

ROUNDS, STEPS = 8, 4  # rounds of all phases of both recipes, steps of each phase in a round


def main() -> None:
    """Measure both recipes and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline")
    parser.add_argument("entry")
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    corpus = open_mixture(args.corpus)
    recipes = [
        read_config(PretrainConfig, path, [f"--config.data.corpus={args.corpus}"])
        for path in (args.baseline, args.entry)
    ]
    phases = [phase_steps(with_vocab_size(recipe, corpus.vocab_size), corpus) for recipe in recipes]
    seconds = [np.zeros((ROUNDS, len(steps))) for steps in phases]
    for index in range(ROUNDS):
        for recipe, steps in enumerate(phases):
            for phase, (_, step) in enumerate(steps):
                began = time.perf_counter()
                for _ in range(STEPS):
                    step()
                seconds[recipe][index, phase] = (time.perf_counter() - began) / STEPS
    totals = [
        rounds @ np.array([num_steps for num_steps, _ in steps]) for rounds, steps in zip(seconds, phases, strict=True)
    ]
    ratios = np.log(totals[1] / totals[0])
    half = stats.t.ppf(0.975, ROUNDS - 1) * ratios.std(ddof=1) / np.sqrt(ROUNDS) if args.entry != args.baseline else 0.0
    medians = [np.median(rounds, axis=0) for rounds in seconds]
    baseline = float(medians[0] @ np.array([num_steps for num_steps, _ in phases[0]]))
    result = {
        "seconds": medians[1].tolist(),
        "baseline_seconds": baseline,
        "ratio": [float(np.exp(ratios.mean() + sign * half)) for sign in (0, -1, 1)],
    }
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))


def phase_steps(config: PretrainConfig, corpus: Mixture) -> list[tuple[int, Callable[[], None]]]:
    """Return, for each phase, the number of its steps and a function that trains one step on the next batch."""
    objective, phases, mesh = make_objective(config), plan_phases(config.train), sharding.make_mesh(config.mesh)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    schedule = functools.partial(learning_rate, config.optimizer, phases)
    batches_of = training_batches(
        corpus, sequence_rules(config, corpus.tokenizer()), phases, sharding.batch_blocks(mesh)
    )
    with jax.set_mesh(mesh):
        _, shardings = state_layout(objective, optimizer, mesh)
        state = jax.jit(functools.partial(init_state, 0, objective, optimizer), out_shardings=shardings)()
        programs = []
        for phase in phases:
            with contextlib.closing(batches_of(phase, phase.begin)) as batches:
                placed = [sharding.place_batch(batch, mesh) for batch in itertools.islice(batches, 4)]
            step = jit_train_step(
                objective.of_phase(phase.index),
                optimizer,
                schedule,
                phase.grad_accum_steps,
                mesh=mesh,
                shardings=shardings,
            )
            state, _ = step(state, placed[0])  # compiles
            programs.append((phase.end - phase.begin, step, itertools.cycle(placed)))

    def run(step: Callable[..., Any], batches: Iterator[Batch]) -> None:
        nonlocal state
        with jax.set_mesh(mesh):
            state, metrics = step(state, next(batches))
        jax.block_until_ready(metrics)

    return [(num_steps, functools.partial(run, step, batches)) for num_steps, step, batches in programs]


if __name__ == "__main__":
    main()
