"""Losses of tasks, as rows of a table."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import TaskConfig
from bert_jax.objectives.base import Batch
from bert_jax.objectives.losses import LossAndCorrectness, cross_entropy, softened_kl_divergence


def squared_error(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Return the squared error of each target.

    The outputs are float32 `[targets, 1]`, and the labels are float32 `[targets]`.
    """
    return (outputs[:, 0] - labels) ** 2


def focal_factor(losses: jax.Array, gamma: float) -> jax.Array:
    """Return (1 - p)^gamma for each target; p = exp(-loss) is the right answer's probability (Lin et al. 2017)."""
    return jnp.maximum(-jnp.expm1(-losses), 1e-7) ** gamma  # above 0, since the gradient at 0 is infinite if gamma < 1


def focal_cross_entropy(outputs: jax.Array, labels: jax.Array, gamma: float) -> LossAndCorrectness:
    """Return the cross entropy of each target times its focal factor, and the correctness of each target."""
    losses, correct = cross_entropy(outputs, labels)
    return LossAndCorrectness(focal_factor(losses, gamma) * losses if gamma else losses, correct)


def binary_cross_entropy(
    outputs: jax.Array, labels: jax.Array, label_weights: jax.Array | None, gamma: float
) -> LossAndCorrectness:
    """Return each example's binary cross entropy, averaged over the labels, and 1.0 where all labels are right.

    The loss equals torch's `binary_cross_entropy_with_logits`, whose `pos_weight` is the label weight of a true label.

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
    # outputs [targets, documents, 1] -> the cross entropy of the right document
    "listwise": lambda outputs, labels, batch, settings: cross_entropy(outputs[..., 0], labels),
}


# Losses of a student against its teacher: (outputs of the student [targets, ...], outputs of the teacher, temperature)
# -> loss. A loss of a task without a row here has no teacher.
DISTILLATION_LOSSES: dict[str, Callable[[jax.Array, jax.Array, float], jax.Array]] = {
    "cross_entropy": softened_kl_divergence,
    "squared_error": lambda outputs, taught, temperature: squared_error(outputs, taught[:, 0]),
    "listwise": lambda outputs, taught, temperature: softened_kl_divergence(
        outputs[..., 0], taught[..., 0], temperature
    ),
}
