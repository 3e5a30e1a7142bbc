"""What a resumed run may change: nothing that its steps so far depended on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import MUTABLE_AFTER_CURRENT_STEP, Config, PretrainConfig, differences
from bert_jax.training.schedules import Phase, learning_rate, plan_phases


def refused_changes(saved: Config, wanted: Config, step: int) -> list[str]:
    """Return one line for each change that a run after `step` steps may not make.

    The number of steps, the phases and the decay may change as long as every step so far reads the same sequences at
    the same learning rate, such as in the stable stretch of `warmup_stable_decay`.
    """
    changed = differences(saved, wanted)
    if not isinstance(saved, PretrainConfig) or not isinstance(wanted, PretrainConfig):
        return changed
    others = differences(saved, wanted, MUTABLE_AFTER_CURRENT_STEP)
    plan = [line for line in changed if line not in others]
    same = same_steps(saved, wanted, step) if plan else step
    if same < step:
        others += [
            f"{', '.join(plan)}: would have changed step {same + 1:,} of the {step:,} done; go back to a checkpoint of "
            f"step {same:,} or before, in a copy of the directory without the later ones"
        ]
    return others


def same_steps(saved: PretrainConfig, wanted: PretrainConfig, steps: int) -> int:
    """Return how many of the first `steps` steps read the same sequences at the same learning rate in both configs."""
    old, new = plan_phases(saved.train), plan_phases(wanted.train)
    steps = min(steps, old[-1].end, new[-1].end)
    numbers = jnp.arange(steps)
    rates = [
        np.asarray(jax.jit(jax.vmap(functools.partial(learning_rate, config.optimizer, phases)))(numbers))
        for config, phases in ((saved, old), (wanted, new))
    ]
    for begin in sorted({phase.begin for phase in old + new if phase.begin < steps}):
        if _reads(saved, old, begin) != _reads(wanted, new, begin):
            steps = begin
            break
    different = np.flatnonzero(rates[0][:steps] != rates[1][:steps])
    return int(different[0]) if different.size else steps


def _reads(config: PretrainConfig, phases: tuple[Phase, ...], step: int) -> tuple[object, ...]:
    """All that the sequences of `step`, and of those after it in the same phase, follow from."""
    phase = next(phase for phase in phases if phase.begin <= step < phase.end)
    settings = config.train.phases[phase.number]
    masks = (settings.mask_probability, settings.mask_token_fraction, settings.random_token_fraction)
    changing = settings.mask_probability_end is not None and (settings.mask_probability_end, phase.begin, phase.end)
    return (phase.first_sequence(step), phase.seq_len, phase.batch_size, phase.grad_accum_steps, *masks, changing)
