"""The loss of a task: the mean of the targets of its kind, over the encoder with the head of that kind."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.models import Head, Model, model_flops
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.means import Mean
from bert_jax.objectives.task_losses import LOSSES
from bert_jax.tasks.kinds import KINDS


def head(kind: str, num_labels: int) -> Head:
    """Return the head of a kind of task; `num_labels` is used by kinds with labels."""
    row = KINDS[kind]
    return Head(row.head, num_labels if row.classes is None else row.classes)


def finetuning(model: Model, kind: str, freeze_encoder: bool, settings: TaskConfig | None = None) -> Objective:
    """Return the mean loss of a task's targets, as `Kind.loss` describes it.

    Args:
        model: with the head of `kind`.
        kind: a row of `KINDS`.
        freeze_encoder: the gradient ends at the heads.
        settings: those of the task; None: the defaults.
    """
    described, settings = KINDS[kind].loss, settings or TaskConfig()

    def normalizers(batch: Batch) -> Normalizers:
        return {"targets": jnp.maximum(jnp.sum(batch[described.weights]), 1.0)}

    def loss(
        params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers
    ) -> tuple[jax.Array, dict[str, Mean]]:
        if freeze_encoder:
            params = jax.tree.map(
                lambda section, x: x if section == "heads" else jax.lax.stop_gradient(x), model.sections, params
            )
        outputs = model.apply(params, batch, rngs.dropout)
        losses: list[jax.Array] = []
        corrects: list[Any] = []
        for output, label in described.targets:
            labels, values = batch[label], outputs[output]
            values = values.reshape(labels.size, *values.shape[labels.ndim :])
            found, correct = LOSSES[described.name](values, labels.reshape(-1), settings)
            losses.append(found)
            corrects.append(correct)
        weights = batch[described.weights].reshape(-1)
        mean = Mean.of(sum(losses[1:], start=losses[0]) / len(losses), weights)
        metrics = {"task_loss": mean}
        if None not in corrects:
            metrics["accuracy"] = Mean.of(math.prod(corrects[1:], start=corrects[0]), weights)
        return mean.total / normalizers["targets"], metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=lambda seq_len, _: model_flops(model.config, seq_len, 0),
        num_heads=model.config.num_heads,
    )
