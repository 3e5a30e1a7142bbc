"""The MLP of a block, as rows of one table keyed by `model.mlp`."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import ACTIVATIONS, Linear, keep
from bert_jax.parallel.sharding import constrain


def plain(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> jax.Array:
    """Two linear maps with an activation between them (Vaswani et al. 2017)."""
    up, down = (config.hidden_size, config.mlp_size), (config.mlp_size, config.hidden_size)
    inner = Linear(up, ("embed", "mlp"), config.initializer_range, dtype, name="mlp_up")(x)
    inner = ACTIVATIONS[config.activation](keep(constrain(inner, "batch", "length", "mlp")))
    return Linear(down, ("mlp", "embed"), config.initializer_range, dtype, name="mlp_down")(inner)


def gated(config: EncoderConfig, dtype: jnp.dtype, x: jax.Array) -> jax.Array:
    """The activation of one linear map times another, then a third (Shazeer 2020: GEGLU with gelu)."""
    up, down = (config.hidden_size, config.mlp_size), (config.mlp_size, config.hidden_size)
    linear = functools.partial(Linear, up, ("embed", "mlp"), config.initializer_range, dtype)
    gate, value = (keep(constrain(linear(name=name)(x), "batch", "length", "mlp")) for name in ("mlp_gate", "mlp_up"))
    inner = ACTIVATIONS[config.activation](gate) * value
    return Linear(down, ("mlp", "embed"), config.initializer_range, dtype, name="mlp_down")(inner)


# A row is called inside the block, whose parameters its layers become: `[batch, length, hidden]` in and out.
MLPS: dict[str, Callable[[EncoderConfig, jnp.dtype, jax.Array], jax.Array]] = {"plain": plain, "gated": gated}
