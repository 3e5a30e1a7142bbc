"""Fields that do not fit each other, or that a run would not read.

`check_pretraining` looks at values, whoever set them. `check_overrides` looks at the command line alone: a recipe may
set a value that its phases replace, but a user who sets it expects an effect.
"""

import importlib
import math
import typing
from collections.abc import Collection

from bert_jax.config.schema import Config, DataConfig, FinetuneConfig, OptimizerConfig, PhaseConfig, PretrainConfig
from bert_jax.errors import UserError

# Key of a run -> the field of a phase that takes its place.
REPLACED_BY_PHASES = {
    "train.batch_size": "batch_size",
    "train.grad_accum_steps": "grad_accum_steps",
    "optimizer.peak_learning_rate": "peak_learning_rate",
    "optimizer.warmup_fraction": "peak_learning_rate",
    "optimizer.warmup_steps": "peak_learning_rate",
    "data.mask_probability": "mask_probability",
    "data.mask_token_fraction": "mask_token_fraction",
    "data.random_token_fraction": "random_token_fraction",
}


def check_overrides(config: Config, keys: Collection[str]) -> None:
    """Raise UserError where a key of the command line, such as `train.batch_size`, has no effect in `config`."""
    phases = config.train.phases if isinstance(config, PretrainConfig) else ()
    for key, own in REPLACED_BY_PHASES.items():
        if key in keys and phases and all(getattr(phase, own) is not None for phase in phases):
            name = key.rpartition(".")[2]
            if key == "optimizer.peak_learning_rate" and config.optimizer.name in _optimizers_that_read_the_peak():
                continue
            raise UserError(
                f"config.{key} has no effect: every phase has its own {own}; set config.train.phases[0].{name}"
            )
    warmups = {"optimizer": config.optimizer.warmup_steps}
    warmups |= {f"train.phases[{number}]": phase.warmup_steps for number, phase in enumerate(phases)}
    for section, steps in warmups.items():
        if f"{section}.warmup_fraction" in keys and steps is not None:
            raise UserError(
                f"config.{section}.warmup_fraction has no effect beside warmup_steps={steps}; add "
                f"--config.{section}.warmup_steps=None"
            )
    if "optimizer.peak_learning_rate" in keys and isinstance(config, FinetuneConfig) and config.task.learning_rates:
        raise UserError("config.optimizer.peak_learning_rate has no effect beside task.learning_rates; leave one out")


def _optimizers_that_read_the_peak() -> Collection[str]:
    """The table is in a room above this one, so it is found by name."""
    return typing.cast(Collection[str], importlib.import_module("bert_jax.training.optimizers").READS_PEAK)


def check_pretraining(config: PretrainConfig) -> None:
    """Raise UserError where fields contradict each other, or where one would be ignored."""
    model, train = config.model, config.train
    if model.bottleneck_size is None and model.head_size is None and model.hidden_size % model.num_heads:
        raise UserError(
            f"config.model.num_heads={model.num_heads} does not divide config.model.hidden_size={model.hidden_size}"
        )
    if not math.isclose(total := sum(phase.fraction for phase in train.phases), 1.0, abs_tol=1e-6):
        raise UserError(f"config.train.phases: the fractions add up to {total:g}; they must add up to 1")
    check_warmup(config.optimizer, train.steps)
    for number, phase in enumerate(train.phases):
        here = f"config.train.phases[{number}]"
        if not 8 <= phase.seq_len <= model.max_positions:
            raise UserError(
                f"{here}.seq_len={phase.seq_len}: sequences have 8 to {model.max_positions} tokens "
                "(config.model.max_positions)"
            )
        if phase.peak_learning_rate is None and (phase.warmup_fraction or phase.warmup_steps):
            raise UserError(f"{here}: warmup has no effect without a peak_learning_rate of the phase; set that")
        if phase.warmup_steps is not None and phase.warmup_steps >= (steps := round(phase.fraction * train.steps)):
            raise UserError(f"{here}.warmup_steps={phase.warmup_steps}, but the phase has {steps} steps; lower it")
        _check_mix(config.data, phase, here)
    _check_data(config.data)


def check_warmup(optimizer: OptimizerConfig, steps: int) -> None:
    """Refuse a warmup that lasts as long as the run of `steps`."""
    if optimizer.warmup_steps is not None and optimizer.warmup_steps >= steps:
        raise UserError(
            f"config.optimizer.warmup_steps={optimizer.warmup_steps}, but the run has {steps} steps; lower it, or set "
            "it to None to use config.optimizer.warmup_fraction"
        )


def _check_mix(data: DataConfig, phase: PhaseConfig, here: str) -> None:
    mask = data.mask_token_fraction if phase.mask_token_fraction is None else phase.mask_token_fraction
    random = data.random_token_fraction if phase.random_token_fraction is None else phase.random_token_fraction
    if mask + random > 1:
        raise UserError(
            f"{here}: mask_token_fraction={mask:g} and random_token_fraction={random:g} add up to more than 1"
        )


def _check_data(data: DataConfig) -> None:
    if data.weights and (min(data.weights) < 0 or not sum(data.weights)):
        raise UserError(f"config.data.weights={data.weights}: give numbers from 0 on, and one above 0")
    if data.smoothing != DataConfig().smoothing and data.weights is not None:
        raise UserError("config.data.smoothing has no effect beside config.data.weights; leave one out")
    if data.max_epochs is not None and data.weights is None and data.smoothing == DataConfig().smoothing:
        raise UserError("config.data.max_epochs has no effect without config.data.weights or smoothing; leave it out")
