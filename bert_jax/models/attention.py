"""Multi-head self-attention (Vaswani et al. 2017) as in BERT: every position reads every unpadded one."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.dropout import dropout
from bert_jax.models.layers import Linear
from bert_jax.sharding import constrain

MASKED_SCORE = -1e9  # far below any score; finite, so that a row of padding alone gives no NaN


class SelfAttention(nn.Module):
    """`x` `[batch, length, hidden]`, `mask` int32 `[batch, length]` (1 = may be read) -> `[batch, length, hidden]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, seed: jax.Array | None) -> jax.Array:
        config = self.config
        hidden, heads = config.hidden_size, config.num_heads
        into, axes = (hidden, heads, hidden // heads), ("embed", "heads", "head_dim")
        q, k, v = (
            constrain(
                Linear(into, axes, config.initializer_range, self.dtype, name=name)(x),
                "batch", "length", "heads", "head_dim",
            )
            for name in ("query", "key", "value")
        )  # fmt: skip
        context = attend(q, k, v, mask, config.attention_dropout, seed)
        out = Linear(
            into[1:] + into[:1], axes[1:] + axes[:1], config.initializer_range, self.dtype, inputs=2, name="output"
        )
        return out(context)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array, rate: float, seed: jax.Array | None) -> jax.Array:
    """Softmax attention with dropout of `rate` on the probabilities; the softmax is float32.

    `q`, `k`, `v`: `[batch, length, heads, head_dim]`; `mask`: int32 `[batch, length]`, on the keys; result as `q`.
    """
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    scores = jnp.where(mask[:, None, None, :] != 0, scores, MASKED_SCORE)
    probabilities = dropout(jax.nn.softmax(scores), rate, seed).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities, v)
