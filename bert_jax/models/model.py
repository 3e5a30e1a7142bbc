"""An architecture as pure functions, so that other packages need not know the linen modules."""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig, refuse_fields_without_effect
from bert_jax.errors import UserError, did_you_mean
from bert_jax.models.attention.kernels import KERNELS, check_kernel
from bert_jax.models.attention.self_attention import GLOBAL_PROJECTIONS
from bert_jax.models.blocks import BLOCKS, MLPS
from bert_jax.models.encoder import (
    Encoder,
    embedding_projection_shape,
    encode_with_attention_weights,
    is_global_layer,
    padded_vocab,
)
from bert_jax.models.heads import (
    GLOBAL_TOKENS,
    HEADS,
    OF_PRETRAINING,
    POOLINGS,
    Batch,
    Head,
    Network,
    global_token_mask,
)
from bert_jax.models.init import (
    INITIALIZATIONS,
    can_init_matching_head,
    can_init_neighbor_heads,
    init_matching_head,
    init_neighbor_heads,
    init_scales,
)
from bert_jax.models.layers import ACTIVATIONS, ADAPTER
from bert_jax.models.norms import NORMS, no_norm
from bert_jax.models.positions import POSITIONS

Params = dict[str, Any]  # a nested dict whose leaves are float32 arrays

