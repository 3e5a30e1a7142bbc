"""The two linear maps of heads, and a table over the vocabulary beside that of the embeddings."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import Linear, deviations, kernel_init, over_vocabulary, param


def dense(config: EncoderConfig, dtype: jnp.dtype, width: int, name: str | None = None) -> Linear:
    """Return the layer between the encoder and the last map of a head."""
    sizes, start = (config.hidden_size, width), deviations(config)
    return Linear(sizes, ("embed", "features"), start.dense, dtype, config.head_bias, start.identity, name=name)


def classifier(config: EncoderConfig, dtype: jnp.dtype, classes: int, name: str) -> Linear:
    """Return the last map of a head that classifies."""
    return Linear((config.hidden_size, classes), ("embed", "classes"), config.initializer_range, dtype, name=name)


class ExtraTable(nn.Module):
    """A parameter float32 `[padded_vocab, features]`, zeros in the padding."""

    config: EncoderConfig
    shape: tuple[int, int]

    @nn.compact
    def __call__(self) -> jax.Array:
        init = over_vocabulary(kernel_init(deviations(self.config).inner), self.config.vocab_size)
        return param(self, "kernel", init, self.shape, ("vocab", "features"))
