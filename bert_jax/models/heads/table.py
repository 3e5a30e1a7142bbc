"""HEADS: a function a head, those of pretraining and of the tasks."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.dropout import dropout
from bert_jax.models.heads.answers import QUESTION_LOGIT, AnswerHead, in_question
from bert_jax.models.heads.linear import ExtraTable, classifier, dense
from bert_jax.models.heads.pooling import POOLINGS, unit_length
from bert_jax.models.layers import ACTIVATIONS, masked_width, param
from bert_jax.models.norms import norm_layer
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
    tokens: jax.Array  # `hidden` as heads of tokens read it: as it is, or each through the pooler
    pooled: Any  # [batch, hidden] where a head reads it, else None; [batch * examples, hidden] of packed sequences
    seed: jax.Array | None  # of the dropout before a classifier


@jax.custom_vjp
def _similarity(x: jax.Array, table: jax.Array) -> jax.Array:
    """`[n, width]` and `[vocab, width]` of one dtype -> float32 `[n, vocab]`."""
    return jnp.einsum("nh,vh->nv", x, table, preferred_element_type=jnp.float32)


def _keep_similarity(x: jax.Array, table: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _similarity(x, table), (x, table)


def _pull_similarity(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, table = kept
    gradient = gradient.astype(x.dtype)  # a GPU multiplies float32 at half the speed, a TPU casts it itself
    return jnp.einsum("nv,vh->nh", gradient, table), jnp.einsum("nv,nh->vh", gradient, x)


_similarity.defvjp(_keep_similarity, _pull_similarity)


class MaskedTokenHead(nn.Module):
    """`x` `[batch, predictions, hidden]`, token table `[padded_vocab, width]` -> float32 logits over its rows."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        config, width = self.config, masked_width(self.config)
        activation = ACTIVATIONS[config.masked_activation or config.activation]
        x = activation(dense(config, self.dtype, width, "dense")(x))
        x = norm_layer(config, self.dtype, "norm", config.masked_norm)(x)
        if config.masked_extra_table:
            extra = ExtraTable(config, (table.shape[0], width - table.shape[1]), name="extra_table")
            table = jnp.concatenate([table, extra()], axis=1)
        bias = param(self, "bias", nn.initializers.zeros, table.shape[:1], ("vocab",))
        bias = jnp.where(jnp.arange(table.shape[0]) < config.vocab_size, bias, PADDING_LOGIT)
        # Two matrices, for the same reason as in Linear.
        logits = _similarity(x.reshape(-1, width), table.astype(self.dtype))
        return constrain(logits + bias, "batch", "logits").reshape(*x.shape[:2], -1)


class ReplacedTokenHead(nn.Module):
    """ELECTRA's discriminator (Clark et al. 2020): `[batch, length, hidden]` -> logits `[batch, length]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        config = self.config
        x = ACTIVATIONS[config.activation](dense(config, self.dtype, config.hidden_size, "dense")(x))
        return classifier(config, self.dtype, 1, "output")(x)[..., 0]


def masked_token(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`mlm_logits` `[batch, predictions, padded_vocab]` at `masked_positions`, -1e9 beyond the vocabulary."""
    masked = jnp.take_along_axis(x.hidden, x.batch["masked_positions"][:, :, None], axis=1)
    return {"mlm_logits": MaskedTokenHead(config, dtype, name=head.name)(masked, x.table)}


def next_token(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`next_logits` `[batch, length - 1, padded_vocab]`, of the token after each but the last; for causal models."""
    return {"next_logits": MaskedTokenHead(config, dtype, name=head.name)(x.hidden[:, :-1], x.table)}


def next_sentence(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`nsp_logits` `[batch, 2]`; class 1: the second sentence is not the next one, or in ALBERT comes first.

    Of packed sequences `[batch * examples, 2]`, as for all heads that read the pooler.
    """
    return {"nsp_logits": classifier(config, dtype, 2, head.name)(x.pooled)}


def replaced_token(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`replaced_logits` `[batch, length]`, above 0 where a token seems replaced."""
    return {"replaced_logits": ReplacedTokenHead(config, dtype, name=head.name)(x.hidden)}


def sequence_classification(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`sequence_logits` `[batch, classes]`; with one class, the value of a regression."""
    pooled = dropout(x.pooled, config.classifier_dropout, x.seed)
    return {"sequence_logits": classifier(config, dtype, head.classes, head.name)(pooled)}


def multiple_choice(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`choice_logits` `[batch, choices]` of inputs `[batch, choices, length]`: one score per choice."""
    pooled = dropout(x.pooled, config.classifier_dropout, x.seed)
    scores = classifier(config, dtype, 1, head.name)(pooled)
    return {"choice_logits": scores.reshape(x.batch["input_ids"].shape[:-1])}


def token_classification(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`token_logits` `[batch, length, classes]`."""
    tokens = dropout(x.tokens, config.classifier_dropout, x.seed)
    return {"token_logits": classifier(config, dtype, head.classes, head.name)(tokens)}


def question_answering(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`start_logits` and `end_logits` `[batch, length]`."""
    if config.question_separator_id is not None:
        question = in_question(x.batch["input_ids"].reshape(x.hidden.shape[:2]), config.question_separator_id)
        logits = AnswerHead(config, dtype, name=head.name)(x.tokens, x.seed).astype(jnp.float32)
        logits += jnp.where(question, QUESTION_LOGIT, 0.0)[..., None]
    else:  # BERT has no dropout here
        tokens = dropout(x.tokens, config.classifier_dropout if config.pooler_on_tokens else 0.0, x.seed)
        logits = classifier(config, dtype, 2, head.name)(tokens)
    return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def hidden_states(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`hidden_states` `[layers + 1, batch, length, hidden]`, the first the input of the first block."""
    return {"hidden_states": x.every}


def last_hidden_state(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`last_hidden_state` `[batch, length, hidden]`."""
    return {"last_hidden_state": x.hidden}


def sentence_embedding(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`sentence_vectors` `[batch, texts, hidden]` of inputs `[batch, texts, length]`: means of tokens, of length 1."""
    ids = x.batch["input_ids"]
    mask = x.batch["attention_mask"].reshape(-1, ids.shape[-1])
    vectors = unit_length(POOLINGS["mean"](x.hidden, mask, {}).astype(jnp.float32))
    return {"sentence_vectors": vectors.reshape(*ids.shape[:-1], -1)}


def pooled(config: EncoderConfig, dtype: jnp.dtype, head: Head, x: Encoded) -> Arrays:
    """`pooled` `[batch, hidden]`: what `model.pooling` makes of a sequence, through the pooler."""
    return {"pooled": x.pooled}


HEADS: dict[str, Callable[[EncoderConfig, jnp.dtype, Head, Encoded], Arrays]] = {
    "masked_token": masked_token,
    "next_token": next_token,
    "next_sentence": next_sentence,
    "replaced_token": replaced_token,
    "sequence_classification": sequence_classification,
    "multiple_choice": multiple_choice,
    "token_classification": token_classification,
    "question_answering": question_answering,
    "hidden_states": hidden_states,
    "last_hidden_state": last_hidden_state,
    "pooled": pooled,
    "sentence_embedding": sentence_embedding,
}
# Heads that read a sequence through the pooler, and those that read each token.
POOLED = frozenset({"next_sentence", "sequence_classification", "multiple_choice", "pooled"})
OF_TOKENS = frozenset({"token_classification", "question_answering"})
OF_PRETRAINING = frozenset({"masked_token", "next_token", "next_sentence", "replaced_token"})
OF_TASKS = OF_TOKENS | {"sequence_classification", "multiple_choice"}
