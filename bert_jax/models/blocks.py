"""The transformer block: attention and MLP with dropout, norms and the residual stream around them.

The MLP of a block, as rows of one table keyed by `model.mlp`.

MobileBERT's block (Sun et al. 2020): attention and several MLPs, narrower than the residual stream around them.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import Surroundings
from bert_jax.models.attention.self_attention import SelfAttention
from bert_jax.models.dropout import dropout
from bert_jax.models.layers import (
    ACTIVATIONS,
    Biased,
    Linear,
    block_width,
    deviations,
    keep_elsewhere,
    keep_on_gpu,
    whole,
)
from bert_jax.models.norms import Added, norm_layer
from bert_jax.parallel.sharding import constrain

Sublayer = Callable[[jax.Array], Added]
Normalize = Callable[..., jax.Array]  # of an array, or of its sum with what a sublayer adds
Flag = bool | jax.Array | None  # of a layer; an array, bool [], where one program serves all layers


class Residual(NamedTuple):
    """A row of BLOCKS: how a sublayer and its norm join the residual stream."""

    join: Callable[[jax.Array, Sublayer, Normalize], jax.Array]  # (x, sublayer, norm) -> the next x
    norm_reads_input: bool  # so that the first block can do without


def post(x: jax.Array, sublayer: Sublayer, norm: Normalize) -> jax.Array:
    """Normalize the sum (Vaswani et al. 2017, and BERT)."""
    return norm(x, sublayer(x))


def pre(x: jax.Array, sublayer: Sublayer, norm: Normalize) -> jax.Array:
    """Normalize what the sublayer reads; the sum stays as it is (Xiong et al. 2020)."""
    return x + sublayer(norm(x)).array()


BLOCKS: dict[str, Residual] = {
    "post": Residual(post, norm_reads_input=False),
    "pre": Residual(pre, norm_reads_input=True),
}


class Block(nn.Module):
    """`[batch, length, hidden]` in and out."""

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # compute.attention

    @nn.compact
    def __call__(
        self, x: jax.Array, seeds: jax.Array | None, surroundings: Surroundings, skip_first_norm: Flag = None
    ) -> jax.Array:
        """`seeds`: uint32 `[3, 2]`, of the dropout; `skip_first_norm`: what the attention reads is not normalized."""
        config, join = self.config, BLOCKS[self.config.norm_position].join
        on_probabilities, on_attention, on_mlp = (None,) * 3 if seeds is None else seeds
        attention = SelfAttention(config, self.dtype, self.attention, name="attention")
        attention_norm = norm_layer(config, self.dtype, name="attention_norm")
        mlp_norm = norm_layer(config, self.dtype, name="mlp_norm")

        def attend(x: jax.Array) -> Added:
            return Added(attention(x, surroundings, on_probabilities), config.dropout, on_attention)

        def transform(x: jax.Array) -> Added:
            return Added(MLPS[config.mlp](config, self.dtype, x), config.dropout, on_mlp)

        def first_norm(x: jax.Array, *added: Added) -> jax.Array:
            if skip_first_norm is None or skip_first_norm is False:
                return attention_norm(x, *added)
            return x if skip_first_norm is True else jnp.where(skip_first_norm, x, attention_norm(x))

        x = join(x, attend, first_norm)
        x = join(x, transform, mlp_norm)
        return constrain(x, "batch", "length", "features")


def plain(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> Biased:
    """Two linear maps with an activation between them (Vaswani et al. 2017)."""
    width = x.shape[-1]
    inner = keep_elsewhere(constrain(_up(config, dtype, width, "mlp_up")(x), "batch", "length", "mlp"))
    return _down(config, dtype, width).biased(keep_on_gpu(ACTIVATIONS[config.activation](inner)))


def gated(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> Biased:
    """The activation of one linear map times another, then a third (Shazeer 2020: GEGLU with gelu)."""
    width = x.shape[-1]
    gate, value = (
        keep_elsewhere(constrain(_up(config, dtype, width, name)(x), "batch", "length", "mlp"))
        for name in ("mlp_gate", "mlp_up")
    )
    return _down(config, dtype, width).biased(keep_on_gpu(ACTIVATIONS[config.activation](gate) * value))


def _up(config: EncoderConfig, dtype: jnp.dtype, width: int, name: str) -> Linear:
    sizes = (width, config.mlp_size)
    return Linear(
        sizes, ("embed", "mlp"), deviations(config).inner, dtype, config.mlp_bias, keep_product=True, name=name
    )


def _down(config: EncoderConfig, dtype: jnp.dtype, width: int) -> Linear:
    sizes = (config.mlp_size, width)
    return Linear(sizes, ("mlp", "embed"), deviations(config).output, dtype, config.mlp_bias, name="mlp_down")


# A row is called inside the block, whose parameters its layers become: `[batch, length, width]` in and out. Its last
# bias may be still to be added.
MLPS: dict[str, Callable[[EncoderConfig, jnp.dtype, jax.Array], jax.Array | Biased]] = {"plain": plain, "gated": gated}


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
