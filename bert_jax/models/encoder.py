"""The encoder of all families: embeddings, then transformer blocks.

Families differ in the fields of `EncoderConfig`. For example, RoBERTa starts positions at another number, ALBERT shares
one set of parameters between all blocks, DistilBERT has no token types, and ModernBERT has local blocks. Norm, position
scheme, MLP and residual connection are each a row of a table.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention.inputs import MASKED_SCORE, NO_LIMIT, AttentionMetadata, GlobalTokens
from bert_jax.models.attention.patterns import block_sparse_metadata, local_window_spec, with_gathered_tokens
from bert_jax.models.attention.self_attention import PROBES, WEIGHTS
from bert_jax.models.blocks import Block, BottleneckBlock, Flag
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.init import init_scales, kernel_init, vocabulary_initializer
from bert_jax.models.layers import (
    ADAPTER,
    SAVED,
    Linear,
    cast_kernels,
    dtype_between_products,
    logical_param,
    rows_by_one_hot_product,
    unstack_layers,
)
from bert_jax.models.norms import norm_layer
from bert_jax.models.positions import POSITIONS, Distances
from bert_jax.parallel.platform import traced_platform
from bert_jax.parallel.sharding import constrain, gather_once

VOCAB_MULTIPLE = 128  # the lanes of a TPU; a mesh can divide the vocabulary into as many parts

SAVE_MARKED = jax.checkpoint_policies.save_from_both_policies(
    jax.checkpoint_policies.save_only_these_names(SAVED),
    # The output of a fused kernel is saved, because reading the output takes less time than calling the kernel again.
    lambda primitive, *_, **__: primitive.name.startswith("dot_product_attention_fwd"),
)


def padded_vocab(vocab_size: int) -> int:
    """Return the vocabulary size rounded up to a multiple of 128: the number of rows of the embedding table."""
    return -(-vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


def is_global_layer(config: EncoderConfig, layer: int) -> bool:
    """Return whether the block of `layer` attends to whole sequences; a local block attends to a window."""
    every = config.global_every
    return config.local_window is None or (every > 0 and layer % every == 0)


def embedding_projection_shape(config: EncoderConfig) -> tuple[int, int] | None:
    """Return the shape of the matrix that projects embeddings to hidden_size; None without such a matrix."""
    if config.trigram_embeddings:
        return 3 * config.table_width, config.hidden_size
    return (config.embedding_size, config.hidden_size) if config.embedding_size else None


def embedding_projection(config: EncoderConfig, dtype: jnp.dtype) -> Linear | None:
    """Return the map from embeddings to the width of the blocks; None without such a map."""
    sizes, scales = embedding_projection_shape(config), init_scales(config)
    stddev = 0.0 if scales.identity else scales.inner
    return Linear(sizes, ("embed", "features"), stddev, dtype, identity=scales.identity) if sizes else None


def concatenate_neighbors(x: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Concatenate the vectors of the next, the current and the previous token: `[batch, length, 3 * features]`.

    Beyond the ends of a row or a segment, the vectors are zeros (Sun et al. 2020). Padding tokens have vectors, like
    all tokens.
    """
    after, before = x[:, 1:], x[:, :-1]
    if segments is not None:
        same_segment = (segments[:, 1:] == segments[:, :-1])[:, :, None]
        after, before = jnp.where(same_segment, after, 0.0), jnp.where(same_segment, before, 0.0)
    after, before = jnp.pad(after, ((0, 0), (0, 1), (0, 0))), jnp.pad(before, ((0, 0), (1, 0), (0, 0)))
    return jnp.concatenate([after, x, before], axis=-1)


