"""Training objectives: pure functions from parameters and batches to losses.

base.py             the interface of an objective, and the inputs of its constructor
cached_vectors.py   the gradient of a loss over a whole batch, in micro-batches
distillation.py     distillation: masked tokens, and the outputs of a frozen teacher
frozen_encoder.py   training of an adapter and the heads, with a frozen encoder
hybrid.py           masked tokens and left to right in one batch
left_to_right.py    causal language modeling: each token is predicted from the tokens before it
losses.py           losses per target, weights of tokens, exact means over micro-batches, devices and hosts
masked_tokens.py    masked tokens, with or without labeled sentence pairs
replaced_tokens.py  ELECTRA: a generator fills masks, and the encoder finds the replaced tokens
task_losses.py      losses of tasks; for a new loss, add a function and a row of LOSSES
tasks.py            the loss of a task, for fine-tuning
vector_losses.py    losses of sentence vectors; for a new loss, add a function and a row of VECTOR_LOSSES
vector_scores.py    comparisons of vectors; for a new comparison, add a function and a row of SCORES
vectors.py          the objective of sentence vectors, over the vectors of a whole batch

To add an objective of pretraining, write a file for the objective and add a row to OBJECTIVES.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.batches.masking import phase_mask_rates
from bert_jax.config import EncoderConfig, PhaseConfig, PretrainConfig, ReplacedTokensConfig, section_of_phase
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.objectives import distillation, hybrid, left_to_right, masked_tokens, replaced_tokens
from bert_jax.objectives.base import AuxiliaryModel, Batch, Ingredients, Objective, Params, Rngs

__all__ = [
    "OBJECTIVES",
    "PHASE_OBJECTIVES",
    "AuxiliaryModel",
    "Batch",
    "Ingredients",
    "Objective",
    "ObjectiveRow",
    "Params",
    "Rngs",
    "make_objective",
    "predicts_masks",
]


class ObjectiveRow(NamedTuple):
    """A row of OBJECTIVES.

    Attributes:
        make: function that makes the objective from its ingredients
        heads: function from the name of a sentence-pair rule to the heads that the objective trains and an export
            writes
        auxiliary: function (model, replaced_tokens) -> the auxiliary models that the objective trains, by name
        has_teacher: True if the objective reads the model in `config.distillation.teacher`
        causal: True if the objective needs causal attention
        eval_uses_training_masks: True if evaluation uses the training's fractions of [MASK], random and unchanged
            tokens
    """

    make: Callable[[Ingredients], Objective]
    heads: Callable[[str], tuple[Head, ...]]
    auxiliary: Callable[[EncoderConfig, ReplacedTokensConfig], Mapping[str, AuxiliaryModel]] = lambda *_: {}
    has_teacher: bool = False
    causal: bool = False
    eval_uses_training_masks: bool = False

    @property
    def has_masks(self) -> bool:
        """Return whether the objective needs masked tokens."""
        return not self.causal


OBJECTIVES: dict[str, ObjectiveRow] = {
    "masked_tokens": ObjectiveRow(masked_tokens.make_masked_tokens_objective, masked_tokens.pretraining_heads),
    "replaced_tokens": ObjectiveRow(
        replaced_tokens.make_replaced_tokens_objective,
        lambda pairs: replaced_tokens.HEADS,
        replaced_tokens.auxiliary_generator,
        eval_uses_training_masks=True,
    ),
    "left_to_right": ObjectiveRow(
        left_to_right.make_left_to_right_objective, lambda pairs: left_to_right.HEADS, causal=True
    ),
    "distillation": ObjectiveRow(
        distillation.make_distillation_objective, lambda pairs: distillation.HEADS, has_teacher=True
    ),
}


class PhaseObjectiveRow(NamedTuple):
    """A row of PHASE_OBJECTIVES.

    Attributes:
        make: function (ingredients, objective of the run, settings of the phase) -> the objective of the phase
        has_masks: True if the objective needs masked tokens
        splits_batch: True if `left_to_right_fraction` divides each batch into two parts
    """

    make: Callable[[Ingredients, Objective, PhaseConfig], Objective]
    has_masks: bool
    splits_batch: bool = False


PHASE_OBJECTIVES: dict[str, PhaseObjectiveRow] = {
    "left_to_right": PhaseObjectiveRow(left_to_right.make_left_to_right_phase, has_masks=False),
    "hybrid": PhaseObjectiveRow(hybrid.make_hybrid_phase, has_masks=True, splits_batch=True),
}


def predicts_masks(phase: PhaseConfig) -> bool:
    """Return whether a phase predicts masked tokens, so that its evaluations measure the objective of the run."""
    return not phase.objective or PHASE_OBJECTIVES[phase.objective].has_masks


def make_objective(config: PretrainConfig, teacher: EncoderConfig | None = None) -> Objective:
    """Return the objective that `config.objective` names, for the encoder that `config.model` describes.

    The argument `teacher` is the architecture of the model in `config.distillation.teacher`. Raise UserError in three
    cases: `config.model.causal` does not fit the objective; a phase has an objective, but the run's objective is not
    masked_tokens; block-sparse attention would read packed sequences.
    """
    row = OBJECTIVES[config.objective]
    if config.model.causal != row.causal:
        raise UserError(f"config.objective={config.objective} needs config.model.causal={row.causal}")
    for encoder in (config.model, teacher) if teacher else (config.model,):
        _refuse_packed_block_sparse_attention(encoder, config.data.packing, config.train.used_phases)
    ingredients = Ingredients(
        model=config.model,
        compute=config.compute,
        sentence_pairs=config.data.sentence_pairs,
        packing=config.data.packing,
        z_loss=config.train.z_loss,
        mask_rates=tuple(sum(phase_mask_rates(config.data, phase)) / 2 for phase in config.train.phases),
        replaced_tokens=config.replaced_tokens,
        distillation=config.distillation,
        teacher=teacher,
        has_init_weights=bool(config.init_from),
    )
    objective = row.make(ingredients)
    phases, evaluated = dict[int, Objective](), dict[int, Objective]()
    for index, phase in config.train.used_phases.items():
        if phase.objective and config.objective != "masked_tokens":
            raise UserError(f"config.train.phases[{index}].objective needs config.objective=masked_tokens")
        of_phase = dataclasses.replace(ingredients, model=section_of_phase(config.model, phase))
        trained = masked = objective if of_phase.model == config.model else row.make(of_phase)
        if phase.objective:
            trained = PHASE_OBJECTIVES[phase.objective].make(of_phase, masked, phase)
        measured = masked if predicts_masks(phase) else trained
        if trained is not objective:
            phases[index] = trained
        if measured is not objective:
            evaluated[index] = measured

    def flops(seq_len: int, index: int) -> float:
        return phases.get(index, objective).flops(seq_len, index)

    return dataclasses.replace(objective, phases=phases, evaluated_phases=evaluated, flops=flops)


def _refuse_packed_block_sparse_attention(
    encoder: EncoderConfig, packing: int, phases: Mapping[int, PhaseConfig]
) -> None:
    """Raise UserError if sequences are packed and long enough for sparse attention, which is defined for one text."""
    for index, phase in phases.items():
        if packing > 1 and phase.seq_len > encoder.max_dense_length:
            raise UserError(
                f"config.data.packing={packing}: attention in blocks of {encoder.block_size} tokens reads packed "
                f"sequences of up to {encoder.max_dense_length} tokens, and config.train.phases[{index}].seq_len="
                f"{phase.seq_len}; set config.data.packing=1"
            )