DTYPES = ("float32", "bfloat16")
PRETRAINING_HEADS = (Head("masked_token"), Head("next_sentence"))  # the pretraining heads of BERT and ALBERT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """An architecture as pure functions.

    `init(rng) -> params` returns a tree of float32 arrays; blocks are stacked on a leading `layers` axis.
    `apply(params, batch, rng) -> arrays` takes the random key of dropout, or None for no dropout. Every batch has
    `input_ids`, `token_type_ids` and `attention_mask`, int32 `[batch, length]`; models/heads.py documents further
    inputs.
    `shapes`: a tree like params, with a `jax.ShapeDtypeStruct` for each array.
    `logical_axes`: a tree like params, with a tuple of logical names for each array.
    `sections`: a tree like params, with a string for each array: "embeddings", "layers" (stacked on the leading axis),
    "top" (the part of the encoder above the layers), "heads", or "unused" (the maps of global tokens, if no head makes
    tokens global).
    """

    config: EncoderConfig
    heads: tuple[Head, ...]
    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Batch, jax.Array | None], dict[str, jax.Array]]
    shapes: Params
    logical_axes: Any
    sections: Any


def make_model(config: EncoderConfig, compute: ComputeConfig, heads: Sequence[Head]) -> Model:
    """Return the encoder of `config` with `heads`; raise `UserError` for an architecture that cannot be built.

    Equal arguments give the same `Model`, so that `jax.jit` of its functions compiles each shape once in a process.
    """
    return _make_model(config, compute, tuple(heads))


@functools.lru_cache(8)
def _make_model(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...]) -> Model:
    _check_architecture(config, compute, heads)
    module = Network(config, compute, heads)

    def init(rng: jax.Array) -> Params:
        params: Params = nn.unbox(_draw_boxed_params(module, rng))
        scales = init_scales(config)
        params = init_neighbor_heads(params, config) if scales.neighbors else params
        return init_matching_head(params, config) if scales.matches else params

    def apply(params: Params, batch: Batch, rng: jax.Array | None) -> dict[str, jax.Array]:
        return cast(
            dict[str, jax.Array], module.apply({"params": params, ADAPTER: params.get(ADAPTER, {})}, batch, rng)
        )

    shapes, axes, sections = _shapes_axes_sections(config, heads)
    return Model(
        config=config, heads=heads, init=init, apply=apply, shapes=shapes, logical_axes=axes, sections=sections
    )


def _draw_boxed_params(module: Network, rng: jax.Array) -> Any:
    """Initialize parameters, with the names of their axes."""
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    return module.init(rng, {name: jnp.zeros((1, 2), jnp.int32) for name in names}, None)["params"]


class _ParameterTrees(NamedTuple):
    """Three trees like the parameters: the shape, the logical axes and the section of each parameter."""

    shapes: Params
    logical_axes: Any
    sections: Any


@functools.lru_cache(512)  # tracing takes almost a second, and a run makes its model several times
def _shapes_axes_sections(config: EncoderConfig, heads: tuple[Head, ...]) -> _ParameterTrees:
    """Return the shapes, logical axes and sections of a model, which do not depend on `ComputeConfig`."""
    boxed = jax.eval_shape(
        functools.partial(_draw_boxed_params, Network(config, ComputeConfig(), heads)), jax.random.key(0)
    )
    shapes = nn.unbox(boxed)
    axes = jax.tree.map(tuple, nn.get_partition_spec(boxed))
    unused = () if any(head.name in GLOBAL_TOKENS for head in heads) else GLOBAL_PROJECTIONS
    sections = jax.tree_util.tree_map_with_path(lambda path, _: _section_of_parameter(path, unused), shapes)
    return _ParameterTrees(shapes, axes, sections)


def _section_of_parameter(path: tuple[Any, ...], unused: tuple[str, ...]) -> str:
    """Return the section of the model that contains the parameter at `path`."""
    names = [key.key for key in path]
    if set(names) & set(unused):
        return "unused"
    if names[0] != "encoder":
        return "heads"
    return {"layers": "layers", "final_norm": "top"}.get(names[1], "embeddings")


class ArraysAndWeights(NamedTuple):
    """The arrays of `Model.apply`, and the attention weights of `encode_with_attention_weights`."""

    arrays: dict[str, jax.Array]
    weights: jax.Array


def apply_with_attention_weights(
    config: EncoderConfig, heads: tuple[Head, ...], params: Params, batch: Batch, probes: jax.Array
) -> ArraysAndWeights:
    """Return the arrays of `Model.apply` without dropout, and the attention weights of `encode_with_attention_weights`.

    The array `probes` is added to the attention weights. So the gradient with respect to probes of zero is the gradient
    with respect to the attention weights.
    """
    global_tokens = global_token_mask(config, {head.name for head in heads}, batch["input_ids"])
    hidden, weights = encode_with_attention_weights(
        config, params["encoder"], batch, probes, global_tokens=global_tokens
    )

    def with_these_states(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(context.module, Encoder) and context.method_name == "__call__":
            return hidden, None
        return call(*args, **kwargs)

    with nn.intercept_methods(with_these_states):
        arrays = Network(config, ComputeConfig(attention="xla"), heads).apply({"params": params}, batch, None)
    return ArraysAndWeights(cast(dict[str, jax.Array], arrays), weights)


def pretraining_model(config: EncoderConfig, compute: ComputeConfig) -> Model:
    """Return BERT with its pretraining heads (Devlin et al. 2018), equal to transformers's `BertForPreTraining`."""
    return make_model(config, compute, PRETRAINING_HEADS)


def draw_missing(config: EncoderConfig, heads: tuple[Head, ...], params: Params, rng: jax.Array) -> Params:
    """Return `params` with the missing parts of the model, such as a new head, initialized by the model's `init`.

    Parts are the entries at the top level of the tree, such as "encoder", "pooler" or a head. The given `params` must
    hold complete parts of this model, float32.
    """
    model = make_model(config, ComputeConfig(), heads)
    missing = [name for name in model.shapes if name not in params]
    if not missing:
        return params

    return params | cast(Params, jax.device_get(_draw_parts(model.init, tuple(missing), rng)))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _draw_parts(init: Callable[[jax.Array], Params], names: tuple[str, ...], rng: jax.Array) -> Params:
    drawn = init(rng)  # XLA removes the computation of the other parts
    return {name: drawn[name] for name in names}


