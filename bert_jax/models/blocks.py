"""Transformer blocks: attention and MLP with dropout, norms and a residual stream.

The rows of `BLOCKS` join a sublayer to the residual stream (`model.norm_position`); the rows of `MLPS` are the MLPs
(`model.mlp`). `BottleneckBlock` is MobileBERT's block (Sun et al. 2020), whose attention and MLPs are narrower than the
residual stream.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import AttentionMetadata
from bert_jax.models.attention.self_attention import SelfAttention
from bert_jax.models.dropout import dropout
from bert_jax.models.init import init_scales
from bert_jax.models.layers import ACTIVATIONS, Biased, Linear, add_bias, save_except_on_gpu, save_on_gpu
from bert_jax.models.norms import Added, norm_layer
from bert_jax.parallel.sharding import constrain

Sublayer = Callable[[jax.Array], Added]
Normalize = Callable[..., jax.Array]  # (x) or (x, Added) -> the normalized array or sum
Flag = bool | jax.Array | None  # a flag of a layer; an array, bool [], if one program serves all layers


class Residual(NamedTuple):
    """A row of BLOCKS: the form in which a sublayer and its norm join the residual stream."""

    join: Callable[[jax.Array, Sublayer, Normalize], jax.Array]  # (x, sublayer, norm) -> the next x
    norm_reads_input: bool  # if the norm reads the sublayer's input, the first block can omit its first norm


def post_norm(x: jax.Array, sublayer: Sublayer, norm: Normalize) -> jax.Array:
    """Normalize the sum of `x` and the sublayer's output (Vaswani et al. 2017, and BERT)."""
    return norm(x, sublayer(x))


def pre_norm(x: jax.Array, sublayer: Sublayer, norm: Normalize) -> jax.Array:
    """Normalize only the input of the sublayer, not the sum (Xiong et al. 2020)."""
    return x + sublayer(norm(x)).array()


BLOCKS: dict[str, Residual] = {
    "post": Residual(post_norm, norm_reads_input=False),
    "pre": Residual(pre_norm, norm_reads_input=True),
}


