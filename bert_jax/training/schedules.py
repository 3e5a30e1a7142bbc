"""A run's phases as step and row ranges: which step reads which rows, at what length and learning rate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import Config, OptimizerConfig
from bert_jax.errors import UserError


class Phase(NamedTuple):
    """Steps `begin` to `end` (exclusive); step s reads `batch_size` rows from `first_row(s)`."""

    begin: int
    end: int
    begin_row: int
    seq_len: int
    batch_size: int
    grad_accum_steps: int
    peak_learning_rate: float  # 0: the phase goes on with the schedule of the run
    warmup_steps: int

    def first_row(self, step: int) -> int:
        """The row that `step` (begin <= step <= end) starts with: the run's cursor before that step."""
        return self.begin_row + (step - self.begin) * self.batch_size


def plan(config: Config) -> tuple[Phase, ...]:
    """The phases of a run, in order; together they cover `train.steps` exactly.

    A share is rounded to whole steps at its end. Raises UserError where a batch does not divide into its micro-batches.
    """
    train = config.train
    phases: list[Phase] = []
    share, begin, row = 0.0, 0, 0
    for number, phase in enumerate(train.phases):
        share += phase.fraction
        end = train.steps if number == len(train.phases) - 1 else round(share * train.steps)
        batch_size = phase.batch_size or train.batch_size
        grad_accum_steps = phase.grad_accum_steps or train.grad_accum_steps
        if batch_size % grad_accum_steps:
            raise UserError(
                f"a batch of {batch_size} rows does not divide into {grad_accum_steps} micro-batches; "
                "change config.train.batch_size or config.train.grad_accum_steps"
            )
        warmup = round(phase.warmup_fraction * (end - begin))
        phases.append(
            Phase(begin, end, row, phase.seq_len, batch_size, grad_accum_steps, phase.peak_learning_rate, warmup)
        )
        begin, row = end, row + (end - begin) * batch_size
    return tuple(phases)


def learning_rate(config: Config, step: jax.Array) -> jax.Array:
    """float32 learning rate of the update at `step` (int32, from 0); a phase with its own peak has its own schedule."""
    optimizer = config.optimizer
    warmup = round(optimizer.warmup_fraction * config.train.steps)
    rate = warmup_and_decay(optimizer, step, optimizer.peak_learning_rate, warmup, config.train.steps)
    for phase in plan(config):
        if phase.peak_learning_rate:
            own = warmup_and_decay(
                optimizer, step - phase.begin, phase.peak_learning_rate, phase.warmup_steps, phase.end - phase.begin
            )
            rate = jnp.where((step >= phase.begin) & (step < phase.end), own, rate)
    return rate


def warmup_and_decay(config: OptimizerConfig, step: jax.Array, peak: float, warmup: int, total: int) -> jax.Array:
    """Linear warmup from 0 to `peak` over `warmup` steps, then decay to 0 at `total`; float32.

    'bert': as in google-research/bert's optimization.py, the decay counts from step 0 and warmup replaces its start,
    so that the rate drops a little where warmup ends. 'optax': as in optax.warmup_polynomial_schedule and in
    transformers' get_linear_schedule_with_warmup, the decay starts at the peak.
    """
    begin = {"bert": 0, "optax": warmup}[config.schedule]
    left = (total - step) / max(1, total - begin)
    decayed = peak * jnp.clip(left, 0.0, 1.0) ** config.decay_power
    return jnp.where(step < warmup, peak * step / max(1, warmup), decayed).astype(jnp.float32)
