"""An encoder with heads as one linen module."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models.dropout import dropout_seeds
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads.bilstm import BiLstm
from bert_jax.models.heads.global_tokens import tokens_to_be_global
from bert_jax.models.heads.pooling import POOLINGS, Pooler
from bert_jax.models.heads.table import HEADS, OF_TASKS, OF_TOKENS, POOLED, Arrays, Batch, Encoded, Head


class Network(nn.Module):
    """The encoder with `heads`, whose functions in HEADS describe inputs and outputs; outputs are float32.

    `segment_ids` in the batch, int32 `[batch, length]`, mean that sequences are packed; `cls_positions`, int32
    `[batch, examples]`, are then the positions of the examples' first tokens, 0 for an absent example.
    """

    config: EncoderConfig
    compute: ComputeConfig
    heads: tuple[Head, ...]

    @nn.compact
    def __call__(self, batch: Batch, rng: jax.Array | None) -> Arrays:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        names = {head.name for head in self.heads}
        encoder = Encoder(config, self.compute, "hidden_states" in names, name="encoder")
        length = batch["input_ids"].shape[-1]  # each choice of an example is a sequence of its own
        ids, types, mask = (
            batch[name].reshape(-1, length) for name in ("input_ids", "token_type_ids", "attention_mask")
        )
        chosen = tokens_to_be_global(config, names, ids)
        hidden, every = encoder(ids, types, mask, batch.get("segment_ids"), rng, chosen)
        read = hidden  # by heads of tasks
        if config.bilstm and names & OF_TASKS:
            read = BiLstm(config, dtype, name="bilstm")(hidden, batch.get("segment_ids", mask))
        seeds = (None, None) if rng is None else dropout_seeds(jax.random.fold_in(rng, 1), (2,))
        own = config.sequence_activation if "sequence_classification" in names else None
        activation = own or config.pooler_activation
        pooler = Pooler(config, dtype, activation, name="pooler")  # of no parameters where nothing is pooled
        pooled = pooler(POOLINGS[config.pooling](read, mask, batch), seeds[0]) if names & POOLED else None
        tokens = pooler(read, seeds[0]) if config.pooler_on_tokens and names & OF_TOKENS else read
        encoded = Encoded(batch, hidden, every, encoder.embeddings.token, tokens, pooled, seeds[1])
        arrays: Arrays = {}
        for head in self.heads:
            arrays |= HEADS[head.name](config, dtype, head, encoded)
        return {name: x.astype(jnp.float32) for name, x in arrays.items()}
