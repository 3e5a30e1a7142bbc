"""Weights of the tokens of a batch, and arrays with values at the masks."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

Batch = Mapping[str, jax.Array]


def token_weights(batch: Batch) -> jax.Array:
    """Return 1 for each token and special token, 0 for padding and filler sequences, float32 `[batch, length]`."""
    rows = len(batch["input_ids"])
    counted = batch["example_weights"].reshape(rows, -1).max(1)
    return batch["attention_mask"] * counted[:, None]


def write_at_masks(batch: Batch, array: jax.Array, values: jax.Array) -> jax.Array:
    """Return `array` `[batch, length]`, in which masks of positive weight have `values` `[batch, predictions]`."""
    length = array.shape[1]
    positions = jnp.where(batch["masked_weights"] > 0, batch["masked_positions"], length)

    def write(row: jax.Array, positions: jax.Array, values: jax.Array) -> jax.Array:
        return row.at[positions].set(values, mode="drop")

    return jax.vmap(write)(array, positions, values)


def original_tokens(batch: Batch) -> jax.Array:
    """Return the sequences before masking, int32 `[batch, length]`."""
    return write_at_masks(batch, batch["input_ids"], batch["masked_labels"])
