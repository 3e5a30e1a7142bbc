"""Losses of tasks, as rows of a table."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.objectives.base import Batch
from bert_jax.objectives.losses import cross_entropy, divergence

NEVER = -1e9  # a cosine that no exponential survives


def squared_error(outputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, None]:
    """Return the squared error of each target, and None instead of a correctness.

    `outputs` float32 `[targets, 1]`, `labels` float32 `[targets]`.
    """
    return (outputs[:, 0] - labels) ** 2, None


def in_batch_negatives(
    outputs: jax.Array, positives: jax.Array, input_ids: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """Return InfoNCE with in-batch negatives over the positive pairs: the loss and the correctness of each example.

    If several examples have equal first texts, all their second texts are right. A candidate that equals a right text
    or the first text is not a negative.

    Args:
        outputs: vectors of length 1 of a first text, a second text, and optional further texts that are negatives,
        float32 `[examples, texts, hidden]`.
        positives: 1 for examples whose first two texts belong together, float32 `[examples]`; the results of all other
        examples have no meaning.
        input_ids: the texts, int32 `[examples, texts, length]`.
        temperature: divisor of the cosines.
    """
    examples, texts = outputs.shape[:2]
    candidates, candidate_ids = (x[:, 1:].swapaxes(0, 1).reshape(-1, x.shape[-1]) for x in (outputs, input_ids))
    same_first = _rows_are_equal(input_ids[:, 0], input_ids[:, 0]) * positives
    # Columns: all second texts, then all negatives.
    right = (
        same_first @ _rows_are_equal(input_ids[:, 1], candidate_ids) + _rows_are_equal(input_ids[:, 0], candidate_ids)
        > 0
    )
    paired = jnp.eye(examples, examples * (texts - 1), dtype=bool)
    known = jnp.tile(positives, texts - 1) > 0
    cosines = jnp.where(known & (paired | ~right), outputs[:, 0] @ candidates.T, NEVER)
    return cross_entropy(cosines / temperature, jnp.arange(examples))


def _rows_are_equal(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return 1 for each pair of equal rows of `[m, length]` and `[n, length]`, otherwise 0, float32 `[m, n]`."""
    return jnp.all(x[:, None] == y, axis=-1).astype(jnp.float32)


# Losses of tasks: (outputs [targets, ...], labels [targets], batch, settings) -> loss and, where it has a meaning,
# correctness.
LOSSES: dict[str, Callable[[jax.Array, jax.Array, Batch, TaskConfig], tuple[jax.Array, jax.Array | None]]] = {
    "cross_entropy": lambda outputs, labels, batch, settings: cross_entropy(outputs, labels),
    "squared_error": lambda outputs, labels, batch, settings: squared_error(outputs, labels),
    "in_batch_negatives": lambda outputs, labels, batch, settings: in_batch_negatives(
        outputs, labels, batch["input_ids"], settings.temperature
    ),
}


# Losses of a student against its teacher: (outputs of the student [targets, ...], outputs of the teacher, temperature)
# -> loss. A loss of a task without a row here has no teacher.
DISTILLATION_LOSSES: dict[str, Callable[[jax.Array, jax.Array, float], jax.Array]] = {
    "cross_entropy": divergence,
    "squared_error": lambda outputs, taught, temperature: squared_error(outputs, taught[:, 0])[0],
}
