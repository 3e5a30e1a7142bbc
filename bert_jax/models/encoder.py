"""The encoder: embeddings, then post-norm transformer blocks (Devlin et al. 2018), for all families.

Families differ in the fields of `EncoderConfig`: RoBERTa's first position, ALBERT's one set of parameters for all
blocks, the narrower tables of ALBERT and ELECTRA, DistilBERT without token types. Norm, position scheme and MLP are
rows of tables.
"""

import functools
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention.self_attention import SelfAttention
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.layers import KEPT, Linear, kernel_init, lookup, param, table_width
from bert_jax.models.mlps import MLPS
from bert_jax.models.norms import NORMS
from bert_jax.models.positions import POSITIONS
from bert_jax.parallel.sharding import constrain

VOCAB_MULTIPLE = 128  # the lanes of a TPU; also what a mesh can divide the vocabulary by

KEEP = jax.checkpoint_policies.save_only_these_names(KEPT)


def padded_vocab(vocab_size: int) -> int:
    """Return the next multiple of 128: the rows of the embedding table in the parameters."""
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Embeddings(nn.Module):
    """Sum of token, position and token type embeddings, normalized, with dropout: `[batch, length, table_width]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        config = self.config
        init, width = kernel_init(config.initializer_range), table_width(config)

        def token_init(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
            real = init(rng, (config.vocab_size, width), dtype)
            return jnp.zeros(shape, dtype).at[: config.vocab_size].set(real)

        self.token = param(self, "token", token_init, (padded_vocab(config.vocab_size), width), ("vocab", "features"))
        scheme = POSITIONS[config.positions]
        self.embed_positions = scheme.embed(self, config) if scheme.embed else None
        if config.num_token_types:
            types = (config.num_token_types, width)
            self.token_type = param(self, "token_type", init, types, ("token_types", "features"))
        self.norm = NORMS[config.norm](config.layer_norm_epsilon, self.dtype)

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, segments: jax.Array | None, seed: jax.Array | None
    ) -> jax.Array:
        length, positions = input_ids.shape[1], self.config.max_positions
        if length > positions:
            raise UserError(f"sequences of {length} tokens are longer than model.max_positions={positions}; raise it")
        # An id outside the table reads NaN, which stops the run: clamping would train on another token.
        x = jnp.take(self.token, input_ids, axis=0, mode="fill")
        if self.config.num_token_types:
            x = x + lookup(token_type_ids, self.token_type)
        if self.embed_positions:
            x = x + self.embed_positions(length, segments)
        return dropout(self.norm(x), self.config.dropout, seed)


class Block(nn.Module):
    """Attention and MLP, each `norm(x + dropout(sublayer(x)))`; `[batch, length, hidden]` in and out."""

    config: EncoderConfig
    dtype: jnp.dtype
    attention: str  # compute.attention

    @nn.compact
    def __call__(
        self, x: jax.Array, seeds: jax.Array | None, mask: jax.Array, segments: jax.Array | None = None
    ) -> jax.Array:
        config, dtype = self.config, self.dtype
        on_probabilities, on_attention, on_mlp = (None,) * 3 if seeds is None else seeds
        norm = functools.partial(NORMS[config.norm], config.layer_norm_epsilon, dtype)
        attended = SelfAttention(config, dtype, self.attention, name="attention")(x, mask, segments, on_probabilities)
        x = norm(name="attention_norm")(x + dropout(attended, config.dropout, on_attention))
        outer = MLPS[config.mlp](config, dtype, x)
        x = norm(name="mlp_norm")(x + dropout(outer, config.dropout, on_mlp))
        return constrain(x, "batch", "length", "features")


class Encoder(nn.Module):
    """Token ids -> hidden states `[batch, length, hidden]` in `compute.dtype`, and with `every_layer` those of all.

    These are `[layers + 1, batch, length, hidden]`, the first the input of the first block; otherwise None.
    Packed sequences have `segments`, int32 `[batch, length]`: 1, 2, ... for the tokens of each example in turn, 0 for
    padding. Their positions restart, and no example reads another.
    """

    config: EncoderConfig
    compute: ComputeConfig
    every_layer: bool = False

    def setup(self) -> None:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        self.embeddings = Embeddings(config, dtype)
        if config.embedding_size:
            sizes = (config.embedding_size, config.hidden_size)
            self.projection = Linear(sizes, ("embed", "features"), config.initializer_range, dtype)
        self.block = Block(config, dtype, self.compute.attention, parent=None)
        self.layers = self.param("layers", self._init_layers)  # scanned or not, so that a checkpoint serves both

    def _init_layers(self, rng: jax.Array) -> Any:
        """The parameters of all blocks, each stacked on a leading axis `layers` (of one, where all share them)."""
        x, mask = jnp.zeros((1, 1, self.config.hidden_size), self.block.dtype), jnp.ones((1, 1), jnp.int32)

        def one(key: jax.Array) -> Any:
            return self.block.init(key, x, None, mask)["params"]

        number = 1 if self.config.share_layers else self.config.num_layers
        stacked = jax.vmap(one)(jax.random.split(rng, number))
        return nn.meta.add_axis(stacked, 0, {nn.PARTITION_NAME: "layers"})

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        segments: jax.Array | None,
        rng: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None]:
        number, dtype = self.config.num_layers, self.block.dtype
        seeds = None if rng is None else dropout_seeds(rng, (1 + 3 * number,))
        x = self.embeddings(input_ids, token_type_ids, segments, None if seeds is None else seeds[0])
        if self.config.embedding_size:
            x = self.projection(x)
        x = constrain(x, "batch", "length", "features")
        # Kernels in the dtype they are used in, so that their gradients are stacked in it too.
        params = jax.tree.map(lambda p: p.astype(dtype) if p.ndim == 3 else p, self.layers)
        block_seeds = None if seeds is None else seeds[1:].reshape(number, 3, -1)
        shared = jax.tree.map(lambda p: p[0], params) if self.config.share_layers else None
        stack = (None if shared else params, block_seeds)

        def layer(x: jax.Array, params_and_seeds: Any) -> jax.Array:
            params, seeds = params_and_seeds
            return cast(jax.Array, self.block.apply({"params": shared or params}, x, seeds, attention_mask, segments))

        def unrolled(x: jax.Array, stack: Any) -> tuple[jax.Array, list[jax.Array]]:
            one = jax.checkpoint(layer) if self.compute.remat else layer
            outputs = []
            for xs in _unstack(stack, number):
                x = one(x, xs)
                outputs.append(x)
            return x, outputs if self.every_layer else []

        if self.compute.scan_layers:
            policy = None if self.compute.remat else KEEP
            one = jax.checkpoint(layer, policy=policy, prevent_cse=False)

            def scanned(x: jax.Array, xs: Any) -> tuple[jax.Array, jax.Array | None]:
                x = one(x, xs)
                return x, x if self.every_layer else None

            last, outputs = jax.lax.scan(scanned, x, stack, length=number)
        else:
            last, each = (unrolled if self.compute.remat else jax.checkpoint(unrolled, policy=KEEP))(x, stack)
            outputs = jnp.stack(each) if self.every_layer else None
        return last, None if outputs is None else jnp.concatenate([x[None], outputs])


def _unstack(tree: Any, number: int) -> list[Any]:
    """Its slices along the leading axis, by `split`: the gradient is one concatenation, not a sum of padded slices."""
    leaves, structure = jax.tree.flatten(tree)
    if not leaves:  # shared parameters and no dropout: nothing differs from layer to layer
        return [tree] * number
    slices = zip(*([part[0] for part in jax.lax.split(leaf, (1,) * number)] for leaf in leaves), strict=True)
    return [jax.tree.unflatten(structure, one) for one in slices]