class Embeddings(nn.Module):
    """The sum of token, position and token type embeddings, after norm and dropout: `[batch, length, sum_width]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        config, dtype = self.config, self.dtype
        init, tokens = kernel_init(init_scales(config).inner), (padded_vocab(config.vocab_size), config.table_width)
        token = logical_param(
            self, "token", vocabulary_initializer(init, config.vocab_size), tokens, ("vocab", "features")
        )
        self.token = gather_once(token, ("vocab", "features"), ("vocab_read", "features"))
        self.projection = embedding_projection(config, dtype) if config.trigram_embeddings else None
        scheme = POSITIONS[config.positions]
        self.embed_positions = scheme.embed(self, config) if scheme.embed else None
        if config.num_token_types:
            types = (config.num_token_types, config.sum_width)
            self.token_type = logical_param(self, "token_type", init, types, ("token_types", "features"))
        self.norm = norm_layer(config, dtype) if config.embedding_norm else None

    def __call__(
        self, input_ids: jax.Array, token_type_ids: jax.Array, segments: jax.Array | None, seed: jax.Array | None
    ) -> jax.Array:
        length, positions = input_ids.shape[1], self.config.max_positions
        if length > positions:
            raise UserError(
                f"sequences of {length} tokens are longer than model.max_positions={positions}; raise this field"
            )
        # For an id outside the table, the embedding is NaN, which stops the run. A clamped id would train another
        # token.
        x = jnp.take(self.token, input_ids, axis=0, mode="fill")
        x = self.projection(concatenate_neighbors(x, segments)) if self.projection else x
        if self.config.num_token_types:
            x = x + rows_by_one_hot_product(token_type_ids, self.token_type)
        if self.embed_positions:
            x = x + self.embed_positions(length, segments)
        x = self.norm(x) if self.norm else x.astype(dtype_between_products(self.dtype))
        return dropout(x, self.config.dropout, seed)


class PositionBias(nn.Module):
    """Terms that a position scheme adds to the scores of all blocks: float32 `[heads, length, length]`."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, length: int) -> jax.Array | None:
        bias = POSITIONS[self.config.positions].bias
        return bias(self, self.config, length) if bias else None


