"""An architecture as pure functions: the linen modules behind them stay in this room."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.models.attention.kernels import KERNELS, check_kernel
from bert_jax.models.attention.self_attention import OF_GLOBAL
from bert_jax.models.blocks import BLOCKS, MLPS
from bert_jax.models.encoder import Encoder, encoded_with_weights, is_global, padded_vocab
from bert_jax.models.heads import GLOBAL_TOKENS, OF_PRETRAINING, POOLINGS, Head, Network, tokens_to_be_global
from bert_jax.models.init import can_read_matches, can_read_neighbors, read_matches, read_neighbors
from bert_jax.models.layers import (
    ACTIVATIONS,
    INITIALIZATIONS,
    block_width,
    deviations,
    masked_width,
    projection_shape,
    table_width,
)
from bert_jax.models.norms import NORMS
from bert_jax.models.positions import POSITIONS

Params = dict[str, Any]  # nested, leaves float32 arrays
Batch = Mapping[str, jax.Array]

DTYPES = ("float32", "bfloat16")
PRETRAINING_HEADS = (Head("masked_token"), Head("next_sentence"))  # of BERT and ALBERT


class Model(NamedTuple):
    """An architecture as pure functions.

    `init(rng) -> params`: a tree of float32 arrays; blocks are stacked on a leading `layers` axis.
    `apply(params, batch, rng) -> arrays`: `rng` draws the dropout; None means none. models/heads.py says what a
    head reads of the batch, beside `input_ids`, `token_type_ids` and `attention_mask`, int32 `[batch, length]`.
    `shapes`: as params, with a `jax.ShapeDtypeStruct` for each array.
    `logical_axes`: as params, with a tuple of logical names for each array.
    `sections`: as params, with "embeddings", "layers" (stacked on the leading axis), "top" (of the encoder, above the
    layers), "heads", or "unused" (by these heads: the maps of global tokens, where there are none) for each array.
    """

    config: EncoderConfig
    heads: tuple[Head, ...]
    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Batch, jax.Array | None], dict[str, jax.Array]]
    shapes: Params
    logical_axes: Any
    sections: Any


def make_model(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...]) -> Model:
    """Return the encoder of `config` with `heads`; `UserError` on an architecture that cannot be built."""
    _check(config, compute, heads)
    module = Network(config, compute, heads)

    def init(rng: jax.Array) -> Params:
        params: Params = nn.unbox(_boxed_params(module, rng))
        start = deviations(config)
        params = read_neighbors(params, config) if start.neighbors else params
        return read_matches(params, config) if start.matches else params

    def apply(params: Params, batch: Batch, rng: jax.Array | None) -> dict[str, jax.Array]:
        return cast(dict[str, jax.Array], module.apply({"params": params}, batch, rng))

    shapes, axes, sections = _trees(config, heads)
    return Model(config, heads, init, apply, shapes, axes, sections)


def _boxed_params(module: Network, rng: jax.Array) -> Any:
    """Random parameters with the names of their axes."""
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    return module.init(rng, {name: jnp.zeros((1, 2), jnp.int32) for name in names}, None)["params"]


@functools.lru_cache(64)  # tracing takes a good part of a second, and a run makes its model several times
def _trees(config: EncoderConfig, heads: tuple[Head, ...]) -> tuple[Params, Any, Any]:
    """The shapes, logical axes and sections of a model; how it is computed does not change them."""
    boxed = jax.eval_shape(functools.partial(_boxed_params, Network(config, ComputeConfig(), heads)), jax.random.key(0))
    shapes = nn.unbox(boxed)
    axes = jax.tree.map(tuple, nn.get_partition_spec(boxed))
    unused = () if any(head.name in GLOBAL_TOKENS for head in heads) else OF_GLOBAL
    sections = jax.tree_util.tree_map_with_path(lambda path, _: _section(path, unused), shapes)
    return shapes, axes, sections


def _section(path: tuple[Any, ...], unused: tuple[str, ...]) -> str:
    """The part of the model that the parameter at `path` belongs to."""
    names = [key.key for key in path]
    if set(names) & set(unused):
        return "unused"
    if names[0] != "encoder":
        return "heads"
    return {"layers": "layers", "final_norm": "top"}.get(names[1], "embeddings")


def apply_with_weights(
    config: EncoderConfig, heads: tuple[Head, ...], params: Params, batch: Batch, probes: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return what `Model.apply` returns without dropout, and the attention weights, as `encoded_with_weights`.

    `probes` are as there: the gradient by probes of zero is one by the attention weights.
    """
    chosen = tokens_to_be_global(config, {head.name for head in heads}, batch["input_ids"])
    hidden, weights = encoded_with_weights(config, params["encoder"], batch, probes, to_be_global=chosen)

    def instead(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if isinstance(context.module, Encoder) and context.method_name == "__call__":
            return hidden, None
        return call(*args, **kwargs)

    with nn.intercept_methods(instead):
        found = Network(config, ComputeConfig(attention="xla"), heads).apply({"params": params}, batch, None)
    return cast(dict[str, jax.Array], found), weights


def pretraining_model(config: EncoderConfig, compute: ComputeConfig) -> Model:
    """Return BERT with its pretraining heads (Devlin et al. 2018), equal to transformers's `BertForPreTraining`."""
    return make_model(config, compute, PRETRAINING_HEADS)


def draw_missing(config: EncoderConfig, heads: tuple[Head, ...], params: Params, rng: jax.Array) -> Params:
    """Return `params` with the parts that the model lacks, such as a new head, drawn by its own `init`.

    Parts are the entries of the tree's top level, such as "encoder", "pooler" or a head. `params` holds whole parts,
    float32; what the model does not have is an error of the caller.
    """
    model = make_model(config, ComputeConfig(), heads)
    missing = [name for name in model.shapes if name not in params]
    if not missing:
        return params

    def draw(rng: jax.Array) -> Params:  # XLA leaves out the others
        drawn = model.init(rng)
        return {name: drawn[name] for name in missing}

    return params | cast(Params, jax.device_get(jax.jit(draw)(rng)))


def count_parameters(config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS) -> int:
    """Return the number of parameters without the padding of the vocabulary, as papers count."""
    model = make_model(config, ComputeConfig(), heads)
    padding = padded_vocab(config.vocab_size) - config.vocab_size

    def number(x: jax.ShapeDtypeStruct, axes: tuple[str, ...]) -> int:
        return math.prod(size - padding * (axis == "vocab") for size, axis in zip(x.shape, axes, strict=True))

    total = sum(jax.tree.leaves(jax.tree.map(number, model.shapes, model.logical_axes)))
    if config.first_attention_norm or config.share_layers:
        return total
    # The first block's norm is there, so that blocks can be stacked, and has no effect.
    unused = model.shapes["encoder"]["layers"]["attention_norm"]
    return total - sum(math.prod(x.shape[1:]) for x in jax.tree.leaves(unused))


def model_flops(config: EncoderConfig, seq_len: int, predictions: int) -> float:
    """Return the floating point operations of one sequence in one training step.

    Matrix products alone, recomputation not counted. Forward and backward make 6 per weight and token, and 12 per
    feature and pair of a query and a key that it reads: in BERT `72 L h^2 + 12 L s h` per token, and `6 (h V + h^2)`
    per predicted position. A packed sequence counts as one example of its length. What global tokens read by their own
    maps is not counted: pretraining has none.
    """
    h, width, layers = config.hidden_size, masked_width(config), config.num_layers
    token = layers * 6 * _block_weights(config) + 6 * math.prod(projection_shape(config) or (0,))
    pairs = 12 * block_width(config) * sum(_pairs(seq_len, config, layer) for layer in range(layers))
    return float(seq_len * token + pairs + predictions * 6 * (width * config.vocab_size + h * width))


def _pairs(seq_len: int, config: EncoderConfig, layer: int) -> int:
    """The pairs of a query and a key that it reads, in one block."""
    if config.block_size and seq_len > (5 + 2 * config.random_blocks) * config.block_size:
        size = config.block_size
        return 2 * size * seq_len + (seq_len - 2 * size) * 5 * size - 2 * size * size  # beside an end, a block less
    window = config.local_windows[layer] if config.local_windows else config.local_window or 0
    reach = seq_len - 1 if is_global(config, layer) else min(seq_len - 1, window // 2)
    both_sides = seq_len * (2 * reach + 1) - reach * (reach + 1)
    pairs = (both_sides + seq_len) // 2 if config.causal else both_sides
    # Queries and keys read a distance as well: two more products of as many numbers.
    return 2 * pairs if POSITIONS[config.positions].distances else pairs


def _block_weights(config: EncoderConfig) -> int:
    """The number of weights in the matrices of one block."""
    shapes, _, _ = _trees(config, ())
    matrices = jax.tree_util.tree_leaves_with_path(shapes["encoder"]["layers"])
    return sum(
        math.prod(x.shape[1:]) for path, x in matrices if x.ndim == 3 and not {key.key for key in path} & {*OF_GLOBAL}
    )


def _check(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...]) -> None:
    if config.vocab_size is None or config.vocab_size < 1:
        raise UserError(f"model.vocab_size={config.vocab_size}: set it to the tokenizer's")
    if config.num_heads < 1 or block_width(config) % config.num_heads:
        name = "bottleneck_size" if config.bottleneck_size else "hidden_size"
        raise UserError(f"model.num_heads={config.num_heads} does not divide model.{name}={block_width(config)}")
    if config.bilstm and config.hidden_size % 2:
        raise UserError(f"model.bilstm needs an even model.hidden_size, not {config.hidden_size}: half a direction")
    if config.bilstm and heads and {head.name for head in heads} <= OF_PRETRAINING:
        raise UserError("model.bilstm is read by heads of tasks alone: remove it, and fine-tune with task.bilstm")
    for name, value, known in (
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
    ):
        if value not in known:
            raise UserError(f"{name}='{value}' is none of {', '.join(known)}{did_you_mean(value, known)}")
    check_kernel(config, compute)
    for words, ignored in _without_effect(config).items():
        if ignored:
            raise UserError(words)


def _without_effect(config: EncoderConfig) -> dict[str, bool]:
    """Words on each combination of fields of which one is ignored, and whether it is there."""
    window, base, windows = config.local_window, config.local_rotary_base, config.local_windows
    return {
        f"model.local_windows={windows}: give the window of each of {config.num_layers} blocks, from 1 on, of which "
        f"model.local_window={window} is the widest, and model.global_every=0; or None": windows is not None
        and ((len(windows), max(windows), config.global_every) != (config.num_layers, window, 0) or min(windows) < 1),
        f"model.local_window={window} has no effect with model.global_every=1, which makes every block global; "
        "set model.global_every=3 for two local blocks in three, or model.local_window=None": (
            window is not None and config.global_every == 1
        ),
        f"model.global_every={config.global_every} has no effect without model.local_window; set it, as to 128, "
        "or model.global_every=1": window is None and config.global_every != 1,
        f"model.local_rotary_base={base} has no effect without model.local_window and rotary positions; "
        "set model.local_rotary_base=None": (
            base is not None and (window is None or POSITIONS[config.positions].angles is None)
        ),
        f"model.random_blocks={config.random_blocks} has no effect without model.block_size; set it, as to 64": (
            config.random_blocks > 0 and config.block_size is None
        ),
        f"model.local_window={window} and model.block_size={config.block_size} are two patterns; set one of them": (
            window is not None and config.block_size is not None
        ),
        f"model.separator_id={config.separator_id} and model.block_size={config.block_size}: blocks have no maps of "
        "global tokens; set one of them": config.separator_id is not None and config.block_size is not None,
        f"model.first_attention_norm=False has no effect with model.norm_position={config.norm_position}, which "
        "normalizes no input; leave it out": (
            not config.first_attention_norm and not BLOCKS[config.norm_position].norm_reads_input
        ),
        f"model.bottleneck_mlps={config.bottleneck_mlps} has no effect without model.bottleneck_size; set it, as to "
        "128, or model.bottleneck_mlps=1": config.bottleneck_mlps > 1 and config.bottleneck_size is None,
        f"model.norm_position={config.norm_position} has no effect with model.bottleneck_size, whose block normalizes "
        "sums; set model.norm_position=post": (
            config.bottleneck_size is not None and BLOCKS[config.norm_position].norm_reads_input
        ),
        f"model.masked_extra_table=True has no effect with a token table of {table_width(config)} features for "
        f"{config.hidden_size}; set model.embedding_size below model.hidden_size": (
            config.masked_extra_table and table_width(config) >= config.hidden_size
        ),
        f"model.initialization={config.initialization} starts heads by rotary positions, or by learned ones as wide as "
        f"the blocks; it has no effect with model.positions={config.positions}, model.embedding_size="
        f"{config.embedding_size}: set model.initialization=identity_head": (
            deviations(config).neighbors and not can_read_neighbors(config)
        ),
        f"model.initialization={config.initialization} starts a head by the two texts of a pair; it needs rotary "
        "positions, tables as wide as the blocks, model.num_token_types=2 and at least 32 features a head: set "
        "model.initialization=neighbors": (deviations(config).matches and not can_read_matches(config)),
    }
