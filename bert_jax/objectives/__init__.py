"""Training objectives: pure functions from parameters and batches to losses.

base.py             what an objective is
distillation.py     Distillation (DistilBERT, Sanh et al
left_to_right.py    Left to right
losses.py           losses per target
masked_tokens.py    Masked tokens (Devlin et al
means.py            exact means, which merge over micro-batches, devices and hosts
parts.py            models that a run trains beside its own
replaced_tokens.py  Replaced tokens (ELECTRA, Clark et al
task_losses.py      losses of tasks: add a function and its row in LOSSES
tasks.py            the loss of a task, for fine-tuning
tokens.py           the tokens of a batch: which count, and what stands where masks are
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.objectives import distillation, left_to_right, masked_tokens, replaced_tokens
from bert_jax.objectives.base import Batch, Objective, Params, Rngs
from bert_jax.objectives.parts import Part

__all__ = ["OBJECTIVES", "Batch", "Objective", "ObjectiveRow", "Params", "Part", "Rngs", "make_objective"]


class ObjectiveRow(NamedTuple):
    """An objective by name.

    make(config, architecture of the teacher, if any) -> the objective
    heads(config) -> the heads of the model that it trains, which an export writes
    parts(config) -> the other models that it trains, by name
    teacher(config) -> the directory of a model that it reads and does not train
    causal: whether no token may see those after it
    own_mix: whether an evaluation has the run's mix of masks, where the model learns what replaces a token
    """

    make: Callable[[PretrainConfig, EncoderConfig | None], Objective]
    heads: Callable[[PretrainConfig], tuple[Head, ...]]
    parts: Callable[[PretrainConfig], Mapping[str, Part]] = lambda config: {}
    teacher: Callable[[PretrainConfig], str | None] = lambda config: None
    causal: bool = False
    own_mix: bool = False

    @property
    def has_masks(self) -> bool:
        """Whether it reads how tokens are masked."""
        return not self.causal


OBJECTIVES: dict[str, ObjectiveRow] = {
    "masked_tokens": ObjectiveRow(masked_tokens.make, masked_tokens.heads),
    "replaced_tokens": ObjectiveRow(replaced_tokens.make, replaced_tokens.heads, replaced_tokens.parts, own_mix=True),
    "left_to_right": ObjectiveRow(left_to_right.make, left_to_right.heads, causal=True),
    "distillation": ObjectiveRow(
        distillation.make, distillation.heads, teacher=lambda config: config.distillation.teacher
    ),
}


def make_objective(config: PretrainConfig, teacher: EncoderConfig | None = None) -> Objective:
    """Return the objective that `config.objective` names, over the encoder of `config.model`.

    `teacher` is the architecture of the model in `config.distillation.teacher`. Raises UserError where
    tokens see other tokens than the objective needs.
    """
    if config.model.causal != OBJECTIVES[config.objective].causal:
        needed = OBJECTIVES[config.objective].causal
        raise UserError(f"config.objective={config.objective} needs config.model.causal={needed}")
    return OBJECTIVES[config.objective].make(config, teacher)
