"""The losses of tasks, one row a kind, over the encoder with the head of that kind."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models import Head, Model, model_flops
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.losses import Targets, cross_entropy
from bert_jax.objectives.means import Mean

Arrays = dict[str, jax.Array]


class Kind(NamedTuple):
    """A kind of task: the head it needs, and its targets in a batch (tasks/features.py has keys and shapes)."""

    head: str
    targets: Callable[[Arrays, Batch], Targets]
    weights: Callable[[Batch], jax.Array]  # those of the targets, without a model


def _classification(outputs: Arrays, batch: Batch) -> Targets:
    return Targets(*cross_entropy(outputs["classification_logits"], batch["labels"]), batch["example_weights"])


def _regression(outputs: Arrays, batch: Batch) -> Targets:
    error = outputs["classification_logits"][:, 0] - batch["values"]
    return Targets(error**2, jnp.zeros_like(error), batch["example_weights"])


def _tagging(outputs: Arrays, batch: Batch) -> Targets:
    logits, weights = outputs["tagging_logits"], batch["token_weights"].reshape(-1)
    labels = batch["token_labels"].reshape(-1)
    return Targets(*cross_entropy(logits.reshape(labels.size, -1), labels), weights)


def _span(outputs: Arrays, batch: Batch) -> Targets:
    """Both ends over all positions of the row, padding too, as in google-research/bert's run_squad.py."""
    first, starts = cross_entropy(outputs["start_logits"], batch["starts"])
    last, ends = cross_entropy(outputs["end_logits"], batch["ends"])
    return Targets((first + last) / 2, starts * ends, batch["example_weights"])


def _choice(outputs: Arrays, batch: Batch) -> Targets:
    return Targets(*cross_entropy(outputs["choice_logits"], batch["labels"]), batch["example_weights"])


def _examples(batch: Batch) -> jax.Array:
    return batch["example_weights"]


def _tokens(batch: Batch) -> jax.Array:
    return batch["token_weights"]


KINDS = {
    "classification": Kind("classification", _classification, _examples),
    "regression": Kind("classification", _regression, _examples),
    "tagging": Kind("tagging", _tagging, _tokens),
    "span": Kind("span", _span, _examples),
    "choice": Kind("choice", _choice, _examples),
}


def head(kind: str, classes: int) -> Head:
    """The head that a kind of task needs; `classes` normalizers where the kind has labels of its own."""
    name = KINDS[kind].head
    return Head(name, {"classification": classes, "regression": 1, "tagging": classes}.get(kind, 0))


def finetuning(model: Model, kind: str, freeze_encoder: bool) -> Objective:
    """Return the mean loss of a task's targets: cross entropy, or in regression the squared error.

    Args:
        model: with the head of `kind`.
        kind: of the task.
        freeze_encoder: the gradient ends at the heads.
    """
    row = KINDS[kind]

    def normalizers(batch: Batch) -> Normalizers:
        return {"targets": jnp.maximum(jnp.sum(row.weights(batch)), 1.0)}

    def loss(
        params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers
    ) -> tuple[jax.Array, dict[str, Mean]]:
        if freeze_encoder:
            params = jax.tree.map(
                lambda section, x: x if section == "heads" else jax.lax.stop_gradient(x), model.sections, params
            )
        targets = row.targets(model.apply(params, batch, rngs.dropout), batch)
        mean = Mean.of(targets.loss, targets.weights)
        metrics = {"task_loss": mean}
        if kind != "regression":
            metrics["accuracy"] = Mean.of(targets.correct, targets.weights)
        return mean.total / normalizers["targets"], metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=lambda seq_len: model_flops(model.config, seq_len, 0),
        num_heads=model.config.num_heads,
    )
