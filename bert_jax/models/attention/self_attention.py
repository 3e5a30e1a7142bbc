"""The attention layer of the encoder."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import attention_inputs
from bert_jax.models.attention.kernels import KERNELS
from bert_jax.models.layers import Linear, keep
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.sharding import constrain


class SelfAttention(nn.Module):
    """`x` `[batch, length, hidden]` -> `[batch, length, hidden]`.

    `mask`: int32 `[batch, length]`, 1 where a key may be read; `segments`: likewise of packed sequences, or None;
    `seed`: uint32 `[2]`, of the dropout on the probabilities, or None.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    kernel: str  # compute.attention

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, segments: jax.Array | None, seed: jax.Array | None) -> jax.Array:
        config, hidden = self.config, self.config.hidden_size
        linear = functools.partial(Linear, (hidden, hidden), stddev=config.initializer_range, dtype=self.dtype)
        q, k, v = (
            keep(constrain(linear(axes=("embed", "heads"), name=name)(x), "batch", "length", "heads"))
            for name in ("query", "key", "value")
        )
        scheme = POSITIONS[config.positions]
        if scheme.rotate:
            q, k = (scheme.rotate(config, x, segments) for x in (q, k))
        bias = scheme.bias(self, config, x.shape[1]) if scheme.bias else None
        rate = 0.0 if seed is None else config.attention_dropout
        inputs = attention_inputs(q, k, v, mask, segments, config.num_heads, seed if rate else None, bias)
        context = KERNELS[self.kernel].attend(inputs, rate)
        return linear(axes=("heads", "embed"), name="output")(keep(context))
