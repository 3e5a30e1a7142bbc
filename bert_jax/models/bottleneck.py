"""MobileBERT's block (Sun et al. 2020): attention and several MLPs, narrower than the residual stream around them."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import Surroundings
from bert_jax.models.attention.self_attention import SelfAttention
from bert_jax.models.dropout import dropout
from bert_jax.models.layers import Linear, block_width, deviations, whole
from bert_jax.models.mlps import MLPS
from bert_jax.models.norms import norm_layer
from bert_jax.parallel.sharding import constrain


class BottleneckBlock(nn.Module):
    """`[batch, length, hidden]` in and out; attention and MLPs are `bottleneck_size` wide.

    Two maps with norms narrow the input: to a residual stream within the block, and to what queries and keys read;
    values read the input itself. Sums are normalized, within the block and around it. Dropout is on the probabilities
    and on the output alone.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # compute.attention

    @nn.compact
    def __call__(
        self, x: jax.Array, seeds: jax.Array | None, surroundings: Surroundings, skip_first_norm: None = None
    ) -> jax.Array:
        """`seeds`: uint32 `[3, 2]`, of the dropout; `skip_first_norm`: as in Block, where no norm reads an input."""
        config, dtype, start = self.config, self.dtype, deviations(self.config)
        on_probabilities, _, on_output = (None,) * 3 if seeds is None else seeds
        wide, narrow = config.hidden_size, block_width(config)

        def narrowed(name: str) -> jax.Array:
            y = Linear((wide, narrow), ("embed", "features"), start.inner, dtype, name=name)(x)
            return norm_layer(config, dtype, name=f"{name}_norm")(y)

        y, compared = narrowed("input"), narrowed("attention_input")
        attention = SelfAttention(config, dtype, self.attention, name="attention")
        y = y + whole(attention(compared, surroundings, on_probabilities, read=x))
        y = norm_layer(config, dtype, name="attention_norm")(y)
        for number in range(config.bottleneck_mlps - 1):
            y = _MLP(config, dtype, name=f"mlp_{number}")(y)
        y = norm_layer(config, dtype, name="mlp_norm")(y + whole(MLPS[config.mlp](config, dtype, y)))
        output = Linear((narrow, wide), ("features", "embed"), start.output, dtype, name="output")(y)
        x = norm_layer(config, dtype, name="output_norm")(x + dropout(output, config.dropout, on_output))
        return constrain(x, "batch", "length", "features")


class _MLP(nn.Module):
    """An MLP before the last: the names of its parameters are those of the last, in a scope of their own."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, y: jax.Array) -> jax.Array:
        y = y + whole(MLPS[self.config.mlp](self.config, self.dtype, y))
        return norm_layer(self.config, self.dtype, name="mlp_norm")(y)
