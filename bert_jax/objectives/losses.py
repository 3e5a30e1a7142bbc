"""Losses per target, for the objectives of pretraining and of tasks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Targets(NamedTuple):
    """Loss, correctness (0/1) and weight of each target, float32 of one shape; padding has weight 0."""

    loss: jax.Array
    correct: jax.Array
    weights: jax.Array


def cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the negative log likelihood of each target, and 1.0 if no logit exceeds the label's logit; float32.

    `logits` float32 `[targets, classes]`, `labels` int32 `[targets]`.
    """
    loss, correct, _ = cross_entropy_and_log_z(logits, labels)
    return loss, correct


def divergence(student: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """Return T^2 KL(teacher || student) of two softmaxes at temperature T over the last axis, float32."""
    log_p, log_q = (jax.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


def cross_entropy_and_log_z(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return `cross_entropy`, and the log of the partition function, float32 `[targets]`.

    `logits` float32 `[targets, classes]`, `labels` int32 `[targets]`. The code uses only sums and a maximum over the
    classes. So XLA reads the logits once, and does not gather them on a mesh that shards the classes.
    """
    is_label = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == labels[:, None]
    chosen = jnp.sum(jnp.where(is_label, logits, 0.0), axis=1)
    highest = jax.lax.stop_gradient(logits.max(axis=1))
    partition = jnp.sum(jnp.exp(logits - highest[:, None]), axis=1)
    log_z = highest + jnp.log(partition)
    return log_z - chosen, (chosen >= highest).astype(jnp.float32), log_z
