"""The encoder: embeddings, then transformer blocks, for all families.

Families differ in the fields of `EncoderConfig`: RoBERTa's first position, ALBERT's one set of parameters for all
blocks, the narrower tables of ALBERT and ELECTRA, DistilBERT without token types, ModernBERT's local blocks,
MobileBERT's trigrams and bottlenecks. Norm, position scheme, MLP and the residual stream are rows of tables.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention.inputs import MASKED_SCORE, NO_LIMIT, GlobalTokens, Surroundings
from bert_jax.models.attention.patterns import block_sparse, local_window, with_columns
from bert_jax.models.attention.self_attention import PROBES, WEIGHTS
from bert_jax.models.blocks import Block, BottleneckBlock, Flag
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.layers import (
    KEPT,
    Linear,
    cast_kernels,
    deviations,
    kernel_init,
    lookup,
    over_vocabulary,
    param,
    projection_shape,
    sum_width,
    table_width,
    unstack,
)
from bert_jax.models.norms import norm_layer
from bert_jax.models.positions import POSITIONS, Distances
from bert_jax.parallel.platform import traced_platform
from bert_jax.parallel.sharding import constrain, gathered

VOCAB_MULTIPLE = 128  # the lanes of a TPU; also what a mesh can divide the vocabulary by

KEEP = jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.save_only_these_names(KEPT),
    # What a fused kernel writes: calling it again for the backward pass would take longer than reading it.
    lambda primitive, *_, **__: primitive.name.startswith("dot_product_attention_fwd"),
)


def padded_vocab(vocab_size: int) -> int:
    """Return the next multiple of 128: the rows of the embedding table in the parameters."""
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def is_global(config: EncoderConfig, layer: int) -> bool:
    """Return whether the block reads whole sequences; the others read a window."""
    every = config.global_every
    return config.local_window is None or (every > 0 and layer % every == 0)


def make_block(config: EncoderConfig, dtype: jnp.dtype, attention: str) -> Block | BottleneckBlock:
    """Return the block of an architecture, without a parent: its parameters are stacked."""
    kind = BottleneckBlock if config.bottleneck_size else Block
    return kind(config, dtype, attention, parent=None)


def projection(config: EncoderConfig, dtype: jnp.dtype) -> Linear | None:
    """Return the map from embeddings to the width of the blocks, where there is one."""
    sizes, start = projection_shape(config), deviations(config)
    deviation = 0.0 if start.identity else start.inner
    return Linear(sizes, ("embed", "features"), deviation, dtype, identity=start.identity) if sizes else None


def trigrams(x: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Return for each token the vectors of the next token, its own, and that before: `[batch, length, 3 * features]`.

    Beyond the ends of a row, or of a segment, they are zeros (Sun et al. 2020). Padding has vectors as any token.
    """
    after, before = x[:, 1:], x[:, :-1]
    if segments is not None:
        together = (segments[:, 1:] == segments[:, :-1])[:, :, None]
        after, before = jnp.where(together, after, 0.0), jnp.where(together, before, 0.0)
    after, before = (jnp.pad(one, ((0, 0), ends, (0, 0))) for one, ends in ((after, (0, 1)), (before, (1, 0))))
    return jnp.concatenate([after, x, before], axis=-1)


