"""The transformer block: attention and MLP with dropout, norms and the residual stream around them."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import Surroundings
from bert_jax.models.attention.self_attention import SelfAttention
from bert_jax.models.mlps import MLPS
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