def plain_mlp(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> Biased:
    """Apply two linear maps with an activation between them (Vaswani et al. 2017)."""
    inner = _mlp_up(config, dtype, x, "mlp_up")
    return _mlp_down(config, dtype, ACTIVATIONS[config.activation](inner), x.shape[-1])


def gated_mlp(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> Biased:
    """Multiply the activation of a linear map by a second map, then apply a third map (GEGLU, Shazeer 2020)."""
    gate, value = (_mlp_up(config, dtype, x, name) for name in ("mlp_gate", "mlp_up"))
    return _mlp_down(config, dtype, ACTIVATIONS[config.activation](gate) * value, x.shape[-1])


def _mlp_up(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array, name: str) -> jax.Array:
    """Map `[batch, length, width]` to `[batch, length, mlp_size]`."""
    sizes, stddev = (x.shape[-1], config.mlp_size), init_scales(config).inner
    linear = Linear(sizes, ("embed", "mlp"), stddev, dtype, config.mlp_bias, save_product=True, name=name)
    return save_except_on_gpu(constrain(linear(x), "batch", "length", "mlp"))


def _mlp_down(config: EncoderConfig, dtype: jnp.dtype, inner: jax.Array, width: int) -> Biased:
    """Map `[batch, length, mlp_size]` to `[batch, length, width]`, without adding the bias."""
    sizes, stddev = (config.mlp_size, width), init_scales(config).output
    return Linear(sizes, ("mlp", "embed"), stddev, dtype, config.mlp_bias, name="mlp_down").product_and_bias(
        save_on_gpu(inner)
    )


# A row is a function that the block calls: `[batch, length, width]` in and out. The block owns the parameters of the
# MLP's layers. If the result is Biased, the block adds the last bias.
MLPS: dict[str, Callable[[EncoderConfig, jnp.dtype, jax.Array], jax.Array | Biased]] = {
    "plain": plain_mlp,
    "gated": gated_mlp,
}


class Block(nn.Module):
    """A block of attention and MLP: `[batch, length, hidden]` in and out."""

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # value of `config.compute.attention`

    @nn.compact
    def __call__(
        self, x: jax.Array, seeds: jax.Array | None, metadata: AttentionMetadata, skip_first_norm: Flag = None
    ) -> jax.Array:
        """Apply the block; the seeds of dropout are uint32 `[3, 2]`, and `skip_first_norm` omits the first norm."""
        config, join = self.config, BLOCKS[self.config.norm_position].join
        probabilities_seed, attention_seed, mlp_seed = (None,) * 3 if seeds is None else seeds
        attention = SelfAttention(config, self.dtype, self.attention, name="attention")
        attention_norm = norm_layer(config, self.dtype, name="attention_norm")
        mlp_norm = norm_layer(config, self.dtype, name="mlp_norm")

        def attend(x: jax.Array) -> Added:
            return Added(attention(x, metadata, probabilities_seed), config.dropout, attention_seed)

        def apply_mlp(x: jax.Array) -> Added:
            return Added(MLPS[config.mlp](config, self.dtype, x), config.dropout, mlp_seed)

        def first_norm(x: jax.Array, *added: Added) -> jax.Array:
            if skip_first_norm is None or skip_first_norm is False:
                return attention_norm(x, *added)
            return x if skip_first_norm is True else jnp.where(skip_first_norm, x, attention_norm(x))

        x = join(x, attend, first_norm)
        x = join(x, apply_mlp, mlp_norm)
        return constrain(x, "batch", "length", "features")


class BottleneckBlock(nn.Module):
    """A block of MobileBERT: `[batch, length, hidden]` in and out; attention and MLPs are `bottleneck_size` wide.

    One map with a norm projects the input to an inner residual stream. A second map with a norm projects the input to
    the input of queries and keys. Values are computed from the wide input. Every residual sum inside the block and at
    the end of the block is normalized. Dropout applies only to the attention probabilities and to the output of the
    block.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # value of `config.compute.attention`

    @nn.compact
    def __call__(
        self, x: jax.Array, seeds: jax.Array | None, metadata: AttentionMetadata, skip_first_norm: None = None
    ) -> jax.Array:
        """Apply the block; the seeds of dropout are uint32 `[3, 2]`, and `skip_first_norm` has no effect."""
        config, dtype, scales = self.config, self.dtype, init_scales(self.config)
        probabilities_seed, _, output_seed = (None,) * 3 if seeds is None else seeds
        wide, narrow = config.hidden_size, config.block_width

        def narrowed(name: str) -> jax.Array:
            y = Linear((wide, narrow), ("embed", "features"), scales.inner, dtype, name=name)(x)
            return norm_layer(config, dtype, name=f"{name}_norm")(y)

        y, attention_input = narrowed("input"), narrowed("attention_input")
        attention = SelfAttention(config, dtype, self.attention, name="attention")
        y = y + add_bias(attention(attention_input, metadata, probabilities_seed, value_input=x))
        y = norm_layer(config, dtype, name="attention_norm")(y)
        for index in range(config.bottleneck_mlps - 1):
            y = _InnerMlp(config, dtype, name=f"mlp_{index}")(y)
        y = norm_layer(config, dtype, name="mlp_norm")(y + add_bias(MLPS[config.mlp](config, dtype, y)))
        output = Linear((narrow, wide), ("features", "embed"), scales.output, dtype, name="output")(y)
        x = norm_layer(config, dtype, name="output_norm")(x + dropout(output, config.dropout, output_seed))
        return constrain(x, "batch", "length", "features")


class _InnerMlp(nn.Module):
    """An MLP with a norm, before the last MLP of a block; both have equal parameter names, in separate scopes."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, y: jax.Array) -> jax.Array:
        y = y + add_bias(MLPS[self.config.mlp](self.config, self.dtype, y))
        return norm_layer(self.config, self.dtype, name="mlp_norm")(y)