def count_parameters(config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS) -> int:
    """Return the number of parameters, as papers count: without the padding of the vocabulary."""
    model = make_model(config, ComputeConfig(), heads)
    padding = padded_vocab(config.vocab_size) - config.vocab_size

    def size(x: jax.ShapeDtypeStruct, axes: tuple[str, ...]) -> int:
        return math.prod(n - padding * (axis == "vocab") for n, axis in zip(x.shape, axes, strict=True))

    total = sum(jax.tree.leaves(jax.tree.map(size, model.shapes, model.logical_axes)))
    if config.first_attention_norm or config.share_layers:
        return total
    # The first norm of the first block has no effect, and exists only so that the parameters of blocks can be stacked.
    unused = model.shapes["encoder"]["layers"]["attention_norm"]
    return total - sum(math.prod(x.shape[1:]) for x in jax.tree.leaves(unused))


def model_flops(config: EncoderConfig, seq_len: int, predictions: int) -> float:
    """Return the floating-point operations of a sequence in a training step.

    Only matrix products are counted, each once, even if the backward pass recomputes a product. Forward and backward
    pass together take 6 operations for each weight and token, and 12 operations for each feature and each pair of a
    query and a key in its window. For BERT, the number of operations is `72 L h^2 + 12 L s h` per token, plus `6 (h V +
    h^2)` per predicted position. A packed sequence counts as a single example of its length. Attention of global tokens
    is not counted, because pretraining has no global tokens.
    """
    h, width, layers = config.hidden_size, config.masked_width, config.num_layers
    token = layers * 6 * _num_block_weights(config) + 6 * math.prod(embedding_projection_shape(config) or (0,))
    pairs = 12 * config.attention_width * sum(_num_attended_pairs(seq_len, config, layer) for layer in range(layers))
    return float(seq_len * token + pairs + predictions * 6 * (width * config.vocab_size + h * width))


def _num_attended_pairs(seq_len: int, config: EncoderConfig, layer: int) -> int:
    """Return the number of query-key pairs of a sequence that the attention of a block computes."""
    if config.block_size and seq_len > config.max_dense_length:
        size = config.block_size
        return (
            2 * size * seq_len + (seq_len - 2 * size) * 5 * size - 2 * size * size
        )  # a block next to an end of the sequence reads one block less
    window = config.local_windows[layer] if config.local_windows else config.local_window or 0
    radius = seq_len - 1 if is_global_layer(config, layer) else min(seq_len - 1, window // 2)
    both_sides = seq_len * (2 * radius + 1) - radius * (radius + 1)
    pairs = (both_sides + seq_len) // 2 if config.causal else both_sides
    # Queries and keys read a distance as well: two more products of equal size.
    return 2 * pairs if POSITIONS[config.positions].distances else pairs


def _num_block_weights(config: EncoderConfig) -> int:
    """Return the number of weights in the matrices of a block."""
    shapes, _, sections = _shapes_axes_sections(config, ())
    layers, sections = shapes["encoder"]["layers"], sections["encoder"]["layers"]
    sizes = jax.tree.map(
        lambda x, section: math.prod(x.shape[1:]) * (x.ndim == 3 and section == "layers"), layers, sections
    )
    return sum(jax.tree.leaves(sizes))


def _check_architecture(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...]) -> None:
    """Raise `UserError` for an architecture that cannot be built with these heads."""
    if config.vocab_size is None or config.vocab_size < 1:
        raise UserError(f"model.vocab_size={config.vocab_size}: set it to the tokenizer's")
    if config.num_heads < 1 or (config.head_size is None and config.block_width % config.num_heads):
        name = "bottleneck_size" if config.bottleneck_size else "hidden_size"
        raise UserError(f"model.num_heads={config.num_heads} does not divide model.{name}={config.block_width}")
    if config.bilstm and config.hidden_size % 2:
        raise UserError(f"model.bilstm needs an even model.hidden_size, not {config.hidden_size}: half a direction")
    if config.bilstm and heads and {head.name for head in heads} <= OF_PRETRAINING:
        raise UserError("model.bilstm is only for the heads of tasks; remove it, and fine-tune with task.bilstm")
    choices: list[tuple[str, str, Collection[str]]] = [
        ("model.norm_position", config.norm_position, BLOCKS),
        ("model.norm", config.norm, NORMS),
        ("model.positions", config.positions, POSITIONS),
        ("model.mlp", config.mlp, MLPS),
        ("model.activation", config.activation, ACTIVATIONS),
        ("model.masked_norm", config.masked_norm or config.norm, NORMS),
        ("model.masked_activation", config.masked_activation or config.activation, ACTIVATIONS),
        ("model.pooler_activation", config.pooler_activation, ACTIVATIONS),
        ("model.sequence_activation", config.sequence_activation or config.pooler_activation, ACTIVATIONS),
        ("model.pooling", config.pooling, POOLINGS),
        ("model.initialization", config.initialization, INITIALIZATIONS),
        ("compute.dtype", compute.dtype, DTYPES),
        ("compute.attention", compute.attention, KERNELS),
        *(("head", head.name, HEADS) for head in heads),
    ]
    for name, value, known in choices:
        if value not in known:
            raise UserError(f"{name}='{value}' is none of {', '.join(known)}{did_you_mean(value, known)}")
    check_kernel(config, compute)
    refuse_fields_without_effect(config, "model")
    for message, is_wrong in _has_contradiction_by_message(config).items():
        if is_wrong:
            raise UserError(message)


