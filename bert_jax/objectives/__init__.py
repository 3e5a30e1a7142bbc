"""Training objectives: pure functions from parameters and batches to losses.

base.py          what an objective is
means.py         exact means, which merge over micro-batches, devices and hosts
losses.py        losses per target
masked_tokens.py masked tokens, with next sentence, sentence order or neither
tasks.py         the loss of a task, for fine-tuning

To add a pretraining objective, write a file like masked_tokens.py and add its row to `OBJECTIVES`. `config.objective`
chooses the row.
"""

from collections.abc import Callable
from typing import NamedTuple

from bert_jax.config import PretrainConfig
from bert_jax.models import Head
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.means import Mean

__all__ = [
    "OBJECTIVES",
    "Batch",
    "Mean",
    "Normalizers",
    "Objective",
    "ObjectiveRow",
    "Params",
    "Rngs",
    "make_objective",
]


class ObjectiveRow(NamedTuple):
    """An objective by name.

    make(config) -> the objective
    heads(config) -> the heads of the model that it trains, which an export writes
    """

    make: Callable[[PretrainConfig], Objective]
    heads: Callable[[PretrainConfig], tuple[Head, ...]]


OBJECTIVES: dict[str, ObjectiveRow] = {
    "masked_tokens": ObjectiveRow(masked_tokens.make, masked_tokens.heads),
}


def make_objective(config: PretrainConfig) -> Objective:
    """Return the objective that `config.objective` names, over the encoder of `config.model`."""
    return OBJECTIVES[config.objective].make(config)
