"""The settings that a resumed run may change because no past step depends on them."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import (
    MUTABLE_AFTER_CURRENT_STEP,
    OptimizerConfig,
    PhaseConfig,
    TrainConfig,
    config_differences,
    section_from_values,
)
from bert_jax.training.schedules import Phase, learning_rate, plan_phases, sequences_of_phase

Values = dict[str, Any]  # a config as `to_json` writes it
# Fields of a phase that only choose steps, batch sizes, micro-batches and learning rates.
PLANNED = (
    *("fraction", "batch_size", "batch_stages", "grad_accum_steps"),
    *("peak_learning_rate", "warmup_fraction", "warmup_steps", "decay_fraction"),
)


def refused_changes(saved: Values, wanted: Values, step: int) -> list[str]:
    """Return a line for each change of settings that a run may not make after `step` steps.

    The number of steps, the phases and the decay may change if the sequences and the learning rates of all past steps
    stay equal. For example, these settings may change before the decay of the schedule `warmup_stable_decay`.
    """
    changed = config_differences(saved, wanted)
    if "phases" not in saved["train"] or "phases" not in wanted["train"]:  # a fine-tuning has no phases
        return changed
    refused = config_differences(saved, wanted, MUTABLE_AFTER_CURRENT_STEP)
    if rescheduled := [line for line in changed if line not in refused]:
        same = num_equal_first_steps(saved, wanted, step)
        if same < step:
            earlier = f"; go back to a checkpoint of step {same:,} or before, in a copy without the later checkpoints"
            refused.append(
                f"{', '.join(rescheduled)}: would have changed step {same + 1:,} of the {step:,} done"
                f"{earlier if same else ''}"
            )
    return refused


def num_equal_first_steps(saved: Values, wanted: Values, steps: int) -> int:
    """Return how many of the first `steps` steps have equal sequences and learning rates in both configs.

    The count ends before the first step that differs.
    """
    trains = [section_from_values(TrainConfig, values["train"], "config.train") for values in (saved, wanted)]
    optimizers = [
        section_from_values(OptimizerConfig, values["optimizer"], "config.optimizer") for values in (saved, wanted)
    ]
    old, new = (plan_phases(train) for train in trains)
    steps = min(steps, old[-1].end, new[-1].end)
    rates = [
        np.asarray(jax.jit(jax.vmap(functools.partial(learning_rate, optimizer, phases)))(jnp.arange(steps)))
        for optimizer, phases in zip(optimizers, (old, new), strict=True)
    ]
    for begin in sorted({phase.begin for phase in old + new if phase.begin < steps}):
        if _sequence_settings_at(trains[0].phases, old, begin) != _sequence_settings_at(trains[1].phases, new, begin):
            steps = begin
            break
    different = np.flatnonzero(rates[0][:steps] != rates[1][:steps])
    return int(different[0]) if different.size else steps


def _sequence_settings_at(
    settings: tuple[PhaseConfig, ...], phases: tuple[Phase, ...], step: int
) -> tuple[object, ...]:
    """Return all settings that determine the sequences and the update of `step`, and of the later steps of its phase.

    The learning rate is left out.
    """
    phase = next(phase for phase in phases if phase.begin <= step < phase.end)
    numbers, values = sequences_of_phase(phases, phase.index), settings[phase.index]
    planned = {name: getattr(PhaseConfig(), name) for name in PLANNED}
    return (
        dataclasses.replace(values, **planned),
        phase.first_sequence(step),
        phase.batch_size,
        values.mask_probability_end is not None and numbers,
        values.has_mixture and numbers.start,
    )
