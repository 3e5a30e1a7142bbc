"""Losses of tasks, as rows of a table."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.objectives.base import Batch
from bert_jax.objectives.losses import LossAndCorrectness, cross_entropy, divergence

NEVER = -1e9  # a cosine that no exponential survives


def squared_error(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the squared error of each target.

    `outputs` float32 `[targets, 1]`, `labels` float32 `[targets]`.
    """
    return (outputs[:, 0] - labels) ** 2


def focal_factor(losses: jax.Array, gamma: float) -> jax.Array:
    """Return (1 - p)^gamma of the probability p of each right answer, whose losses are -log p (Lin et al. 2017)."""
    return jnp.maximum(-jnp.expm1(-losses), 1e-7) ** gamma  # at 0 the gradient of a root is infinite


def focal_cross_entropy(outputs: jax.Array, labels: jax.Array, gamma: float) -> LossAndCorrectness:
    """Return `cross_entropy` times `focal_factor`, and correctness."""
    losses, correct = cross_entropy(outputs, labels)
    return LossAndCorrectness(focal_factor(losses, gamma) * losses if gamma else losses, correct)


def binary_cross_entropy(
    outputs: jax.Array, labels: jax.Array, label_weights: jax.Array | None, gamma: float
) -> LossAndCorrectness:
    """Return the mean over the labels of the binary cross entropy of an example, and 1.0 where all labels are right.

    Equal to torch's `binary_cross_entropy_with_logits`; `label_weights` are its `pos_weight` where a label is true.

    Args:
        outputs: float32 `[examples, labels]`, logits.
        labels: float32 `[examples, labels]`, 1 for the labels of an example.
        label_weights: float32 `[examples, labels]`, factors of the losses; None: 1.
        gamma: exponent of the focal factor.
    """
    losses = jax.nn.softplus(outputs) - labels * outputs
    weighted = losses * focal_factor(losses, gamma) if gamma else losses
    weighted = weighted if label_weights is None else label_weights * weighted
    correct = jnp.all((outputs > 0) == (labels > 0), axis=-1).astype(jnp.float32)
    return LossAndCorrectness(weighted.mean(-1), correct)


def in_batch_negatives(
    outputs: jax.Array, positives: jax.Array, input_ids: jax.Array, temperature: float
) -> LossAndCorrectness:
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
    "cross_entropy": lambda outputs, labels, batch, settings: focal_cross_entropy(
        outputs, labels, settings.focal_gamma
    ),
    "binary_cross_entropy": lambda outputs, labels, batch, settings: binary_cross_entropy(
        outputs, labels, batch.get("label_weights"), settings.focal_gamma
    ),
    "squared_error": lambda outputs, labels, batch, settings: (squared_error(outputs, labels), None),
    "in_batch_negatives": lambda outputs, labels, batch, settings: in_batch_negatives(
        outputs, labels, batch["input_ids"], settings.temperature
    ),
}


# Losses of a student against its teacher: (outputs of the student [targets, ...], outputs of the teacher, temperature)
# -> loss. A loss of a task without a row here has no teacher.
DISTILLATION_LOSSES: dict[str, Callable[[jax.Array, jax.Array, float], jax.Array]] = {
    "cross_entropy": divergence,
    "squared_error": lambda outputs, taught, temperature: squared_error(outputs, taught[:, 0]),
}