class Embeddings(nn.Module):
    """Sum of token, position and token type embeddings, normalized, with dropout: `[batch, length, sum_width]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        config, dtype = self.config, self.dtype
        init, tokens = kernel_init(deviations(config).inner), (padded_vocab(config.vocab_size), table_width(config))
        token = param(self, "token", over_vocabulary(init, config.vocab_size), tokens, ("vocab", "features"))
        self.token = gathered(token, ("vocab", "features"), ("vocab_read", "features"))
        self.projection = projection(config, dtype) if config.trigram_embeddings else None
        scheme = POSITIONS[config.positions]
        self.embed_positions = scheme.embed(self, config) if scheme.embed else None
        if config.num_token_types:
            types = (config.num_token_types, sum_width(config))
            self.token_type = param(self, "token_type", init, types, ("token_types", "features"))
        self.norm = norm_layer(config, dtype) if config.embedding_norm else None

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, segments: jax.Array | None, seed: jax.Array | None
    ) -> jax.Array:
        length, positions = input_ids.shape[1], self.config.max_positions
        if length > positions:
            raise UserError(f"sequences of {length} tokens are longer than model.max_positions={positions}; raise it")
        # An id outside the table reads NaN, which stops the run: clamping would train on another token.
        x = jnp.take(self.token, input_ids, axis=0, mode="fill")
        x = self.projection(trigrams(x, segments)) if self.projection else x
        if self.config.num_token_types:
            x = x + lookup(token_type_ids, self.token_type)
        if self.embed_positions:
            x = x + self.embed_positions(length, segments)
        x = self.norm(x) if self.norm else x.astype(self.dtype)
        return dropout(x, self.config.dropout, seed)


class PositionBias(nn.Module):
    """What a position scheme adds to the scores of all blocks: float32 `[heads, length, length]`."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, length: int) -> jax.Array | None:
        bias = POSITIONS[self.config.positions].bias
        return bias(self, self.config, length) if bias else None


