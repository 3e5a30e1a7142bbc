"""Tokens of padded sequences, moved into rows that the encoder reads, and back (tasks/rows.py assigns the places).

A batch in rows has two more arrays. For each place in the rows, `row_tokens`, int32 `[rows, row length]`, has the index
of the place's token in the flattened padded sequences; an empty place has -1. For each token, `token_places`, int32 in
the shape of `input_ids`, has the index of the token's place in the flattened rows, or -1 if the token is in no row.

A padded batch may have `unread_tokens`, int32 in the shape of `input_ids`: 1 for a token that attends to the
sequence, but to which no token attends.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig

UNREAD = "unread_tokens"


class EncoderInputs(NamedTuple):
    """The inputs of the encoder, int32 `[rows, length]`."""

    input_ids: jax.Array
    token_type_ids: jax.Array
    attention_mask: jax.Array
    segments: jax.Array | None  # 1, 2, ... for the sequences of a row, 0 for empty places; None: one sequence per row


def reason_for_padding(config: EncoderConfig) -> str:
    """Return the reason why sequences of this architecture cannot share a row, as text; "" if they can."""
    if config.block_size is not None:
        return "block-sparse attention has blocks that begin at the first token of a row"
    if config.separator_id is not None:
        return "global tokens attend to the whole row"
    return ""


def encoder_inputs(batch: Mapping[str, jax.Array]) -> EncoderInputs:
    """Return the inputs of the encoder: the rows of the batch, or the padded sequences if the batch has no rows."""
    if "row_tokens" in batch:
        return _encoder_inputs_in_rows(batch)
    length = batch["input_ids"].shape[-1]  # each choice of an example is one sequence
    ids, types, mask = (batch[name].reshape(-1, length) for name in ("input_ids", "token_type_ids", "attention_mask"))
    if UNREAD in batch:
        mask = jnp.where(batch[UNREAD].reshape(mask.shape) != 0, 0, mask)
    return EncoderInputs(ids, types, mask, batch.get("segment_ids"))


def _encoder_inputs_in_rows(batch: Mapping[str, jax.Array]) -> EncoderInputs:
    """Return the rows of a batch as inputs of the encoder; the segments of a row are its sequences."""
    length = batch["input_ids"].shape[-1]
    assert UNREAD not in batch, "a row has no place for a token that no token reads; pad these sequences"
    tokens = batch["row_tokens"]
    present = tokens >= 0
    ids, types = (jnp.where(present, batch[name].reshape(-1)[tokens], 0) for name in ("input_ids", "token_type_ids"))
    sequence = jnp.where(present, tokens // length, -1)
    begins = jnp.pad(sequence[:, 1:] != sequence[:, :-1], ((0, 0), (1, 0)), constant_values=True)
    mask = present.astype(jnp.int32)
    return EncoderInputs(ids, types, mask, jnp.cumsum(begins, axis=1, dtype=jnp.int32) * mask)


def padded_sequences(hidden: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Return hidden states in rows as padded sequences `[sequences, length, hidden]`; without rows, return `hidden`."""
    if "row_tokens" not in batch:
        return hidden
    places = batch["token_places"]
    padded = _gather_rows(hidden.reshape(-1, hidden.shape[-1]), places.reshape(-1), batch["row_tokens"].reshape(-1))
    return padded.reshape(-1, places.shape[-1], hidden.shape[-1])


def hidden_states_at_positions(hidden: jax.Array, positions: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Return the hidden states of the tokens at `positions`, int `[sequences, n]`, as `[sequences, n, hidden]`."""
    if "row_tokens" not in batch:
        return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)
    places = batch["token_places"].reshape(len(positions), -1)
    places = jnp.take_along_axis(places, positions, axis=1)
    return jnp.where((places >= 0)[:, :, None], hidden.reshape(-1, hidden.shape[-1])[places], 0)


def sequence_means(hidden: jax.Array, batch: Mapping[str, jax.Array]) -> jax.Array:
    """Return the mean of the tokens of each sequence, `[sequences, hidden]`; 0 for a sequence without tokens.

    For a batch in rows, the means are a product of two matrices, because a gather is slow on CPUs.
    """
    if "row_tokens" in batch:
        places = batch["token_places"]
        length = places.shape[-1]
        tokens = batch["row_tokens"].reshape(1, -1)
        of_sequence = (tokens >= 0) & (tokens // length == jnp.arange(places.size // length)[:, None])
        hidden = hidden.reshape(1, -1, hidden.shape[-1])
        of_sequence = of_sequence[None]
    else:
        mask = batch["attention_mask"]
        of_sequence = mask.reshape(-1, 1, mask.shape[-1]) != 0
    weights = of_sequence / jnp.maximum(of_sequence.sum(-1, keepdims=True), 1)
    means = jnp.einsum(
        "bsl,blh->bsh",
        weights.astype(jnp.float32),
        hidden,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return means.reshape(-1, hidden.shape[-1]).astype(hidden.dtype)


@jax.custom_vjp
def _gather_rows(x: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
    """Return an array whose row i is row `source[i]` of `x`, or 0 for -1; `target` is the inverse of `source`.

    The gradient is a gather, too, since a scatter is slow.
    """
    return jnp.where((source >= 0)[:, None], x[source], 0)


def _move_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None, None]:
    source, target = saved
    return _gather_rows(gradient, target, source), None, None


_gather_rows.defvjp(lambda x, source, target: (_gather_rows(x, source, target), (source, target)), _move_backward)
