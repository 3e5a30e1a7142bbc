"""The objective of sentence vectors: a row of VECTOR_LOSSES over the vectors of a whole batch."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models import Model, model_flops
from bert_jax.objectives.base import Batch, LossAndMetrics, Normalizers, Objective, Params, Rngs, WholeBatchLoss
from bert_jax.objectives.losses import Mean
from bert_jax.objectives.vector_losses import VECTOR_LOSSES, VectorLabels, VectorLossOptions, vector_losses
from bert_jax.objectives.vector_scores import Scores, flops_regularization, quadratic_warmup_factor

OUTPUT = "sentence_vectors"  # output of the heads in VECTOR_HEADS
SCORE_OUTPUT = "pair_scores"
FLOPS_FACTOR = "flops_factor"  # key of the factor of the regularization, in the normalizers of a step
LOG_TEMPERATURE = "log_temperature"  # name of the parameter, float32 [1], if the temperature is learned
MIN_TEMPERATURE = 0.01  # minimum of a learned temperature, as in CLIP (Radford et al. 2021)


class FlopsWeights(NamedTuple):
    """The weights of the FLOPS regularization of sparse vectors (SPLADE; Formal et al. 2021)."""

    queries: float
    documents: float
    warmup_steps: int  # steps in which the weights rise quadratically from 0


def make_vector_objective(
    model: Model,
    loss_name: str,
    options: VectorLossOptions,
    temperature: float,
    *,
    learns_temperature: bool = False,
    freeze_encoder: bool = False,
    flops_weights: FlopsWeights | None = None,
) -> Objective:
    """Return the objective of sentence vectors: the weighted mean of the losses of the examples.

    A batch has the inputs of the model, and an id for each text: `text_ids`, int32 `[examples, texts]`. The entry
    `positives` of a batch has the weights of the examples. If the row of the loss is graded, the entry
    `example_weights` has these weights instead. The entries `grades` and `scores` are as in `VectorLabels`.

    Args:
        model: model with the head of a row of VECTOR_HEADS.
        loss_name: a row of VECTOR_LOSSES.
        options: options of the loss.
        temperature: divisor of the scores.
        learns_temperature: True to train the temperature, starting at `temperature`; the parameters then have its log.
        freeze_encoder: True if gradients stop at the head.
        flops_weights: weights of the regularization of sparse vectors; None: no regularization.

    Raises:
        UserError: a learned temperature starts below its minimum.
    """
    if learns_temperature and temperature < MIN_TEMPERATURE:
        raise UserError(
            f"config.task.temperature={temperature:g}: a learned temperature is at least {MIN_TEMPERATURE:g}; raise "
            "config.task.temperature, or set config.task.learned_temperature=False"
        )
    row = VECTOR_LOSSES[loss_name]

    def weights_of_examples(batch: Batch) -> jax.Array:
        weights: jax.Array = batch["example_weights" if row.is_graded else "positives"]
        return weights

    def normalizers(batch: Batch) -> Normalizers:
        total = jnp.sum(weights_of_examples(batch))
        return {"targets": jnp.where(total > 0, total, 1.0)}

    def represent(params: Params, frozen: Params, batch: Batch, rngs: Rngs) -> jax.Array:
        if freeze_encoder:
            params = {**params, "encoder": jax.lax.stop_gradient(params["encoder"])}
        return model.apply(params, batch, rngs.dropout)[OUTPUT]

    def loss_of_vectors(params: Params, vectors: jax.Array, batch: Batch, normalizers: Normalizers) -> LossAndMetrics:
        weights, metrics = weights_of_examples(batch), {}
        divisor: jax.Array | float = temperature
        if learns_temperature:
            divisor = jnp.exp(params[LOG_TEMPERATURE][0])
            metrics["temperature"] = Mean(divisor, jnp.ones(()))
        labels = VectorLabels(weights, batch["text_ids"], batch.get("grades"), batch.get("scores"))
        losses, correct = vector_losses(loss_name, vectors, labels, divisor, options)
        metrics["task_loss"] = Mean.of(losses, weights)
        if not row.is_graded:
            metrics["accuracy"] = Mean.of(correct, weights)
        total = metrics["task_loss"].total / normalizers["targets"]
        if flops_weights:
            present = batch["example_weights"]
            query_flops, document_flops = (flops_regularization(x, present) for x in (vectors[:, :1], vectors[:, 1:]))
            penalty = flops_weights.queries * query_flops + flops_weights.documents * document_flops
            total += normalizers[FLOPS_FACTOR] * penalty
            num_terms = jnp.sum(vectors > 0, axis=-1).astype(jnp.float32)
            metrics |= {
                "query_terms": Mean.of(num_terms[:, 0], present),
                "document_terms": Mean.of(num_terms[:, 1:].mean(axis=1), present),
            }
        return total, metrics

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        return loss_of_vectors(params, represent(params, frozen, batch, rngs), batch, normalizers)

    def with_temperature(tree: Any, leaf: Any) -> Any:
        return {**tree, LOG_TEMPERATURE: leaf} if learns_temperature else tree

    def with_bounded_temperature(params: Params) -> Params:
        """Return the parameters with a temperature of at least MIN_TEMPERATURE; CLIP also bounds the updated value."""
        if not learns_temperature:
            return params
        bounded = jnp.maximum(params[LOG_TEMPERATURE], log_temperature(MIN_TEMPERATURE))
        return {**params, LOG_TEMPERATURE: bounded}

    def init(rng: jax.Array) -> Params:
        params: Params = with_temperature(model.init(rng), log_temperature(temperature))
        return params

    return Objective(
        init=init,
        normalizers=normalizers,
        loss=loss,
        shapes=with_temperature(model.shapes, jax.ShapeDtypeStruct((1,), jnp.float32)),
        logical_axes=with_temperature(model.logical_axes, ("features",)),
        sections=with_temperature(model.sections, "heads"),
        flops=lambda seq_len, _: model_flops(model.config, seq_len, 0),
        num_heads=model.config.num_heads,
        loss_weights=lambda step: (
            {FLOPS_FACTOR: quadratic_warmup_factor(step, flops_weights.warmup_steps)} if flops_weights else {}
        ),
        whole_batch_loss=WholeBatchLoss(represent, loss_of_vectors),
        project=with_bounded_temperature,
    )


def with_pair_scores(model: Model, scores: Scores) -> Model:
    """Return a model whose only output, SCORE_OUTPUT, is the score of the first two texts of each example, `[batch]`.

    The vectors of the texts are no output, because they may be large: they stay on the device.
    """

    def apply(params: Params, batch: Mapping[str, jax.Array], rng: jax.Array | None) -> dict[str, jax.Array]:
        vectors = model.apply(params, batch, rng)[OUTPUT]
        return {SCORE_OUTPUT: jax.vmap(lambda texts: scores(texts[:1], texts[1:2])[0, 0])(vectors)}

    return dataclasses.replace(model, apply=apply)


def log_temperature(temperature: float) -> np.ndarray:
    """Return the initial value of the parameter LOG_TEMPERATURE, float32 `[1]`."""
    return np.log(np.array([temperature], np.float32))
