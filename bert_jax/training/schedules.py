"""Phases of a run, which determine the sequences of each step, and learning-rate schedules."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig, TrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of a run: steps from `begin` to `end` (exclusive) with equal batch size and sequence length.

    Step s reads `batch_size` sequences, from the sequence `first_sequence(s)` on.
    """

    begin: int = 0
    end: int
    begin_sequence: int = 0
    seq_len: int
    batch_size: int
    grad_accum_steps: int = 1
    peak_learning_rate: float | None = None  # None: the schedule of the run continues in this phase
    warmup_steps: int = 0
    index: int = 0  # index of the phase in config.train.phases
    batch_keys: str = "config.train"  # prefix of the config keys that set the batch of the phase, for messages

    def first_sequence(self, step: int) -> int:
        """Return the number of the first sequence of the step `step` (begin <= step <= end)."""
        return self.begin_sequence + (step - self.begin) * self.batch_size


def plan_phases(train: TrainConfig) -> tuple[Phase, ...]:
    """Return the phases of a pretraining run in order; together they have exactly `train.steps` steps.

    The end of each phase is rounded to a whole number of steps. A phase with `fraction=0` is left out.
    """
    phases: list[Phase] = []
    fraction, begin, sequence = 0.0, 0, 0
    for index, settings in train.used_phases.items():
        fraction += settings.fraction
        end = train.steps if index == max(train.used_phases) else round(fraction * train.steps)
        phase = Phase(
            begin=begin,
            end=end,
            begin_sequence=sequence,
            seq_len=settings.seq_len,
            batch_size=settings.batch_size or train.batch_size,
            grad_accum_steps=settings.grad_accum_steps or train.grad_accum_steps,
            peak_learning_rate=settings.peak_learning_rate,
            warmup_steps=warmup_steps(settings.warmup_steps, settings.warmup_fraction, end - begin),
            index=index,
            batch_keys=f"config.train.phases[{index}]",
        )
        phases.append(phase)
        begin, sequence = end, phase.first_sequence(end)
    return tuple(phases)


def warmup_steps(steps: int | None, fraction: float, total: int) -> int:
    """Return the number of warmup steps: `steps` or, if it is None, the rounded fraction of the `total` steps."""
    return round(fraction * total) if steps is None else steps


def learning_rate(settings: OptimizerConfig, phases: tuple[Phase, ...], step: jax.Array) -> jax.Array:
    """Return the learning rate of the update at `step`, float32.

    Args:
        settings: name of the schedule, peak and warmup of the run.
        phases: phases of the run; a phase with a peak learning rate has a separate schedule.
        step: number of the step, int32, counted from 0.
    """
    total = phases[-1].end
    schedule = SCHEDULES[settings.schedule]
    warmup = warmup_steps(settings.warmup_steps, settings.warmup_fraction, total)
    rate = schedule(settings, settings.peak_learning_rate, warmup, total)(step)
    for phase in phases:
        if phase.peak_learning_rate is not None:
            restarted = schedule(settings, phase.peak_learning_rate, phase.warmup_steps, phase.end - phase.begin)
            rate = jnp.where((step >= phase.begin) & (step < phase.end), restarted(step - phase.begin), rate)
    return jnp.asarray(rate, jnp.float32)


def bert_schedule(settings: OptimizerConfig, peak: float, warmup: int, total: int) -> optax.Schedule:
    """Return BERT's schedule: a linear warmup, then a decay that is counted from step 0.

    At the end of the warmup, the rate drops a little, because the decay begins at step 0, as in google-research/bert's
    optimization.py.
    """
    return _warmup_and_decay(settings.decay_power, peak, warmup, total, decay_begin=0)


def electra_schedule(settings: OptimizerConfig, peak: float, warmup: int, total: int) -> optax.Schedule:
    """Return ELECTRA's schedule: the product of a linear warmup and a decay from step 0 (electra's optimization.py)."""
    decay = _warmup_and_decay(settings.decay_power, peak, 0, total, decay_begin=0)
    if not warmup:
        return decay
    return lambda step: decay(step) * jnp.minimum(1.0, step / warmup).astype(jnp.float32)


def linear_schedule(settings: OptimizerConfig, peak: float, warmup: int, total: int) -> optax.Schedule:
    """Return a linear warmup, then a decay from the peak to 0, which is linear if `decay_power` is 1.

    The schedule equals optax.warmup_polynomial_schedule, and get_linear_schedule_with_warmup of transformers.
    """
    return _warmup_and_decay(settings.decay_power, peak, warmup, total, decay_begin=warmup)


def cosine_schedule(settings: OptimizerConfig, peak: float, warmup: int, total: int) -> optax.Schedule:
    """Return a linear warmup, then a decay from the peak to 0 along half a period of the cosine."""
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, max(total, warmup + 1))


def warmup_stable_decay_schedule(settings: OptimizerConfig, peak: float, warmup: int, total: int) -> optax.Schedule:
    """Return a linear warmup, a constant peak, then a decay over the last `decay_fraction` of the steps.

    The decay is peak * (1 - t^decay_power), where t rises from 0 to 1. A power of 1 is a linear decay, and a power of
    0.5 is the decay 1 - sqrt(t) of Haegele et al. 2024. Before the decay, the rate does not depend on the number of
    steps, so a run may be made longer or shorter until the decay begins (training/resuming.py).
    """
    begin = max(warmup, total - round(settings.decay_fraction * total))

    def schedule(step: jax.Array) -> jax.Array:
        done = jnp.clip((step - begin) / max(1, total - begin), 0.0, 1.0)
        after = jnp.where(step < begin, peak, peak * (1.0 - done**settings.decay_power))
        return jnp.where(step < warmup, peak * step / max(1, warmup), after).astype(jnp.float32)

    return schedule


# (settings, peak, warmup steps, total steps) -> optax schedule. `config.optimizer.schedule` chooses the row.
SCHEDULES: dict[str, Callable[[OptimizerConfig, float, int, int], optax.Schedule]] = {
    "bert": bert_schedule,
    "electra": electra_schedule,
    "linear": linear_schedule,
    "cosine": cosine_schedule,
    "warmup_stable_decay": warmup_stable_decay_schedule,
}


def _warmup_and_decay(power: float, peak: float, warmup: int, total: int, decay_begin: int) -> optax.Schedule:
    """Return a linear warmup, then the decay peak * (steps left / steps from `decay_begin` to the end)^power."""

    def schedule(step: jax.Array) -> jax.Array:
        left = (total - step) / max(1, total - decay_begin)
        decayed = peak * jnp.clip(left, 0.0, 1.0) ** power
        return jnp.where(step < warmup, peak * step / max(1, warmup), decayed).astype(jnp.float32)

    return schedule
