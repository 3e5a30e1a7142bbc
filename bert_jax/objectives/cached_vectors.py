"""The gradient of a loss over a whole batch, with the memory of a micro-batch: GradCache (Gao et al. 2021).

The vectors of all micro-batches are computed without a gradient. The loss of the vectors gives the gradient of each
vector. Then each micro-batch is computed again, and its vectors pass their gradients to the parameters. Both passes
over a micro-batch use equal dropout keys, so the result equals the gradient of the whole batch, except for rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from bert_jax.objectives.base import Batch, Normalizers, Params, Rngs, WholeBatchLoss
from bert_jax.objectives.losses import Mean
from bert_jax.parallel import sharding


class LossAndGradients(NamedTuple):
    """Loss, gradients and metrics of a batch."""

    loss: jax.Array
    gradients: Params
    metrics: dict[str, Mean]


def cached_loss_and_gradients(
    whole_batch_loss: WholeBatchLoss,
    grad_accum_steps: int,
    params: Params,
    frozen: Params,
    batch: Batch,
    normalizers: Normalizers,
    rngs: Callable[[Any], Rngs],
) -> LossAndGradients:
    """Return the loss of a batch, the gradient of the parameters, and the metrics.

    Args:
        whole_batch_loss: the two steps of the loss.
        grad_accum_steps: number of micro-batches.
        params: parameters.
        frozen: frozen parameters.
        batch: arrays `[batch, ...]`.
        normalizers: divisors of the loss terms.
        rngs: index of a micro-batch -> its random keys.
    """
    represent = whole_batch_loss.represent
    indices = jnp.arange(grad_accum_steps)

    def vectors_of_batch(batch: Batch, params: Params, frozen: Params) -> jax.Array:
        """Return the vectors of all examples, in their order."""

        def vectors_of_micro_batch(_: None, xs: tuple[jax.Array, Batch]) -> tuple[None, jax.Array]:
            index, micro = xs
            return None, represent(params, frozen, micro, rngs(index))

        micros = split_into_micro_batches(batch, grad_accum_steps)
        by_micro_batch = jax.lax.scan(vectors_of_micro_batch, None, (indices, micros))[1]
        # This is the inverse of `split_into_micro_batches`.
        return jnp.swapaxes(by_micro_batch, 0, 1).reshape(-1, *by_micro_batch.shape[2:])

    vectors = sharding.map_over_data(vectors_of_batch)(batch, params, frozen)
    vectors = sharding.constrain(vectors, "batch", *["features"] * (vectors.ndim - 1))
    (loss, metrics), (gradients, vector_gradients) = jax.value_and_grad(
        whole_batch_loss.loss, argnums=(0, 1), has_aux=True
    )(params, vectors, batch, normalizers)

    def gradients_of_vectors(batch_and_gradients: tuple[Batch, jax.Array], params: Params, frozen: Params) -> Params:
        """Return the gradients of the parameters, summed over the micro-batches."""
        batch, vector_gradients = batch_and_gradients

        def add_micro_batch(sums: Params, xs: tuple[jax.Array, Batch, jax.Array]) -> tuple[Params, None]:
            index, micro, gradient = xs
            _, backward = jax.vjp(lambda params: represent(params, frozen, micro, rngs(index)), params)
            return jax.tree.map(jnp.add, sums, backward(gradient)[0]), None

        micros = split_into_micro_batches(batch, grad_accum_steps)
        micro_gradients = split_into_micro_batches({"vectors": vector_gradients}, grad_accum_steps)["vectors"]
        zeros = jax.tree.map(jnp.zeros_like, params)
        return jax.lax.scan(add_micro_batch, zeros, (indices, micros, micro_gradients))[0]

    replayed = sharding.sum_over_data(gradients_of_vectors)((batch, vector_gradients), params, frozen)
    return LossAndGradients(loss, jax.tree.map(jnp.add, gradients, replayed), metrics)


def split_into_micro_batches(batch: Batch, grad_accum_steps: int) -> Batch:
    """Return the arrays of a batch as `[grad_accum_steps, micro-batch, ...]`.

    Micro-batch i takes the sequences i, i + grad_accum_steps, ..., so that every device keeps its sequences.
    """

    def split(x: jax.Array) -> jax.Array:
        micros = jnp.swapaxes(x.reshape(-1, grad_accum_steps, *x.shape[1:]), 0, 1)
        return sharding.constrain(micros, "accumulation", "batch")

    return cast(Batch, jax.tree.map(split, batch))