class DistanceEmbeddings(nn.Module):
    """The embeddings of distances of a position scheme that has them, for all blocks."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, length: int) -> Distances | None:
        distances = POSITIONS[self.config.positions].distances
        return distances(self, self.config, length) if distances else None


class Differences(NamedTuple):
    """What differs from block to block beside the parameters; None where nothing does."""

    skip_first_norm: Flag
    local: Flag
    reach: jax.Array | int | None = None  # of its window


class ChosenTokens(NamedTuple):
    """Tokens that are to be global."""

    chosen: jax.Array  # bool [batch, length]; padding may be among them
    beside: int  # as many of them chunks can read
    at_most: bool  # whether there are never more


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
        self.projection = None if config.trigram_embeddings else projection(config, dtype)
        self.position_bias = PositionBias(config)
        self.distances = DistanceEmbeddings(config)
        self.block = make_block(config, dtype, self.compute.attention)
        self.layers = self.param("layers", self._init_layers)  # scanned or not, so that a checkpoint serves both
        self.final_norm = norm_layer(config, dtype) if config.final_norm else None

    def _init_layers(self, rng: jax.Array) -> Any:
        """The parameters of all blocks, each stacked on a leading axis `layers` (of one, where all share them)."""
        x = jnp.zeros((1, 1, self.config.hidden_size), self.block.dtype)
        none = None if self.config.separator_id is None else ChosenTokens(jnp.zeros((1, 1), bool), 0, True)
        alone, _ = self._surroundings(jnp.ones((1, 1), jnp.int32), None, None, None, none)

        block = self.block.clone(attention="xla")  # the parameters are those of any kernel; this one takes any shape

        def one(key: jax.Array) -> Any:
            return block.init(key, x, None, alone)["params"]

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
        to_be_global: ChosenTokens | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        number, dtype = self.config.num_layers, self.block.dtype
        seeds = None if rng is None else dropout_seeds(rng, (1 + 3 * number,))
        x = self.embeddings(input_ids, token_type_ids, segments, None if seeds is None else seeds[0])
        x = self.projection(x) if self.projection else x
        x = constrain(x, "batch", "length", "features")
        length = input_ids.shape[1]
        everywhere, within = self._surroundings(
            attention_mask, segments, self._bias(length), self.distances(length), to_be_global
        )
        block_seeds = None if seeds is None else seeds[1:].reshape(number, 3, -1)
        shared = jax.tree.map(lambda p: p[0], cast_kernels(self.layers, dtype)) if self.config.share_layers else None
        # A GPU casts the slices of a kernel where it copies them.
        own = self.layers if traced_platform() == "gpu" else cast_kernels(self.layers, dtype)
        stack = (None if shared else own, block_seeds)

        def layer(different: Differences, x: jax.Array, params_and_seeds: Any) -> jax.Array:
            params, seeds = params_and_seeds
            reads = _reads(different, within, everywhere)
            skip = different.skip_first_norm
            return cast(jax.Array, self.block.apply({"params": shared or params}, x, seeds, reads, skip))

        def unrolled(x: jax.Array, stack: Any) -> tuple[jax.Array, list[jax.Array]]:
            outputs = []
            params, seeds = unstack(stack[0], number, dtype), [None] * number if stack[1] is None else [*stack[1]]
            for different, *xs in zip(_differences(self.config, within is not None), params, seeds, strict=True):
                one = functools.partial(layer, different)
                x = (jax.checkpoint(one) if self.compute.remat else one)(x, xs)
                outputs.append(x)
            return x, outputs if self.every_layer else []

        if self.compute.scan_layers:
            policy = None if self.compute.remat else KEEP
            one = jax.checkpoint(layer, policy=policy, prevent_cse=False)

            def scanned(x: jax.Array, xs: Any) -> tuple[jax.Array, jax.Array | None]:
                different, params_and_seeds = xs
                x = one(different, x, params_and_seeds)
                return x, x if self.every_layer else None

            xs = (_stacked(self.config, within is not None), (cast_kernels(stack[0], dtype), block_seeds))
            last, outputs = jax.lax.scan(scanned, x, xs, length=number)
        else:
            last, each = (unrolled if self.compute.remat else jax.checkpoint(unrolled, policy=KEEP))(x, stack)
            outputs = jnp.stack(each) if self.every_layer else None
        if self.final_norm:
            last = self.final_norm(last)
            outputs = None if outputs is None else jnp.concatenate([outputs[:-1], last[None]])
        return last, None if outputs is None else jnp.concatenate([x[None], outputs])

    def _bias(self, length: int) -> jax.Array | None:
        """What is added to the scores of all blocks: of the position scheme, and where no token reads later ones."""
        bias = self.position_bias(length)
        if not self.config.causal:
            return bias
        column = jnp.arange(length)
        later = jnp.where(column[:, None] < column, MASKED_SCORE, 0.0)[None]
        return later if bias is None else bias + later

    def _surroundings(
        self,
        mask: jax.Array,
        segments: jax.Array | None,
        bias: jax.Array | None,
        distances: Distances | None,
        to_be_global: ChosenTokens | None,
    ) -> tuple[Surroundings, Surroundings | None]:
        """Those of global blocks, and those of local ones; one for all, and None, where there is no difference."""
        config, length = self.config, mask.shape[1]
        angles = POSITIONS[config.positions].angles
        everywhere = Surroundings(mask, segments, None, bias, distances=distances)
        if to_be_global is not None:
            everywhere = everywhere._replace(global_tokens=GlobalTokens(to_be_global.chosen & (mask != 0)))
        if angles:
            everywhere = everywhere._replace(angles=angles(config, config.rotary_base, length, segments))
        if config.block_size is not None:
            return block_sparse(everywhere, config.block_size, config.random_blocks), None
        if config.local_window is None:
            return everywhere, None
        within, reach = everywhere, config.local_window // 2
        if angles and config.local_rotary_base not in (None, config.rotary_base):
            within = within._replace(angles=angles(config, config.local_rotary_base, length, segments))
        narrowest = min(config.local_windows or (config.local_window,)) // 2
        if not isinstance(length, int) or length - 1 > narrowest:  # a symbolic length may be any
            within = within._replace(reach=reach, window=local_window(config))
            if to_be_global is not None and isinstance(length, int):
                within = with_columns(within, to_be_global.beside, to_be_global.at_most)
        if config.global_every == 0:
            return within, None
        return everywhere, None if within is everywhere else within


def attention_weights(
    config: EncoderConfig, params: Any, batch: Mapping[str, jax.Array], queries: slice = slice(None)
) -> jax.Array:
    """Return what each head of each layer reads: float32 `[layers, batch, heads, queries, keys]`.

    Args:
        config: of the encoder.
        params: its parameters, `encoder` of a model's.
        batch: input_ids, token_type_ids and attention_mask, int32 `[batch, length]`; packed sequences are not read.
        queries: the tokens that read; the weights of others are not kept.
    """
    return encoded_with_weights(config, params, batch, queries=queries)[1]


def encoded_with_weights(
    config: EncoderConfig,
    params: Any,
    batch: Mapping[str, jax.Array],
    probes: jax.Array | None = None,
    queries: slice = slice(None),
    to_be_global: ChosenTokens | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the hidden states `[batch, length, hidden]` and the attention weights, as `attention_weights`.

    `probes` `[layers, batch, heads, length, length]` are added to what the heads read. A gradient by probes of zero is
    one by the weights.
    """
    encoder, length = Encoder(config, ComputeConfig(attention="xla")), batch["input_ids"].shape[1]

    def start(encoder: Encoder) -> tuple[jax.Array, tuple[Surroundings, Surroundings | None]]:
        x = encoder.embeddings(batch["input_ids"], batch["token_type_ids"], None, None)
        bias, distances = encoder._bias(length), encoder.distances(length)
        x = encoder.projection(x) if encoder.projection else x
        return x, encoder._surroundings(batch["attention_mask"], None, bias, distances, to_be_global)

    def normalized(encoder: Encoder, x: jax.Array) -> jax.Array:
        return cast(jax.Array, encoder.final_norm(x)) if encoder.final_norm else x

    x, (everywhere, within) = cast(Any, encoder.apply({"params": params}, method=start))
    block = make_block(config, jnp.dtype("float32"), "xla")
    shared = jax.tree.map(lambda p: p[0], params["layers"]) if config.share_layers else None

    def one(x: jax.Array, xs: Any) -> tuple[jax.Array, jax.Array]:  # compiled once for all layers
        different, params, probe = xs
        variables = {"params": shared or params} | (
            {} if probe is None else {PROBES: {"attention": {"weights": probe}}}
        )
        reads = _reads(different, within, everywhere)
        x, state = cast(Any, block.apply(variables, x, None, reads, different.skip_first_norm, mutable=[WEIGHTS]))
        return x, state[WEIGHTS]["attention"]["weights"][0][:, :, queries]

    layers = (_stacked(config, within is not None), None if config.share_layers else params["layers"], probes)
    x, found = jax.lax.scan(one, x, layers, length=config.num_layers)
    return cast(jax.Array, encoder.apply({"params": params}, x, method=normalized)), found


