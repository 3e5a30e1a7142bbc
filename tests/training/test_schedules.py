"""Phases and learning rates against the published rules, computed here in plain Python."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import optax
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.batches.ramp import ramp_stages
from bert_jax.errors import UserError
from bert_jax.objectives import make_objective
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.schedules import (
    learning_rate,
    phase_after_step,
    plan_phases,
    sequences_of_phase,
    steps_of_phase,
)
from bert_jax.training.step import check_divisible_by_mesh


def run(steps: int, schedule: str, warmup: float, power: float = 1.0, **train: object) -> c.PretrainConfig:
    config = c.pretrain_config()
    config.train.update(steps=steps, **train)
    config.optimizer.update(schedule=schedule, warmup_fraction=warmup, decay_power=power, peak_learning_rate=2e-3)
    return c.resolve(c.PretrainConfig, config)


def rates(config: c.PretrainConfig) -> np.ndarray:
    return np.array(
        [
            learning_rate(config.optimizer, plan_phases(config.train), np.int32(step))
            for step in range(config.train.steps)
        ]
    )


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_bert_schedule_counts_decay_from_step_zero(power: float) -> None:
    expected = [2e-3 * s / 10 if s < 10 else 2e-3 * (1 - s / 100) ** power for s in range(100)]
    np.testing.assert_allclose(rates(run(100, "bert", 0.1, power)), expected, rtol=1e-6)
    assert rates(run(100, "bert", 0.1))[0] == 0.0


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_electra_s_schedule_multiplies_warmup_and_decay(power: float) -> None:
    expected = [2e-3 * min(1, s / 10) * (1 - s / 100) ** power for s in range(100)]
    np.testing.assert_allclose(rates(run(100, "electra", 0.1, power)), expected, rtol=1e-6)
    without_warmup = [2e-3 * (1 - s / 100) ** power for s in range(100)]
    np.testing.assert_allclose(rates(run(100, "electra", 0.0, power)), without_warmup, rtol=1e-6)


def test_linear_schedule_is_optax_and_transformers() -> None:
    ours = rates(run(100, "linear", 0.1))
    chain = optax.join_schedules(
        [optax.linear_schedule(0.0, 2e-3, 10), optax.linear_schedule(2e-3, 0.0, 90)], boundaries=[10]
    )
    np.testing.assert_allclose(ours, [chain(step) for step in range(100)], rtol=1e-5, atol=1e-10)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-3)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 10, 100)
    theirs = []
    for _ in range(100):
        theirs.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_warmup_stable_decay_is_the_published_rule(power: float) -> None:
    """Haegele et al. 2024: the rate is the peak until the decay, then peak * (1 - t), or peak * (1 - sqrt(t))."""
    config = run(100, "warmup_stable_decay", 0.1, power)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, decay_fraction=0.3))
    expected = [2e-3 * s / 10 if s < 10 else 2e-3 * (1 - (max(0, s - 70) / 30) ** power) for s in range(100)]
    np.testing.assert_allclose(rates(config), expected, rtol=1e-5)
    assert len(set(rates(config)[10:71].tolist())) == 1


def test_a_decay_as_long_as_the_run_begins_after_the_warmup() -> None:
    config = run(100, "warmup_stable_decay", 0.1)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, decay_fraction=1.0))
    np.testing.assert_allclose(rates(config), rates(run(100, "linear", 0.1)), rtol=1e-5)


def test_a_phase_with_its_own_peak_has_its_own_schedule() -> None:
    phases = c.phases(
        {"seq_len": 128, "fraction": 0.6, "peak_learning_rate": 6e-3, "warmup_fraction": 0.5},
        {"seq_len": 512, "fraction": 0.4, "peak_learning_rate": 4e-3, "warmup_fraction": 0.25},
    )
    got = rates(run(20, "bert", 0.0, 0.5, phases=phases))
    first = [6e-3 * s / 6 if s < 6 else 6e-3 * (1 - s / 12) ** 0.5 for s in range(12)]
    second = [4e-3 * s / 2 if s < 2 else 4e-3 * (1 - s / 8) ** 0.5 for s in range(8)]
    np.testing.assert_allclose(got, first + second, rtol=1e-6)


def test_phases_cover_every_step_and_sequence_once() -> None:
    phases = c.phases(
        {"fraction": 1 / 3}, {"fraction": 1 / 3, "batch_size": 64}, {"fraction": 1 / 3, "grad_accum_steps": 4}
    )
    made = plan_phases(run(100, "bert", 0.1, phases=phases, batch_size=32).train)
    assert [p.begin for p in made] + [made[-1].end] == [0, 33, 67, 100]
    assert [p.begin_sequence for p in made] == [0, 33 * 32, 33 * 32 + 34 * 64]
    assert all(left.first_sequence(left.end) == right.begin_sequence for left, right in itertools.pairwise(made))
    assert [(p.batch_size, p.grad_accum_steps) for p in made] == [(32, 1), (64, 1), (32, 4)]


def test_a_growing_batch_reads_every_sequence_once_and_keeps_the_schedule_of_its_phase() -> None:
    """Step by step: the batch of step s of 20 is 1/4, 2/4, ... of 30, rounded up; the rate does not see the stages."""
    growing = {"fraction": 0.2, "batch_size": 30, "peak_learning_rate": 4e-3, "warmup_fraction": 0.25}
    config = run(100, "bert", 0.0, phases=c.phases({"fraction": 0.8}, growing | {"batch_stages": 4}), batch_size=8)
    made = plan_phases(config.train)
    sizes = [8] * 80 + [8] * 5 + [15] * 5 + [23] * 5 + [30] * 5
    numbers = np.cumsum([0, *sizes])
    for step, size in enumerate(sizes):
        (phase,) = (phase for phase in made if phase.begin <= step < phase.end)
        assert (phase.batch_size, phase.first_sequence(step)) == (size, numbers[step])
        assert phase.index == int(step >= 80)
        assert phase_after_step(made, step + 1) == phase
    assert (steps_of_phase(made, 1), sequences_of_phase(made, 1)) == (range(80, 100), range(640, numbers[-1]))
    whole = run(100, "bert", 0.0, phases=c.phases({"fraction": 0.8}, growing), batch_size=8)
    np.testing.assert_array_equal(rates(config), rates(whole))


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 7, 100])
@pytest.mark.parametrize("num_stages", [1, 2, 3, 6, 11])
@pytest.mark.parametrize("batch_size", [1, 5, 66, 4_608])
def test_the_stages_of_a_batch(batch_size: int, num_stages: int, num_steps: int) -> None:
    """No step is lost, the sizes are the fractions of the batch, and no stage is two steps longer than another."""
    stages = ramp_stages(batch_size, num_stages, num_steps)
    assert sum(stage.num_steps for stage in stages) == num_steps
    sizes = [stage.batch_size for stage in stages]
    fractions = [math.ceil(batch_size * Fraction(index, num_stages)) for index in range(1, num_stages + 1)]
    assert sizes == sorted(sizes)
    assert set(sizes) <= set(fractions)
    steps = [stage.num_steps for stage in stages]
    assert max(steps) - min(steps) <= 1
    if num_steps >= num_stages:
        assert sizes == fractions


def test_a_phase_has_its_own_decay() -> None:
    """The first phase keeps its peak, the second decays in its last half."""
    made = c.phases(
        {"fraction": 0.5, "peak_learning_rate": 4e-3, "decay_fraction": 0.0},
        {"fraction": 0.5, "peak_learning_rate": 1e-3, "decay_fraction": 0.5},
    )
    expected = [4e-3] * 20 + [1e-3 * (1 - max(0, step - 10) / 10) for step in range(20)]
    np.testing.assert_allclose(rates(run(40, "warmup_stable_decay", 0.0, phases=made)), expected, rtol=1e-5)


def test_micro_batches_must_divide() -> None:
    config = run(10, "bert", 0.1, batch_size=10)
    train = dataclasses.replace(config.train, grad_accum_steps=4)
    config = dataclasses.replace(config, train=train, model=dataclasses.replace(config.model, vocab_size=100))
    with pytest.raises(UserError, match="10 sequences does not divide into 4"):
        check_divisible_by_mesh(make_mesh(config.mesh), make_objective(config), plan_phases(config.train))


def test_the_keys_of_a_phase_set_its_batch() -> None:
    """Also in a recipe whose phases have values of their own, of which those of config.train change nothing."""
    recipe = "bert_large_lamb"
    config = c.read_config(c.PretrainConfig, recipe, [])
    for phase in plan_phases(config.train):
        words = [f"--{phase.batch_keys}.grad_accum_steps=64"]
        changed = c.read_config(c.PretrainConfig, recipe, words)
        assert plan_phases(changed.train)[phase.index].grad_accum_steps == 64
