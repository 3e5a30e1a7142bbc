"""Phases of a run, which determine the sequences of each step, and learning-rate schedules."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from bert_jax.batches.ramp import ramp_stages
from bert_jax.config import EncoderConfig, OptimizerConfig, PhaseConfig, TrainConfig, section_of_phase


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of a run, or a stage of a phase whose batch grows: steps from `begin` to `end` (exclusive).

    All steps have equal batch size and sequence length. The stages of a phase have equal `index`. Step s reads
    `batch_size` sequences, from the sequence `first_sequence(s)` on.
    """

    begin: int = 0
    end: int
    begin_sequence: int = 0
    seq_len: int
    batch_size: int
    grad_accum_steps: int = 1
    peak_learning_rate: float | None = None  # None: the schedule of the run continues in this phase
    warmup_steps: int = 0
    decay_fraction: float | None = None  # decay fraction of this phase's schedule; None: the value of the run
    weight_decay: float | None = None  # None: the value of the run
    index: int = 0  # index of the phase in config.train.phases
    batch_keys: str = "config.train"  # prefix of the config keys that set the batch of the phase, for messages

    def first_sequence(self, step: int) -> int:
        """Return the number of the first sequence of the step `step` (begin <= step <= end)."""
        return self.begin_sequence + (step - self.begin) * self.batch_size


def plan_phases(train: TrainConfig) -> tuple[Phase, ...]:
    """Return the phases of a pretraining run in order; together they have exactly `train.steps` steps.

    The end of each phase is rounded to a whole number of steps. A phase with `fraction=0` is left out. A phase whose
    batch grows is returned as its stages.
    """
    phases: list[Phase] = []
    fraction, begin, sequence = 0.0, 0, 0
    for index, settings in train.used_phases.items():
        fraction += settings.fraction
        end = train.steps if index == max(train.used_phases) else round(fraction * train.steps)
        batches, num_steps = section_of_phase(train, settings), end - begin
        for stage in ramp_stages(batches.batch_size, settings.batch_stages, num_steps):
            phase = Phase(
                begin=begin,
                end=begin + stage.num_steps,
                begin_sequence=sequence,
                seq_len=settings.seq_len,
                batch_size=stage.batch_size,
                grad_accum_steps=batches.grad_accum_steps,
                peak_learning_rate=settings.peak_learning_rate,
                warmup_steps=warmup_steps(settings.warmup_steps, settings.warmup_fraction, num_steps),
                decay_fraction=settings.decay_fraction,
                weight_decay=settings.weight_decay,
                index=index,
                batch_keys=f"config.train.phases[{index}]",
            )
            phases.append(phase)
            begin, sequence = phase.end, phase.first_sequence(phase.end)
    return tuple(phases)


def phase_after_step(phases: tuple[Phase, ...], step: int) -> Phase:
    """Return the phase of the last finished step if `step` steps are finished; for 0 steps, return the first phase."""
    return next((phase for phase in phases if step <= phase.end), phases[-1])


def phase_settings_after_step(train: TrainConfig, step: int) -> PhaseConfig:
    """Return the item of `train.phases` whose steps end with `step`; for step 0, the first used item."""
    return train.phases[phase_after_step(plan_phases(train), step).index]


def model_after_step(model: EncoderConfig, train: TrainConfig, step: int) -> EncoderConfig:
    """Return the architecture of the checkpoint of `step`: the model of the run with the values of its phase."""
    return section_of_phase(model, phase_settings_after_step(train, step))


def steps_of_phase(phases: tuple[Phase, ...], index: int) -> range:
    """Return the steps of all stages of the phase `index` of `config.train.phases`."""
    stages = [phase for phase in phases if phase.index == index]
    return range(stages[0].begin, stages[-1].end)


def sequences_of_phase(phases: tuple[Phase, ...], index: int) -> range:
    """Return the sequence numbers of all stages of the phase `index` of `config.train.phases`."""
    stages = [phase for phase in phases if phase.index == index]
    return range(stages[0].begin_sequence, stages[-1].first_sequence(stages[-1].end))


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
            steps, of_phase = steps_of_phase(phases, phase.index), settings
            if phase.decay_fraction is not None:
                of_phase = dataclasses.replace(settings, decay_fraction=phase.decay_fraction)
            restarted = schedule(of_phase, phase.peak_learning_rate, phase.warmup_steps, len(steps))
            rate = jnp.where((step >= phase.begin) & (step < phase.end), restarted(step - steps.start), rate)
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
