"""Training of an adapter and the heads: the encoder is read, not updated, and has no optimizer state."""

import dataclasses
import math
from typing import Any

import jax

from bert_jax.models import Params
from bert_jax.objectives.base import Batch, LossAndMetrics, Normalizers, Objective, Rngs

ENCODER, TEACHER = "encoder", "teacher"  # parts of the frozen parameters


def with_frozen_encoder(objective: Objective, num_layers: int) -> Objective:
    """Return `objective` with the parameters of the encoder frozen instead of trained.

    The heads and the matrices of an adapter are trained. The program computes no gradient of a frozen
    weight.
    """

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        return objective.loss(join_model_params(params, frozen), frozen.get(TEACHER, ()), batch, rngs, normalizers)

    def init_frozen(rng: jax.Array) -> Params:
        frozen: Params = frozen_encoder_and_teacher(objective.init(rng), objective.init_frozen(rng))
        return frozen

    whole_batch_loss = objective.whole_batch_loss
    if whole_batch_loss:
        represent_model = whole_batch_loss.represent
        whole_batch_loss = whole_batch_loss._replace(
            represent=lambda params, frozen, batch, rngs: represent_model(
                join_model_params(params, frozen), frozen.get(TEACHER, ()), batch, rngs
            )
        )

    num_weights: int = num_layers * sum(
        math.prod(x.shape[1:]) for x in jax.tree.leaves(objective.shapes[ENCODER]["layers"])
    )

    def flops(seq_len: int, phase: int) -> float:
        # Of six operations for each weight and token, two compute the gradient of the weight, which is not needed here.
        return objective.flops(seq_len, phase) - 2.0 * seq_len * num_weights

    return dataclasses.replace(
        objective,
        init=lambda rng: part_without_encoder(objective.init(rng)),
        loss=loss,
        shapes=part_without_encoder(objective.shapes),
        logical_axes=part_without_encoder(objective.logical_axes),
        sections=part_without_encoder(objective.sections),
        flops=flops,
        frozen_axes=frozen_encoder_and_teacher(objective.logical_axes, objective.frozen_axes),
        init_frozen=init_frozen,
        whole_batch_loss=whole_batch_loss,
    )


def part_without_encoder(tree: Any) -> Any:
    """Return the tree of a whole model without the encoder."""
    return {name: part for name, part in tree.items() if name != ENCODER}


def frozen_encoder_and_teacher(tree: Any, teacher: Any) -> Any:
    """Return a tree of the encoder of a whole model, and of the teacher, if any; a `teacher` of () means no teacher."""
    return {ENCODER: tree[ENCODER], **({TEACHER: teacher} if teacher else {})}


def join_model_params(trained: Params, frozen: Params) -> Params:
    """Return the parameters of the whole model, joined from the trained part and the frozen part."""
    return {**trained, ENCODER: frozen[ENCODER]}
