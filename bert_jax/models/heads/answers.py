"""The head of question answering that reads tokens through an MLP, and no answer in the question (BigBird)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.dropout import dropout
from bert_jax.models.heads.linear import classifier
from bert_jax.models.layers import ACTIVATIONS, Linear, deviations
from bert_jax.models.norms import norm_layer

QUESTION_LOGIT = -1e6  # added to the logits of the question's tokens, as in transformers


class AnswerHead(nn.Module):
    """`x` `[batch, length, hidden]` -> logits `[batch, length, 2]`, by an MLP and a norm as those of a block in BERT.

    `seed` is uint32 `[2]`, of the dropout, or None.
    """

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, seed: jax.Array | None) -> jax.Array:
        config, start = self.config, deviations(self.config)
        up, down = (
            Linear(sizes, axes, start.inner, self.dtype, name=name)
            for name, sizes, axes in (
                ("mlp_up", (config.hidden_size, config.mlp_size), ("embed", "mlp")),
                ("mlp_down", (config.mlp_size, config.hidden_size), ("mlp", "embed")),
            )
        )
        inner = ACTIVATIONS[config.activation](up(dropout(x, config.dropout, seed)))
        other = None if seed is None else seed ^ jnp.uint32(1)
        x = norm_layer(config, self.dtype, "mlp_norm")(x + dropout(down(inner), config.dropout, other))
        return classifier(config, self.dtype, 2, "output")(x)


def in_question(input_ids: jax.Array, separator_id: int) -> jax.Array:
    """Return bool `[batch, length]`: the tokens up to the first separator, without [CLS]; none where there is none."""
    separators = input_ids == separator_id
    before = jnp.cumsum(separators, axis=1) - separators == 0
    return before & separators.any(axis=1, keepdims=True) & (jnp.arange(input_ids.shape[1]) > 0)
