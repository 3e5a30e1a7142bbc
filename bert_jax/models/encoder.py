"""The encoder: embeddings, then post-norm transformer blocks (Devlin et al. 2018)."""

from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention import SelfAttention
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.layers import ACTIVATIONS, KEPT, LayerNorm, Linear, keep, kernel_init, param
from bert_jax.sharding import constrain

VOCAB_MULTIPLE = 128  # the lanes of a TPU; also what a mesh can divide the vocabulary by

KEEP = jax.checkpoint_policies.save_only_these_names(KEPT)


def padded_vocab(vocab_size: int) -> int:
    """The next multiple of 128: rows of the embedding table in the parameters."""
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Embeddings(nn.Module):
    """Sum of token, position and token type embeddings, normalised, with dropout."""

    config: EncoderConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        config = self.config
        init, hidden = kernel_init(config.initializer_range), config.hidden_size

        def token_init(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
            real = init(rng, (config.vocab_size, hidden), dtype)
            return jnp.zeros(shape, dtype).at[: config.vocab_size].set(real)

        self.token = param(self, "token", token_init, (padded_vocab(config.vocab_size), hidden), ("vocab", "features"))
        self.position = param(self, "position", init, (config.max_positions, hidden), ("positions", "features"))
        self.token_type = param(self, "token_type", init, (config.num_token_types, hidden), ("token_types", "features"))
        self.norm = LayerNorm(config.layer_norm_epsilon, self.dtype)

    def __call__(self, input_ids: jax.Array, token_type_ids: jax.Array, seed: jax.Array | None) -> jax.Array:
        length, positions = input_ids.shape[1], self.config.max_positions
        if length > positions:
            raise UserError(f"rows of {length} tokens are longer than model.max_positions={positions}; raise it")
        # An id outside of the table reads NaN, which stops the run: clamping would train on another token.
        token = jnp.take(self.token, input_ids, axis=0, mode="fill")
        # A product, because the gradient of a lookup in so few rows is a slow scatter.
        kinds = jax.nn.one_hot(token_type_ids, self.config.num_token_types, dtype=jnp.float32)
        token_type = jnp.einsum("blt,th->blh", kinds, self.token_type, precision=jax.lax.Precision.HIGHEST)
        x = self.norm(token + token_type + self.position[:length])
        return dropout(x, self.config.dropout, seed)


class Block(nn.Module):
    """Attention and feed-forward, each `norm(x + dropout(sublayer(x)))`; `[batch, length, hidden]` in and out."""

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # compute.attention

    @nn.compact
    def __call__(self, x: jax.Array, seeds: jax.Array | None, mask: jax.Array) -> jax.Array:
        config, dtype = self.config, self.dtype
        on_probabilities, on_attention, on_mlp = (None,) * 3 if seeds is None else seeds
        attended = SelfAttention(config, dtype, self.attention, name="attention")(x, mask, on_probabilities)
        x = LayerNorm(config.layer_norm_epsilon, dtype, name="attention_norm")(
            x + dropout(attended, config.dropout, on_attention)
        )
        up, down = (config.hidden_size, config.mlp_size), (config.mlp_size, config.hidden_size)
        inner = Linear(up, ("embed", "mlp"), config.initializer_range, dtype, name="mlp_up")(x)
        inner = ACTIVATIONS[config.activation](keep(constrain(inner, "batch", "length", "mlp")))
        outer = Linear(down, ("mlp", "embed"), config.initializer_range, dtype, name="mlp_down")(inner)
        x = LayerNorm(config.layer_norm_epsilon, dtype, name="mlp_norm")(x + dropout(outer, config.dropout, on_mlp))
        return constrain(x, "batch", "length", "features")


class Encoder(nn.Module):
    """Token ids -> hidden states `[batch, length, hidden]`, in `compute.dtype`."""

    config: EncoderConfig
    compute: ComputeConfig

    def setup(self) -> None:
        dtype = jnp.dtype(self.compute.dtype)
        self.embeddings = Embeddings(self.config, dtype)
        self.block = Block(self.config, dtype, self.compute.attention, parent=None)
        self.layers = self.param("layers", self._init_layers)  # scanned or not, so that a checkpoint serves both

    def _init_layers(self, rng: jax.Array) -> Any:
        """The parameters of all blocks, each stacked on a leading axis `layers`."""
        x, mask = jnp.zeros((1, 1, self.config.hidden_size), self.block.dtype), jnp.ones((1, 1), jnp.int32)

        def one(key: jax.Array) -> Any:
            return self.block.init(key, x, None, mask)["params"]

        stacked = jax.vmap(one)(jax.random.split(rng, self.config.num_layers))
        return nn.meta.add_axis(stacked, 0, {nn.PARTITION_NAME: "layers"})

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, attention_mask: jax.Array, rng: jax.Array | None
    ) -> jax.Array:
        number, dtype = self.config.num_layers, self.block.dtype
        seeds = None if rng is None else dropout_seeds(rng, (1 + 3 * number,))
        x = self.embeddings(input_ids, token_type_ids, None if seeds is None else seeds[0])
        x = constrain(x, "batch", "length", "features")
        # The kernels in the dtype they are used in: so their gradients are stacked in it too.
        params = jax.tree.map(lambda p: p.astype(dtype) if p.ndim == 3 else p, self.layers)
        stack = (params, None if seeds is None else seeds[1:].reshape(number, 3, -1))

        def layer(x: jax.Array, params_and_seeds: Any) -> jax.Array:
            params, seeds = params_and_seeds
            return cast(jax.Array, self.block.apply({"params": params}, x, seeds, attention_mask))

        def unrolled(x: jax.Array, stack: Any) -> jax.Array:
            one = jax.checkpoint(layer) if self.compute.remat else layer
            for xs in _unstack(stack, number):
                x = one(x, xs)
            return x

        if self.compute.scan_layers:
            policy = None if self.compute.remat else KEEP
            one = jax.checkpoint(layer, policy=policy, prevent_cse=False)
            return jax.lax.scan(lambda x, xs: (one(x, xs), None), x, stack)[0]
        return unrolled(x, stack) if self.compute.remat else jax.checkpoint(unrolled, policy=KEEP)(x, stack)


def _unstack(tree: Any, number: int) -> list[Any]:
    """Its slices along the leading axis, by `split`: the gradient is one concatenation, not a sum of padded slices."""
    leaves, structure = jax.tree.flatten(tree)
    slices = zip(*([part[0] for part in jax.lax.split(leaf, (1,) * number)] for leaf in leaves), strict=True)
    return [jax.tree.unflatten(structure, one) for one in slices]
