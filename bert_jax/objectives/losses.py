"""Losses per target, weights and texts of tokens, and exact means, for the objectives of pretraining and of tasks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models import Batch


class Targets(NamedTuple):
    """Loss, correctness (0/1) and weight of each target, float32 of one shape; padding has weight 0."""

    loss: jax.Array
    correct: jax.Array
    weights: jax.Array


class LossAndCorrectness(NamedTuple):
    """The loss of each target, and 1.0 for a correct prediction, else 0.0; float32 `[targets]`."""

    loss: jax.Array
    correct: jax.Array


def cross_entropy(logits: jax.Array, labels: jax.Array) -> LossAndCorrectness:
    """Return the negative log likelihood of each target, and 1.0 if no logit exceeds the label's logit; float32.

    The logits are float32 `[targets, classes]`, and the labels are int32 `[targets]`.
    """
    loss, correct, _ = cross_entropy_and_log_z(logits, labels)
    return LossAndCorrectness(loss, correct)


def softened_kl_divergence(student: jax.Array, teacher: jax.Array, temperature: jax.Array | float) -> jax.Array:
    """Return T^2 KL(teacher || student) of two softmaxes at temperature T over the last axis, float32."""
    log_p, log_q = (jax.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1)


class LossCorrectnessLogZ(NamedTuple):
    """The fields of `LossAndCorrectness`, and the log of the partition function; float32 `[targets]`."""

    loss: jax.Array
    correct: jax.Array
    log_z: jax.Array


def cross_entropy_and_log_z(logits: jax.Array, labels: jax.Array) -> LossCorrectnessLogZ:
    """Return the result of `cross_entropy`, and the log of the partition function, float32 `[targets]`.

    The logits are float32 `[targets, classes]`, and the labels are int32 `[targets]`. The code uses only sums and a
    maximum over the classes. So XLA reads the logits once, and gathers no logits on a mesh that shards the classes.
    """
    is_label = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == labels[:, None]
    chosen = jnp.sum(jnp.where(is_label, logits, 0.0), axis=1)
    highest = jax.lax.stop_gradient(logits.max(axis=1))
    partition = jnp.sum(jnp.exp(logits - highest[:, None]), axis=1)
    log_z = highest + jnp.log(partition)
    return LossCorrectnessLogZ(log_z - chosen, (chosen >= highest).astype(jnp.float32), log_z)


def non_padding_mask(batch: Batch) -> jax.Array:
    """Return 1 for each token, 0 for padding and for sequences that only fill the batch, float32 `[batch, length]`."""
    rows = len(batch["input_ids"])
    counted = batch["example_weights"].reshape(rows, -1).max(1)
    return batch["attention_mask"] * counted[:, None]


def write_at_masked_positions(batch: Batch, array: jax.Array, values: jax.Array) -> jax.Array:
    """Return an array `[batch, length]` with values, `[batch, predictions]`, at masked positions of positive weight."""
    length = array.shape[1]
    positions = jnp.where(batch["masked_weights"] > 0, batch["masked_positions"], length)

    def write_row_at_positions(row: jax.Array, positions: jax.Array, values: jax.Array) -> jax.Array:
        return row.at[positions].set(values, mode="drop")

    return jax.vmap(write_row_at_positions)(array, positions, values)


def original_tokens(batch: Batch) -> jax.Array:
    """Return the sequences before masking, int32 `[batch, length]`."""
    return write_at_masked_positions(batch, batch["input_ids"], batch["masked_labels"])


class Mean(NamedTuple):
    """A weighted mean, kept as two sums that add up exactly over micro-batches, steps, devices and hosts."""

    total: Any  # float32 scalar, sum of value x weight
    weight: Any  # float32 scalar, sum of weights

    @classmethod
    def of(cls, values: jax.Array, weights: jax.Array) -> "Mean":
        """Return the weighted mean of the values; values and weights are float32 arrays of equal shape."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    def value(self) -> float:
        """Return the mean, total / weight; nan if no value was added."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


def fetch_means(means: dict[str, Mean]) -> dict[str, Mean]:
    """Return the means as Python floats, fetched from the device, so that later sums are in double precision."""
    return {name: Mean(float(mean.total), float(mean.weight)) for name, mean in jax.device_get(means).items()}


def merge_means(left: dict[str, Mean], right: dict[str, Mean]) -> dict[str, Mean]:
    """Return the sum of two dictionaries of means with the same names; `left` may be empty."""
    return {
        name: Mean(left[name].total + mean.total, left[name].weight + mean.weight) if name in left else mean
        for name, mean in right.items()
    }


def mean_values(means: dict[str, Mean]) -> dict[str, float]:
    """Return the value of each mean by name, and as `loss` the sum of the means whose names end in `_loss`.

    If a mean has the name `loss`, its value replaces the sum.
    """
    by_name = {name: mean.value() for name, mean in means.items()}
    return {"loss": sum(value for name, value in by_name.items() if name.endswith("_loss"))} | by_name
