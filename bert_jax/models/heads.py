"""What is read off the encoder in pretraining: the masked tokens, and whether the second sentence is the next one."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models.encoder import Encoder
from bert_jax.models.layers import ACTIVATIONS, LayerNorm, Linear, param
from bert_jax.sharding import constrain

PADDING_LOGIT = -1e9  # of vocabulary rows that exist only to fill up the table: exp of it is exactly 0


class MaskedTokenHead(nn.Module):
    """`x` `[batch, predictions, hidden]`, embedding table `[padded_vocab, hidden]` -> float32 logits over its rows."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        config, hidden = self.config, self.config.hidden_size
        x = Linear((hidden, hidden), ("embed", "features"), config.initializer_range, self.dtype, name="dense")(x)
        x = LayerNorm(config.layer_norm_epsilon, self.dtype, name="norm")(ACTIVATIONS[config.activation](x))
        bias = param(self, "bias", nn.initializers.zeros, table.shape[:1], ("vocab",))
        bias = jnp.where(jnp.arange(table.shape[0]) < config.vocab_size, bias, PADDING_LOGIT)
        # Two matrices, for the same reason as in Linear.
        logits = jnp.einsum(
            "nh,vh->nv", x.reshape(-1, hidden), table.astype(self.dtype), preferred_element_type=jnp.float32
        )
        return constrain(logits + bias, "batch", "logits").reshape(*x.shape[:2], -1)


class Pretraining(nn.Module):
    """The encoder with both heads, as Hugging Face's `BertForPreTraining`, the masked positions gathered first."""

    config: EncoderConfig
    compute: ComputeConfig

    def setup(self) -> None:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        hidden, stddev = config.hidden_size, config.initializer_range
        self.encoder = Encoder(config, self.compute)
        self.masked_token = MaskedTokenHead(config, dtype)
        self.pooler = Linear((hidden, hidden), ("embed", "features"), stddev, dtype)
        self.next_sentence = Linear((hidden, 2), ("embed", "classes"), stddev, dtype)

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        masked_positions: jax.Array,
        rng: jax.Array | None,
    ) -> dict[str, jax.Array]:
        x = self.encoder(input_ids, token_type_ids, attention_mask, rng)
        masked = jnp.take_along_axis(x, masked_positions[:, :, None], axis=1)
        pooled = jnp.tanh(self.pooler(x[:, 0]))
        return {
            "mlm_logits": self.masked_token(masked, self.encoder.embeddings.token),
            "nsp_logits": self.next_sentence(pooled).astype(jnp.float32),
        }
