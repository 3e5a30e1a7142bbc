"""The attention layer of the encoder."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import Surroundings, attention_inputs
from bert_jax.models.attention.kernels import KERNELS
from bert_jax.models.layers import Linear, deviations, keep
from bert_jax.models.norms import Norm, rms_norm
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.sharding import constrain


class SelfAttention(nn.Module):
    """`x` `[batch, length, hidden]` -> `[batch, length, hidden]`.

    `seed`: uint32 `[2]`, of the dropout on the probabilities, or None.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    kernel: str  # compute.attention

    @nn.compact
    def __call__(self, x: jax.Array, surroundings: Surroundings, seed: jax.Array | None) -> jax.Array:
        config = self.config
        q, k = (self._turned(self._project(x, name), name, surroundings) for name in ("query", "key"))
        v = keep(self._project(x, "value"))
        rate = 0.0 if seed is None else config.attention_dropout
        inputs = attention_inputs(q, k, v, surroundings, config.num_heads, seed if rate else None)
        context = keep(KERNELS[self.kernel].attend(inputs, rate))
        return self._linear("output", ("heads", "embed"), deviations(config).output)(context)

    def _linear(self, name: str, axes: tuple[str, str], stddev: float) -> Linear:
        hidden, config = self.config.hidden_size, self.config
        return Linear((hidden, hidden), axes, stddev, self.dtype, config.attention_bias, name=name)

    def _project(self, x: jax.Array, name: str) -> jax.Array:
        projected = self._linear(name, ("embed", "heads"), deviations(self.config).inner)(x)
        return constrain(projected, "batch", "length", "heads")

    def _turned(self, x: jax.Array, name: str, surroundings: Surroundings) -> jax.Array:
        """Queries or keys as the kernel reads them: normalized, then rotated, where the architecture says so."""
        config, rotate = self.config, POSITIONS[self.config.positions].rotate
        if config.query_key_norm:
            heads = x.reshape(*x.shape[:2], config.num_heads, -1)
            norm = Norm(rms_norm, config.layer_norm_epsilon, self.dtype, bias=False, name=f"{name}_norm")
            x = norm(heads).reshape(x.shape)
        # Kept as read: a rotation's gradient needs the angles alone, and a norm keeps its own result.
        return keep(rotate(config, x, surroundings.angles) if rotate else x)
