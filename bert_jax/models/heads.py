"""Heads on the encoder, as rows of one table: those of pretraining and of the tasks."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import ACTIVATIONS, Linear, param, table_width
from bert_jax.models.norms import NORMS
from bert_jax.parallel.sharding import constrain

PADDING_LOGIT = -1e9  # of vocabulary rows that exist only to fill up the table: exp of it is exactly 0

Batch = Mapping[str, jax.Array]
Arrays = dict[str, jax.Array]


class Head(NamedTuple):
    """The name of a row of HEADS, and the number of classes where it classifies."""

    name: str
    classes: int = 0


class Encoded(NamedTuple):
    """The arrays that heads read."""

    batch: Batch
    hidden: jax.Array  # [batch, length, hidden], of the last layer
    every: Any  # [layers + 1, batch, length, hidden] where a head reads it; else None
    table: jax.Array  # float32 [padded_vocab, table_width]
    pooled: Any  # [batch, hidden], of the first token, likewise; [batch * examples, hidden] of packed sequences
    seed: jax.Array | None  # of the dropout before a classifier


class MaskedTokenHead(nn.Module):
    """`x` `[batch, predictions, hidden]`, token table `[padded_vocab, width]` -> float32 logits over its rows."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        config, sizes = self.config, (self.config.hidden_size, table_width(self.config))
        activation = ACTIVATIONS[config.masked_activation or config.activation]
        x = Linear(sizes, ("embed", "features"), config.initializer_range, self.dtype, name="dense")(x)
        x = NORMS[config.norm](config.layer_norm_epsilon, self.dtype, name="norm")(activation(x))
        bias = param(self, "bias", nn.initializers.zeros, table.shape[:1], ("vocab",))
        bias = jnp.where(jnp.arange(table.shape[0]) < config.vocab_size, bias, PADDING_LOGIT)
        # Two matrices, for the same reason as in Linear.
        logits = jnp.einsum(
            "nh,vh->nv", x.reshape(-1, sizes[1]), table.astype(self.dtype), preferred_element_type=jnp.float32
        )
        return constrain(logits + bias, "batch", "logits").reshape(*x.shape[:2], -1)


class ReplacedTokenHead(nn.Module):
    """ELECTRA's discriminator (Clark et al. 2020): `[batch, length, hidden]` -> logits `[batch, length]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        config, hidden = self.config, self.config.hidden_size
        x = Linear((hidden, hidden), ("embed", "features"), config.initializer_range, self.dtype, name="dense")(x)
        x = ACTIVATIONS[config.activation](x)
        return Linear((hidden, 1), ("embed", "classes"), config.initializer_range, self.dtype, name="output")(x)[..., 0]


def masked_token(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`mlm_logits` `[batch, predictions, padded_vocab]` at `masked_positions`, -1e9 beyond the vocabulary."""
    masked = jnp.take_along_axis(x.hidden, x.batch["masked_positions"][:, :, None], axis=1)
    return {"mlm_logits": MaskedTokenHead(config, dtype, name=head.name)(masked, x.table)}


