"""Training objectives: pure functions from parameters and batches to losses.

base.py          what an objective is
means.py         exact means, which merge over micro-batches, devices and hosts
losses.py        losses per target
parts.py         models that a run trains beside its own
masked_tokens.py masked tokens, with next sentence, sentence order or neither
replaced_tokens.py ELECTRA: a generator replaces tokens, the encoder finds them
tasks.py         the loss of a task, for fine-tuning

To add a pretraining objective, write a file like masked_tokens.py and add its row to `OBJECTIVES`. `config.objective`
chooses the row.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.config import PretrainConfig
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.objectives import masked_tokens, replaced_tokens
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.means import Mean
from bert_jax.objectives.parts import Part

__all__ = [
    "OBJECTIVES",
    "Batch",
    "Mean",
    "Normalizers",
    "Objective",
    "ObjectiveRow",
    "Params",
    "Part",
    "Rngs",
    "make_objective",
]


class ObjectiveRow(NamedTuple):
    """An objective by name.

    make(config) -> the objective
    heads(config) -> the heads of the model that it trains, which an export writes
    parts(config) -> the other models that it trains, by name
    reads: the sections of the config that it reads and some others do not
    """

    make: Callable[[PretrainConfig], Objective]
    heads: Callable[[PretrainConfig], tuple[Head, ...]]
    parts: Callable[[PretrainConfig], Mapping[str, Part]] = lambda config: {}
    reads: tuple[str, ...] = ()


OBJECTIVES: dict[str, ObjectiveRow] = {
    "masked_tokens": ObjectiveRow(masked_tokens.make, masked_tokens.heads),
    "replaced_tokens": ObjectiveRow(
        replaced_tokens.make, replaced_tokens.heads, replaced_tokens.parts, ("replaced_tokens",)
    ),
}


def make_objective(config: PretrainConfig) -> Objective:
    """Return the objective that `config.objective` names, over the encoder of `config.model`.

    Raises UserError where a section of the config is set that other objectives alone read.
    """
    row = OBJECTIVES[config.objective]
    for name, other in OBJECTIVES.items():
        for section in set(other.reads) - set(row.reads):
            if getattr(config, section) != getattr(PretrainConfig(), section):
                objective = f"config.objective={config.objective}"
                raise UserError(f"config.{section} has no effect with {objective}; set config.objective={name}")
    return row.make(config)