def _has_norm_before_attention(config: EncoderConfig) -> bool:
    """Return whether a norm scales the input of the first attention; else the scores of neighbors are too small."""
    reads_norm = BLOCKS[config.norm_position].norm_reads_input and config.first_attention_norm
    return NORMS[config.norm] is not no_norm and (config.embedding_norm or reads_norm)


def _has_contradiction_by_message(config: EncoderConfig) -> dict[str, bool]:
    """Return a message for each pair of contradictory fields, and whether the config has the contradiction."""
    window, windows = config.local_window, config.local_windows
    return {
        f"model.local_windows={windows}: give the window of each of {config.num_layers} blocks, from 1 on, of which "
        f"model.local_window={window} is the widest, and model.global_every=0; or None": windows is not None
        and ((len(windows), max(windows), config.global_every) != (config.num_layers, window, 0) or min(windows) < 1),
        f"model.local_window={window} and model.block_size={config.block_size} are two patterns; set one of them": (
            window is not None and config.block_size is not None
        ),
        f"model.separator_id={config.separator_id} and model.block_size={config.block_size}: blocks have no maps of "
        "global tokens; set one of them": config.separator_id is not None and config.block_size is not None,
        "model.trigram_embeddings=True shows a causal model the next token; choose an objective with masks, or set "
        "model.trigram_embeddings=False": (config.causal and config.trigram_embeddings),
        f"model.masked_extra_table=True has no effect with a token table of {config.table_width} features for "
        f"{config.hidden_size}; set model.embedding_size below model.hidden_size": (
            config.masked_extra_table and config.table_width >= config.hidden_size
        ),
        f"model.initialization={config.initialization} needs rotary positions, or learned positions as wide as the "
        f"blocks (model.positions={config.positions}, model.embedding_size={config.embedding_size}), a norm before the "
        "first attention, and 2 features a head: set model.initialization=identity_head": (
            init_scales(config).neighbors
            and not (can_init_neighbor_heads(config) and _has_norm_before_attention(config))
        ),
        f"model.initialization={config.initialization} starts a head by the two texts of a pair; it needs rotary "
        "positions, tables as wide as the blocks, model.num_token_types=2 and at least 32 features a head: set "
        "model.initialization=neighbors": (init_scales(config).matches and not can_init_matching_head(config)),
    }
