"""The two linear maps of heads."""

import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import Linear, deviations


def dense(config: EncoderConfig, dtype: jnp.dtype, width: int, name: str | None = None) -> Linear:
    """Return the layer between the encoder and the last map of a head."""
    sizes, start = (config.hidden_size, width), deviations(config)
    return Linear(sizes, ("embed", "features"), start.dense, dtype, config.head_bias, start.identity, name=name)


def classifier(config: EncoderConfig, dtype: jnp.dtype, classes: int, name: str) -> Linear:
    """Return the last map of a head that classifies."""
    return Linear((config.hidden_size, classes), ("embed", "classes"), config.initializer_range, dtype, name=name)
