"""The objective of sentence vectors: a row of VECTOR_LOSSES over the vectors of a whole batch."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models import Model, model_flops
from bert_jax.objectives.base import Batch, LossAndMetrics, Normalizers, Objective, Params, Rngs, WholeBatchLoss
from bert_jax.objectives.losses import Mean
from bert_jax.objectives.vector_losses import VECTOR_LOSSES, VectorLabels, VectorLossOptions, vector_losses

OUTPUT = "sentence_vectors"  # of the head `sentence_embedding`
LOG_TEMPERATURE = "log_temperature"  # name of the parameter, float32 [1], if the temperature is learned
MIN_TEMPERATURE = 0.01  # of a learned temperature, as in CLIP (Radford et al. 2021)


def make_vector_objective(
    model: Model, loss_name: str, options: VectorLossOptions, temperature: float, learns_temperature: bool = False
) -> Objective:
    """Return the objective of sentence vectors: the weighted mean of the losses of the examples.

    A batch has the inputs of the model, and `text_ids`, int32 `[examples, texts]`. The weight of an example is
    `positives`, or `example_weights` if the row of the loss is graded. `grades` and `scores` are as in `VectorLabels`.

    Args:
        model: model with the head `sentence_embedding`.
        loss_name: a row of VECTOR_LOSSES.
        options: options of the loss.
        temperature: divisor of the cosines.
        learns_temperature: True to train the temperature, starting at `temperature`; the parameters then have its log.
    """
    row = VECTOR_LOSSES[loss_name]

    def weights_of(batch: Batch) -> jax.Array:
        weights: jax.Array = batch["example_weights" if row.is_graded else "positives"]
        return weights

    def normalizers(batch: Batch) -> Normalizers:
        total = jnp.sum(weights_of(batch))
        return {"targets": jnp.where(total > 0, total, 1.0)}

    def represent(params: Params, frozen: Params, batch: Batch, rngs: Rngs) -> jax.Array:
        return model.apply(params, batch, rngs.dropout)[OUTPUT]

    def loss_of_vectors(params: Params, vectors: jax.Array, batch: Batch, normalizers: Normalizers) -> LossAndMetrics:
        weights, metrics = weights_of(batch), {}
        divisor: jax.Array | float = temperature
        if learns_temperature:
            divisor = jnp.maximum(jnp.exp(params[LOG_TEMPERATURE][0]), MIN_TEMPERATURE)
            metrics["temperature"] = Mean(divisor, jnp.ones(()))
        labels = VectorLabels(weights, batch["text_ids"], batch.get("grades"), batch.get("scores"))
        losses, correct = vector_losses(loss_name, vectors, labels, divisor, options)
        metrics["task_loss"] = Mean.of(losses, weights)
        if not row.is_graded:
            metrics["accuracy"] = Mean.of(correct, weights)
        return metrics["task_loss"].total / normalizers["targets"], metrics

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        return loss_of_vectors(params, represent(params, frozen, batch, rngs), batch, normalizers)

    def with_temperature(tree: Any, leaf: Any) -> Any:
        return {**tree, LOG_TEMPERATURE: leaf} if learns_temperature else tree

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
        whole_batch_loss=WholeBatchLoss(represent, loss_of_vectors),
    )


def log_temperature(temperature: float) -> np.ndarray:
    """Return the initial value of the parameter LOG_TEMPERATURE, float32 `[1]`."""
    return np.log(np.array([temperature], np.float32))