def _differences(config: EncoderConfig, some_local: bool) -> list[Differences]:
    """Those of each block."""
    return [
        Differences(
            skip_first_norm=None if config.first_attention_norm else i == 0,
            local=not is_global(config, i) if some_local else None,
            reach=config.local_windows[i] // 2 if config.local_windows else None,
        )
        for i in range(config.num_layers)
    ]


def _stacked(config: EncoderConfig, some_local: bool) -> Differences:
    """The same as arrays `[layers]`, without a list of them: a file may name any number of layers."""
    layer = jax.lax.iota(jnp.int32, config.num_layers)
    return Differences(
        skip_first_norm=None if config.first_attention_norm else layer == 0,
        local=layer % config.global_every != 0 if some_local else None,
        reach=jnp.asarray(config.local_windows, jnp.int32) // 2 if config.local_windows else None,
    )


def _reads(different: Differences, within: Surroundings | None, everywhere: Surroundings) -> Surroundings:
    found = _select(different.local, within, everywhere)
    return found if different.reach is None or found.reach is None else found._replace(reach=different.reach)


def _select(flag: Flag, within: Surroundings | None, everywhere: Surroundings) -> Surroundings:
    """`within` where `flag` is set."""
    if flag is None or within is None:
        return everywhere
    if isinstance(flag, bool):
        return within if flag else everywhere
    if within.reach is not None:
        everywhere = everywhere._replace(reach=NO_LIMIT, window=within.window)
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(flag, a, b), within, everywhere)