def next_sentence(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`nsp_logits` `[batch, 2]`; class 1: the second sentence is not the next one, or in ALBERT comes first.

    Of packed sequences `[batch * examples, 2]`, as for all heads that read the pooler.
    """
    return {"nsp_logits": _classify(config, dtype, head.name, 2, x.pooled)}


def replaced_token(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`replaced_logits` `[batch, length]`, above 0 where a token seems replaced."""
    return {"replaced_logits": ReplacedTokenHead(config, dtype, name=head.name)(x.hidden)}


def sequence_classification(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`sequence_logits` `[batch, classes]`; with one class, the value of a regression."""
    pooled = dropout(x.pooled, config.classifier_dropout, x.seed)
    return {"sequence_logits": _classify(config, dtype, head.name, head.classes, pooled)}


def multiple_choice(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`choice_logits` `[batch, choices]` of inputs `[batch, choices, length]`: one score per choice."""
    pooled = dropout(x.pooled, config.classifier_dropout, x.seed)
    scores = _classify(config, dtype, head.name, 1, pooled)
    return {"choice_logits": scores.reshape(x.batch["input_ids"].shape[:-1])}


def token_classification(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`token_logits` `[batch, length, classes]`."""
    hidden = dropout(x.hidden, config.classifier_dropout, x.seed)
    return {"token_logits": _classify(config, dtype, head.name, head.classes, hidden)}


def question_answering(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`start_logits` and `end_logits` `[batch, length]`."""
    logits = _classify(config, dtype, head.name, 2, x.hidden)
    return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def hidden_states(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`hidden_states` `[layers + 1, batch, length, hidden]`, the first the input of the first block."""
    return {"hidden_states": x.every}


def pooled(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`pooled` `[batch, hidden]`: the first token through the pooler."""
    return {"pooled": x.pooled}


HEADS: dict[str, Callable[[EncoderConfig, jnp.dtype, Head, Encoded], Arrays]] = {
    "masked_token": masked_token,
    "next_sentence": next_sentence,
    "replaced_token": replaced_token,
    "sequence_classification": sequence_classification,
    "multiple_choice": multiple_choice,
    "token_classification": token_classification,
    "question_answering": question_answering,
    "hidden_states": hidden_states,
    "pooled": pooled,
}
# Heads that read the first token through the pooler.
POOLED = frozenset({"next_sentence", "sequence_classification", "multiple_choice", "pooled"})


class Network(nn.Module):
    """The encoder with `heads`, whose functions above describe inputs and outputs; outputs are float32.

    `segment_ids` in the batch, int32 `[batch, length]`, mean that sequences are packed; `cls_positions`, int32
    `[batch, examples]`, are then the positions of the examples' first tokens, 0 for an absent example.
    """

    config: EncoderConfig
    compute: ComputeConfig
    heads: tuple[Head, ...]

    @nn.compact
    def __call__(self, batch: Batch, rng: jax.Array | None) -> Arrays:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        names = {head.name for head in self.heads}
        encoder = Encoder(config, self.compute, "hidden_states" in names, name="encoder")
        length = batch["input_ids"].shape[-1]  # each choice of an example is a sequence of its own
        ids, types, mask = (
            batch[name].reshape(-1, length) for name in ("input_ids", "token_type_ids", "attention_mask")
        )
        hidden, every = encoder(ids, types, mask, batch.get("segment_ids"), rng)
        seeds = (None, None) if rng is None else dropout_seeds(jax.random.fold_in(rng, 1), (2,))
        pooled = self._pool(_first_tokens(hidden, batch), seeds[0]) if names & POOLED else None
        encoded = Encoded(batch, hidden, every, encoder.embeddings.token, pooled, seeds[1])
        arrays: Arrays = {}
        for head in self.heads:
            arrays |= HEADS[head.name](config, dtype, head, encoded)
        return {name: x.astype(jnp.float32) for name, x in arrays.items()}

    def _pool(self, first: jax.Array, seed: jax.Array | None) -> jax.Array:
        config = self.config
        sizes, dtype = (config.hidden_size, config.hidden_size), jnp.dtype(self.compute.dtype)
        first = dropout(first, config.classifier_dropout if config.pooler_dropout else 0.0, seed)
        pooler = Linear(sizes, ("embed", "features"), config.initializer_range, dtype, name="pooler")
        return ACTIVATIONS[config.pooler_activation](pooler(first))


def _first_tokens(hidden: jax.Array, batch: Batch) -> jax.Array:
    """`[batch, hidden]`; of packed sequences `[batch * examples, hidden]`."""
    if "segment_ids" not in batch:
        return hidden[:, 0]
    first = jnp.take_along_axis(hidden, batch["cls_positions"][:, :, None], axis=1)
    return first.reshape(-1, hidden.shape[-1])


def _classify(config: EncoderConfig, dtype: jnp.dtype, name: str, classes: int, x: jax.Array) -> jax.Array:
    return Linear((config.hidden_size, classes), ("embed", "classes"), config.initializer_range, dtype, name=name)(x)
