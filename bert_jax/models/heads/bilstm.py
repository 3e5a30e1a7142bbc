"""Two bidirectional LSTM layers between the encoder and the heads of tasks (Devlin et al. 2019, table 5: + BiLSTM)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.layers import Linear, param

LAYERS = 2
DIRECTIONS = ("forward", "backward")


class BiLstm(nn.Module):
    """`x` `[batch, length, hidden]` in and out, half of the features from each direction.

    Tokens of one text have the same number in `segments`, int32 `[batch, length]`: no state passes from a text to the
    next, or to padding. Equal to `torch.nn.LSTM` of each text alone, without its second bias.
    """

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, segments: jax.Array) -> jax.Array:
        for layer in range(LAYERS):
            forward, backward = (_Lstm(self.config, self.dtype, name=f"{one}_{layer}") for one in DIRECTIONS)
            back = backward(jnp.flip(x, 1), jnp.flip(segments, 1))
            x = jnp.concatenate([forward(x, segments), jnp.flip(back, 1)], axis=-1)
        return x


class _Lstm(nn.Module):
    """One direction of one layer; the gates of a step are in, forget, cell and out, as in torch."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, segments: jax.Array) -> jax.Array:
        width = self.config.hidden_size // 2
        deviation = width**-0.5
        gates = Linear((x.shape[-1], 4 * width), ("embed", "features"), deviation, self.dtype, name="input")(x)
        normal = nn.initializers.truncated_normal(deviation)
        kernel = param(self, "recurrent", normal, (width, 4 * width), ("embed", "features")).astype(self.dtype)
        same_text = jnp.pad(segments[:, 1:] == segments[:, :-1], ((0, 0), (1, 0)))  # as the token before

        def step(
            state: tuple[jax.Array, jax.Array], token: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            """One token; hidden and cell are float32 `[batch, width]`."""
            gate, same = token
            hidden, cell = (jnp.where(same[:, None], one, 0.0) for one in state)
            i, f, g, o = jnp.split(gate.astype(jnp.float32) + hidden.astype(self.dtype) @ kernel, 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        start = jnp.zeros((len(x), width), jnp.float32)
        _, hidden = jax.lax.scan(step, (start, start), (gates.swapaxes(0, 1), same_text.T))
        return hidden.swapaxes(0, 1).astype(self.dtype)
