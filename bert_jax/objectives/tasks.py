"""The loss of a task: the mean loss of the targets of its kind, for the encoder with the head of that kind.

With a teacher, a part of the loss compares the student's outputs with the outputs of a frozen model that was fine-tuned
on the task (Hinton et al. 2015; the second step of DistilBERT and TinyBERT).
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.models import Head, Model, model_flops
from bert_jax.objectives.base import Batch, LossAndMetrics, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.losses import Mean
from bert_jax.objectives.task_losses import DISTILLATION_LOSSES, LOSSES
from bert_jax.objectives.vector_losses import VectorLossOptions
from bert_jax.objectives.vector_scores import SCORES
from bert_jax.objectives.vectors import FlopsWeights, make_vector_objective, with_pair_scores
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.vector_heads import VECTOR_HEADS


def task_head(kind: str, num_labels: int, settings: TaskConfig | None = None) -> Head:
    """Return the head of a kind of task; only kinds with labels use `num_labels`.

    The settings of the task choose the head of sentence vectors; None means the default settings.
    """
    row = KINDS[kind]
    if row.loss.whole_batch:
        settings = settings or TaskConfig()
        head = VECTOR_HEADS[settings.vector_head]
        return Head(head.head, settings.vector_width if head.has_token_vectors else 0)
    return Head(row.head, num_labels if row.classes is None else row.classes)


def make_task_objective(
    model: Model,
    kind: str,
    freeze_encoder: bool,
    settings: TaskConfig | None = None,
    teacher: Model | None = None,
    num_steps: int = 0,
) -> Objective:
    """Return the objective of a task: the mean loss of its targets, which `TaskKind.loss` describes.

    Args:
        model: model with the head of `kind`.
        kind: a row of `KINDS`.
        freeze_encoder: True if gradients stop at the heads.
        settings: settings of the task; None: the defaults.
        teacher: a model with an equal head and frozen parameters; None: the loss uses only the labels.
        num_steps: steps of the training.
    """
    loss_spec, settings = KINDS[kind].loss, settings or TaskConfig()
    if loss_spec.whole_batch:
        row = VECTOR_HEADS[settings.vector_head]
        warmup_steps = int(settings.flops_warmup_fraction * num_steps)
        return make_vector_objective(
            model,
            settings.vector_loss,
            vector_loss_options(settings),
            settings.temperature or row.temperature,
            learns_temperature=settings.learned_temperature,
            freeze_encoder=freeze_encoder,
            flops_weights=FlopsWeights(settings.query_flops_weight, settings.document_flops_weight, warmup_steps)
            if row.is_sparse
            else None,
        )

    def normalizers(batch: Batch) -> Normalizers:
        total = jnp.sum(batch[loss_spec.weights])
        return {"targets": jnp.where(total > 0, total, 1.0)}

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        if freeze_encoder:
            params = jax.tree.map(
                lambda section, x: x if section == "heads" else jax.lax.stop_gradient(x), model.sections, params
            )
        outputs = model.apply(params, batch, rngs.dropout)
        known = jax.lax.stop_gradient(teacher.apply(frozen, batch, None)) if teacher else {}
        losses: list[jax.Array] = []
        corrects: list[Any] = []
        for output, label in loss_spec.targets:
            weights = batch[loss_spec.weights]
            student, labels = _flatten_targets(outputs[output], weights), _flatten_targets(batch[label], weights)
            target_losses, correct = LOSSES[loss_spec.name](student, labels, batch, settings)
            if teacher:
                taught = _flatten_targets(known[output], weights)
                soft = DISTILLATION_LOSSES[loss_spec.name](student, taught, settings.soft_temperature)
                target_losses = (1.0 - settings.soft_fraction) * target_losses + settings.soft_fraction * soft
            losses.append(target_losses)
            corrects.append(correct)
        weights = batch[loss_spec.weights].reshape(-1)
        mean = Mean.of(sum(losses[1:], start=losses[0]) / len(losses), weights)
        metrics = {"task_loss": mean}
        if None not in corrects:
            # Class weights are factors of the loss; the accuracy counts each target once, as on the dev set.
            present = (weights > 0).astype(weights.dtype)
            metrics["accuracy"] = Mean.of(math.prod(corrects[1:], start=corrects[0]), present)
        return mean.total / normalizers["targets"], metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        shapes=model.shapes,
        logical_axes=model.logical_axes,
        sections=model.sections,
        # A forward pass takes a third of the FLOPs of training.
        flops=lambda seq_len, _: (
            model_flops(model.config, seq_len, 0) + (model_flops(teacher.config, seq_len, 0) / 3 if teacher else 0)
        ),
        num_heads=math.gcd(model.config.num_heads, teacher.config.num_heads if teacher else 0),
        frozen_axes=teacher.logical_axes if teacher else (),
        init_frozen=teacher.init if teacher else lambda rng: (),
    )


def model_for_predictions(model: Model, kind: str, settings: TaskConfig) -> Model:
    """Return the model whose outputs `TaskKind.predict` reads; a model of sentence vectors returns scores of pairs."""
    if not KINDS[kind].loss.whole_batch:
        return model
    return with_pair_scores(model, SCORES[VECTOR_HEADS[settings.vector_head].scores])


def vector_loss_options(settings: TaskConfig) -> VectorLossOptions:
    """Return the options of the loss of sentence vectors in the settings of a task."""
    return VectorLossOptions(
        scores=SCORES[VECTOR_HEADS[settings.vector_head].scores],
        symmetric=settings.symmetric,
        false_negative_margin=settings.false_negative_margin,
        triplet_margin=settings.triplet_margin,
        score_temperature=settings.score_temperature,
        matryoshka_sizes=settings.matryoshka_sizes or (),
    )


def _flatten_targets(values: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the values with the leading axes, which are the axes of `weights`, merged into one axis of targets."""
    return values.reshape(weights.size, *values.shape[weights.ndim :])
