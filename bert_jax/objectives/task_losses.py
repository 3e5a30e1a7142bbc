"""Losses of tasks, as rows of one table."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.objectives.losses import cross_entropy

NEVER = -1e9  # a cosine that no exponential survives


def squared_error(outputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, None]:
    """Return the squared error per target, and no accuracy.

    `outputs` float32 `[targets, 1]`, `labels` float32 `[targets]`.
    """
    return (outputs[:, 0] - labels) ** 2, None


def in_batch_negatives(outputs: jax.Array, positives: jax.Array, temperature: float) -> tuple[jax.Array, jax.Array]:
    """Return the cross entropy of finding each first text's second one among those of the batch's positives.

    `outputs` float32 `[examples, 2 * hidden]`, two vectors of length 1 each; `positives` float32 `[examples]`, 1 where
    the two belong together; what the others get is of no meaning.
    """
    first, second = jnp.split(outputs, 2, axis=1)
    cosines = jnp.where(positives > 0, first @ second.T, NEVER)
    return cross_entropy(cosines / temperature, jnp.arange(len(positives)))


# Losses of tasks: (outputs [targets, classes], labels [targets], settings) -> loss and, where it has a meaning,
# correctness.
LOSSES: dict[str, Callable[[jax.Array, jax.Array, TaskConfig], tuple[jax.Array, jax.Array | None]]] = {
    "cross_entropy": lambda outputs, labels, settings: cross_entropy(outputs, labels),
    "squared_error": lambda outputs, labels, settings: squared_error(outputs, labels),
    "in_batch_negatives": lambda outputs, labels, settings: in_batch_negatives(outputs, labels, settings.temperature),
}