class DistanceEmbeddings(nn.Module):
    """The embeddings of distances of a position scheme, for all blocks."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, length: int) -> Distances | None:
        distances = POSITIONS[self.config.positions].distances
        return distances(self, self.config, length) if distances else None


class GlobalTokenMask(NamedTuple):
    """The tokens that the heads of a model make global."""

    mask: jax.Array  # bool [batch, length]; may include padding
    capacity: int  # the number of global tokens that chunks can read
    capacity_is_exact: bool  # whether no sequence has more global tokens than `capacity`


class LayerFlags(NamedTuple):
    """The differences between layers, apart from parameters; a field is None if it is equal in all layers."""

    skip_first_norm: Flag
    is_local: Flag
    radius: jax.Array | int | None = None  # radius of the layer's window


class GlobalAndLocalMetadata(NamedTuple):
    """Attention metadata of global and of local layers; local_meta is None if all layers share global_meta."""

    global_meta: AttentionMetadata
    local_meta: AttentionMetadata | None


class Encoder(nn.Module):
    """Embeddings and blocks: token ids -> hidden states `[batch, length, hidden]` in `compute.dtype`, float32 on a CPU.

    The second result is None, or with `every_layer` the hidden states `[layers + 1, batch, length, hidden]`: the input
    of the first block, then the output of each block.

    For packed sequences, `segments`, int32 `[batch, length]`, has 1 for the tokens of the first example, 2 for the
    tokens of the second example, and so on, and 0 for padding. Positions restart in each example, and no example
    attends to another example.
    """

    config: EncoderConfig
    compute: ComputeConfig
    every_layer: bool = False

    def setup(self) -> None:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        self.embeddings = Embeddings(config, dtype)
        self.projection = None if config.trigram_embeddings else embedding_projection(config, dtype)
        self.position_bias = PositionBias(config)
        self.distances = DistanceEmbeddings(config)
        self.block = make_block(config, dtype, self.compute.attention)
        # Unrolled layers have stacked parameters, too, so that scanned and unrolled layers read equal checkpoints. A
        # block checks the shapes of its parameters.
        has_layers = self.has_variable("params", "layers")
        self.layers = self.get_variable("params", "layers") if has_layers else self.param("layers", self._init_layers)
        self.final_norm = norm_layer(config, dtype) if config.final_norm else None

    def _init_layers(self, rng: jax.Array) -> Any:
        """Initialize the parameters of all blocks, stacked on a leading axis `layers` (of size 1 if shared)."""
        x = jnp.zeros((1, 1, self.config.hidden_size), dtype_between_products(self.block.dtype))
        no_global = None if self.config.separator_id is None else GlobalTokenMask(jnp.zeros((1, 1), bool), 0, True)
        metadata, _ = self._attention_metadata(jnp.ones((1, 1), jnp.int32), None, None, None, no_global)
        block = self.block.clone(attention="xla")  # all kernels have the same parameters; `xla` takes any shape

        def init_layer(key: jax.Array) -> Any:
            return block.init(key, x, None, metadata)["params"]

        num_sets = 1 if self.config.share_layers else self.config.num_layers
        stacked = jax.vmap(init_layer)(jax.random.split(rng, num_sets))
        return nn.meta.add_axis(stacked, 0, {nn.PARTITION_NAME: "layers"})

    def __call__(
        self,
        input_ids: jax.Array,
        token_type_ids: jax.Array,
        attention_mask: jax.Array,
        segments: jax.Array | None,
        rng: jax.Array | None,
        global_tokens: GlobalTokenMask | None = None,
    ) -> tuple[jax.Array, jax.Array | None]:
        num_layers, dtype = self.config.num_layers, dtype_between_products(self.block.dtype)
        seeds = None if rng is None else dropout_seeds(rng, (1 + 3 * num_layers,))
        x = self._embed(input_ids, token_type_ids, segments, None if seeds is None else seeds[0])
        global_meta, local_meta = self._metadata_of_batch(attention_mask, segments, global_tokens)
        layer_seeds = None if seeds is None else seeds[1:].reshape(num_layers, 3, -1)
        shared = jax.tree.map(lambda p: p[0], cast_kernels(self.layers, dtype)) if self.config.share_layers else None

        adapter: dict[str, Any] = self.get_variable(ADAPTER, "layers", {})

        def apply_layer(flags: LayerFlags, x: jax.Array, inputs: Any) -> jax.Array:
            params, seeds, adapter = inputs
            metadata = metadata_for_layer(flags, global_meta, local_meta)
            variables = {"params": shared or params, ADAPTER: adapter}
            return cast(jax.Array, self.block.apply(variables, x, seeds, metadata, flags.skip_first_norm))

        def apply_layers_unrolled(x: jax.Array, stacks: Any) -> tuple[jax.Array, list[jax.Array]]:
            outputs = []
            params, seeds = (
                unstack_layers(stacks[0], num_layers, dtype),
                [None] * num_layers if rng is None else [*stacks[1]],
            )
            for index in range(num_layers):
                inputs = (params[index], seeds[index], jax.tree.map(lambda term, index=index: term[index], stacks[2]))
                layer = functools.partial(apply_layer, layer_flags(self.config, index, local_meta is not None))
                x = (jax.checkpoint(layer) if self.compute.remat else layer)(x, inputs)
                outputs.append(x)
            return x, outputs if self.every_layer else []

        if self.is_initializing():  # `setup` has already made the parameters, and tracing the layers takes time
            last, outputs = x, x[None] if self.every_layer else None
        elif self.compute.scan_layers:
            policy = None if self.compute.remat else SAVE_MARKED
            layer = jax.checkpoint(apply_layer, policy=policy, prevent_cse=False)

            def apply_scanned_layer(x: jax.Array, xs: Any) -> tuple[jax.Array, jax.Array | None]:
                flags, inputs = xs
                x = layer(flags, x, inputs)
                return x, x if self.every_layer else None

            params = None if shared else cast_kernels(self.layers, dtype)
            # The indices are an array and not a list, because a file may name any number of layers.
            layers = jax.lax.iota(jnp.int32, num_layers)
            xs = (layer_flags(self.config, layers, local_meta is not None), (params, layer_seeds, adapter))
            last, outputs = jax.lax.scan(apply_scanned_layer, x, xs, length=num_layers)
        else:
            # On a GPU, the copy of a slice also casts the slice.
            params = self.layers if traced_platform() == "gpu" else cast_kernels(self.layers, dtype)
            run = (
                apply_layers_unrolled
                if self.compute.remat
                else jax.checkpoint(apply_layers_unrolled, policy=SAVE_MARKED)
            )
            last, every = run(x, (None if shared else params, layer_seeds, adapter))
            outputs = jnp.stack(every) if self.every_layer else None
        if self.final_norm:
            last = self.final_norm(last)
            outputs = None if outputs is None else jnp.concatenate([outputs[:-1], last[None]])
        return last, None if outputs is None else jnp.concatenate([x[None], outputs])

    def _embed(
        self, input_ids: jax.Array, token_type_ids: jax.Array, segments: jax.Array | None, seed: jax.Array | None
    ) -> jax.Array:
        """Return the input of the first block: `[batch, length, hidden]`."""
        x = self.embeddings(input_ids, token_type_ids, segments, seed)
        x = self.projection(x) if self.projection else x
        return constrain(x, "batch", "length", "features")

    def _metadata_of_batch(
        self, mask: jax.Array, segments: jax.Array | None, global_tokens: GlobalTokenMask | None
    ) -> GlobalAndLocalMetadata:
        """Return the attention metadata of a batch, with the biases and distances of the position scheme."""
        length = mask.shape[1]
        bias = self.position_bias(length)
        if self.config.causal:
            column = jnp.arange(length)
            causal_bias = jnp.where(column[:, None] < column, MASKED_SCORE, 0.0)[None]
            bias = causal_bias if bias is None else bias + causal_bias
        return self._attention_metadata(mask, segments, bias, self.distances(length), global_tokens)

    def _attention_metadata(
        self,
        mask: jax.Array,
        segments: jax.Array | None,
        bias: jax.Array | None,
        distances: Distances | None,
        global_tokens: GlobalTokenMask | None,
    ) -> GlobalAndLocalMetadata:
        """Return (global, local) attention metadata; local is None if all layers share the global metadata."""
        config, length = self.config, mask.shape[1]
        angles = POSITIONS[config.positions].angles
        global_meta = AttentionMetadata(
            mask=mask,
            segments=segments,
            angles=angles(config, config.rotary_base, length, segments) if angles else None,
            bias=bias,
            distances=distances,
            global_tokens=GlobalTokens(mask=global_tokens.mask & (mask != 0)) if global_tokens else None,
        )
        if config.block_size is not None:
            return GlobalAndLocalMetadata(
                block_sparse_metadata(global_meta, config.block_size, config.random_blocks), None
            )
        if config.local_window is None:
            return GlobalAndLocalMetadata(global_meta, None)
        local_meta = _local_metadata(config, config.local_window, global_meta, global_tokens)
        if config.global_every == 0:
            return GlobalAndLocalMetadata(local_meta, None)
        return GlobalAndLocalMetadata(global_meta, None if local_meta is global_meta else local_meta)


def _local_metadata(
    config: EncoderConfig, local_window: int, global_meta: AttentionMetadata, global_tokens: GlobalTokenMask | None
) -> AttentionMetadata:
    """Return the attention metadata of local layers, which is `global_meta` if windows and angles change nothing."""
    local_meta, length = global_meta, global_meta.mask.shape[1]
    angles = POSITIONS[config.positions].angles
    if angles and config.local_rotary_base not in (None, config.rotary_base):
        local_angles = angles(config, config.local_rotary_base, length, global_meta.segments)
        local_meta = dataclasses.replace(local_meta, angles=local_angles)
    smallest_radius = min(config.local_windows or (local_window,)) // 2
    if not isinstance(length, int) or length - 1 > smallest_radius:  # a symbolic length may exceed the radius
        local_meta = dataclasses.replace(local_meta, radius=local_window // 2, window=local_window_spec(config))
        if global_tokens is not None and isinstance(length, int):
            local_meta = with_gathered_tokens(local_meta, global_tokens.capacity, global_tokens.capacity_is_exact)
    return local_meta


def make_block(config: EncoderConfig, dtype: jnp.dtype, attention: str) -> Block | BottleneckBlock:
    """Return the block of an architecture, without a parent module, because the encoder stacks the parameters."""
    block = BottleneckBlock if config.bottleneck_size else Block
    return block(config, dtype, attention, parent=None)


def layer_flags(config: EncoderConfig, layer: int | jax.Array, has_local: bool) -> LayerFlags:
    """Return the flags of the layer with index `layer`; for an array of indices, return arrays for a scan."""
    radius: int | jax.Array | None = None
    if config.local_windows:
        windows = config.local_windows
        radius = (windows[layer] if isinstance(layer, int) else jnp.asarray(windows, jnp.int32)) // 2
    return LayerFlags(
        skip_first_norm=None if config.first_attention_norm else layer == 0,
        is_local=layer % config.global_every != 0 if has_local else None,
        radius=radius,
    )


def metadata_for_layer(
    flags: LayerFlags, global_meta: AttentionMetadata, local_meta: AttentionMetadata | None
) -> AttentionMetadata:
    """Return the attention metadata of a layer with these flags; array flags are evaluated when the program runs."""
    is_local, metadata = flags.is_local, global_meta
    if isinstance(is_local, bool):
        metadata = local_meta if is_local and local_meta else global_meta
    elif is_local is not None and local_meta is not None:
        if local_meta.radius is not None:
            global_meta = dataclasses.replace(global_meta, radius=NO_LIMIT, window=local_meta.window)
        metadata = jax.tree.map(lambda a, b: a if a is b else jnp.where(is_local, a, b), local_meta, global_meta)
    if flags.radius is not None and metadata.radius is not None:
        metadata = dataclasses.replace(metadata, radius=flags.radius)
    return metadata


def attention_weights(
    config: EncoderConfig, params: Any, batch: Mapping[str, jax.Array], queries: slice = slice(None)
) -> jax.Array:
    """Return the attention weights of all layers, float32 `[layers, batch, heads, queries, keys]`.

    Args:
        config: the architecture.
        params: parameters of the encoder, `params["encoder"]` of a model.
        batch: input_ids, token_type_ids and attention_mask, int32 `[batch, length]`; sequences are not packed.
        queries: the tokens whose weights are returned.
    """
    return encode_with_attention_weights(config, params, batch, queries=queries)[1]


class HiddenAndWeights(NamedTuple):
    """Hidden states `[batch, length, hidden]`, and attention weights `[layers, batch, heads, queries, length]`."""

    hidden: jax.Array
    weights: jax.Array


def encode_with_attention_weights(
    config: EncoderConfig,
    params: Any,
    batch: Mapping[str, jax.Array],
    probes: jax.Array | None = None,
    queries: slice = slice(None),
    global_tokens: GlobalTokenMask | None = None,
) -> HiddenAndWeights:
    """Return the hidden states `[batch, length, hidden]`, and the attention weights of `attention_weights`.

    `probes`, `[layers, batch, heads, length, length]`, are added to the weights of the heads. So the gradient with
    respect to probes of zero is the gradient with respect to the attention weights.
    """
    encoder = Encoder(config, ComputeConfig(attention="xla"))

    def embed(encoder: Encoder) -> tuple[jax.Array, tuple[AttentionMetadata, AttentionMetadata | None]]:
        x = encoder._embed(batch["input_ids"], batch["token_type_ids"], None, None)
        return x, encoder._metadata_of_batch(batch["attention_mask"], None, global_tokens)

    def normalize(encoder: Encoder, x: jax.Array) -> jax.Array:
        return encoder.final_norm(x) if encoder.final_norm else x

    x, (global_meta, local_meta) = cast(Any, encoder.apply({"params": params}, method=embed))
    block = make_block(config, jnp.dtype("float32"), "xla")
    shared = jax.tree.map(lambda p: p[0], params["layers"]) if config.share_layers else None

    def apply_layer(x: jax.Array, xs: Any) -> tuple[jax.Array, jax.Array]:  # compiled once for all layers
        flags, params, probe = xs
        variables = {"params": shared or params}
        if probe is not None:
            variables[PROBES] = {"attention": {"weights": probe}}
        metadata = metadata_for_layer(flags, global_meta, local_meta)
        x, state = cast(Any, block.apply(variables, x, None, metadata, flags.skip_first_norm, mutable=[WEIGHTS]))
        return x, state[WEIGHTS]["attention"]["weights"][0][:, :, queries]

    flags = layer_flags(config, jax.lax.iota(jnp.int32, config.num_layers), local_meta is not None)
    xs = (flags, None if config.share_layers else params["layers"], probes)
    x, weights = jax.lax.scan(apply_layer, x, xs, length=config.num_layers)
    return HiddenAndWeights(cast(jax.Array, encoder.apply({"params": params}, x, method=normalize)), weights)
