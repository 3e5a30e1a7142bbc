"""Optimizers as rows of a table over optax.

A row takes the learning rate of one step, so `optax.X(learning_rate)` is a row as it is. The rate follows the step of
the run, not a count inside the optimizer: a skipped update leaves moments alone and still advances the schedule.

parameters.py what a row may ask of each parameter
adam.py       AdamW, as BERT and as optax have it
lamb.py       LAMB: a trust ratio per layer
muon.py       Muon: orthogonalized momentum for the matrices of the blocks
stable.py     AdamW with update clipping
depth.py      learning rates per layer, and a frozen encoder
average.py    a moving average of the parameters beside any optimizer

To add an optimizer, write a function with its own file where it needs one, and add its row to `OPTIMIZERS`.
"""

from collections.abc import Callable

import optax

from bert_jax.config import OptimizerConfig
from bert_jax.errors import UserError
from bert_jax.training.optimizers.adam import adamw
from bert_jax.training.optimizers.average import AveragedState, with_average
from bert_jax.training.optimizers.depth import scale_by_depth
from bert_jax.training.optimizers.lamb import lamb
from bert_jax.training.optimizers.muon import muon
from bert_jax.training.optimizers.parameters import ParamInfo, Rate, Tree, decay_mask, param_info
from bert_jax.training.optimizers.stable import stable_adamw

__all__ = [
    "OPTIMIZERS",
    "AveragedState",
    "Optimizer",
    "ParamInfo",
    "Rate",
    "check_optimizer",
    "decay_mask",
    "make_optimizer",
]

Optimizer = Callable[[Rate], optax.GradientTransformation]  # the state has the same structure for every rate

# (learning rate, config, info) -> optax transformation. `config.optimizer.name` chooses the row.
OPTIMIZERS: dict[str, Callable[[Rate, OptimizerConfig, ParamInfo], optax.GradientTransformation]] = {
    "adamw": adamw,
    "lamb": lamb,
    "muon": muon,
    "stable_adamw": stable_adamw,
}
READS_PEAK = ("muon",)  # rows that read the run's peak where phases have their own: rates relative to it
# Field of OptimizerConfig that some rows alone read -> the field that chooses the row, and these rows.
READ_BY = {
    "muon_learning_rate": ("name", ("muon",)),
    "momentum": ("name", ("muon",)),
    "nesterov": ("name", ("muon",)),
    "decay_fraction": ("schedule", ("warmup_stable_decay",)),
    "decay_power": ("schedule", ("bert", "electra", "linear", "warmup_stable_decay")),
}


def check_optimizer(config: OptimizerConfig) -> None:
    """Raise UserError where a field is set that neither optimizer nor schedule reads."""
    for field, (chosen, rows) in READ_BY.items():
        if getattr(config, chosen) not in rows and getattr(config, field) != getattr(OptimizerConfig(), field):
            needed = f"config.optimizer.{chosen}={' or '.join(rows)}"
            raise UserError(f"config.optimizer.{field} has no effect without {needed}; set that")


def make_optimizer(config: OptimizerConfig, logical_axes: Tree, sections: Tree) -> Optimizer:
    """Return the optimizer of `config` with clipping, layer-wise rates and a moving average around it."""
    info = param_info(logical_axes, sections)
    row = OPTIMIZERS[config.name]

    def optimizer(learning_rate: Rate) -> optax.GradientTransformation:
        chain = [] if config.clip_norm is None else [_clip(config.clip_norm, config.freeze_encoder, sections)]
        chain.append(row(learning_rate, config, info))
        if config.layer_decay != 1.0 or config.freeze_encoder:
            chain.append(scale_by_depth(0.0 if config.freeze_encoder else 1.0, config.layer_decay, sections))
        chained = optax.chain(*chain)
        return chained if config.ema_decay is None else with_average(chained, config.ema_decay)

    return optimizer


def _clip(norm: float, freeze_encoder: bool, sections: Tree) -> optax.GradientTransformation:
    """Clip the gradient by the norm of what is trained; the state is empty, as that of optax's own clipping."""
    clip = optax.clip_by_global_norm(norm)
    if not freeze_encoder:
        return clip
    of_heads = optax.chain(scale_by_depth(0.0, 1.0, sections), clip)
    return optax.stateless(lambda updates, params: of_heads.update(updates, of_heads.init(params), params)[0])
