"""The MLP of a block, as rows of one table keyed by `model.mlp`."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import ACTIVATIONS, Biased, Linear, deviations, keep_elsewhere, keep_on_gpu
from bert_jax.parallel.sharding import constrain


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
