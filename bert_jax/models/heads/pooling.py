"""From the tokens of a sequence to one vector: ways of pooling, as rows of one table, and the layer behind them."""

from collections.abc import Callable, Mapping

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.dropout import dropout
from bert_jax.models.heads.linear import dense
from bert_jax.models.layers import ACTIVATIONS
from bert_jax.models.norms import norm_layer

SMALLEST = 1e-12  # added to the square of a length

Batch = Mapping[str, jax.Array]


class Pooler(nn.Module):
    """Dense layer, activation and, in ModernBERT, norm: `[..., hidden]` in and out; `seed` as in `dropout`.

    Without a dense layer there is no activation either.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    activation: str

    def setup(self) -> None:
        config = self.config
        self.dense = dense(config, self.dtype, config.hidden_size) if config.pooler_dense else None
        if self.dense:
            nn.share_scope(self, self.dense)  # its parameters are the pooler's own
        self.norm = norm_layer(config, self.dtype) if config.pooler_norm else None

    def __call__(self, x: jax.Array, seed: jax.Array | None) -> jax.Array:
        config = self.config
        x = dropout(x, config.classifier_dropout if config.pooler_dropout else 0.0, seed)
        x = ACTIVATIONS[self.activation](self.dense(x)) if self.dense else x
        return x if self.norm is None else self.norm(x)


def first(hidden: jax.Array, mask: jax.Array, batch: Batch) -> jax.Array:
    """The first token, [CLS], of each example."""
    if "segment_ids" not in batch:
        return hidden[:, 0]
    chosen = jnp.take_along_axis(hidden, batch["cls_positions"][:, :, None], axis=1)
    return chosen.reshape(-1, hidden.shape[-1])


def mean(hidden: jax.Array, mask: jax.Array, batch: Batch) -> jax.Array:
    """The mean of the tokens of each example, without padding; 0 for an absent one."""
    if "segment_ids" in batch:
        examples = 1 + jnp.arange(batch["cls_positions"].shape[1])
        chosen = batch["segment_ids"][:, None, :] == examples[:, None]  # [batch, examples, length]
    else:
        chosen = mask[:, None, :] != 0
    weights = chosen / jnp.maximum(chosen.sum(-1, keepdims=True), 1)
    pooled = jnp.einsum("bel,blh->beh", weights.astype(jnp.float32), hidden, preferred_element_type=jnp.float32)
    return pooled.reshape(-1, hidden.shape[-1]).astype(hidden.dtype)


def unit_length(vectors: jax.Array) -> jax.Array:
    """Return `[..., hidden]` divided by its length; a vector of zeros stays one."""
    return vectors / jnp.sqrt(jnp.sum(vectors * vectors, axis=-1, keepdims=True) + SMALLEST)


# (hidden `[batch, length, hidden]`, mask `[batch, length]`, batch) -> `[batch, hidden]`; of packed sequences, with
# `segment_ids` and `cls_positions`, `[batch * examples, hidden]`.
POOLINGS: dict[str, Callable[[jax.Array, jax.Array, Batch], jax.Array]] = {"first": first, "mean": mean}
