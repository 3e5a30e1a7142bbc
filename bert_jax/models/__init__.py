"""Models as pairs of pure functions: the linen modules behind them stay in this package."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError, did_you_mean
from bert_jax.models.attention import kernel_used
from bert_jax.models.encoder import padded_vocab, table_width
from bert_jax.models.heads import HEADS, Head, Network
from bert_jax.models.layers import ACTIVATIONS

__all__ = [
    "HEADS",
    "PRESETS",
    "PRETRAINING_HEADS",
    "Batch",
    "Head",
    "Model",
    "Params",
    "count_parameters",
    "kernel_used",
    "make_model",
    "model_flops",
    "padded_vocab",
    "pretraining_model",
]

Params = dict[str, Any]  # nested, leaves float32 arrays
Batch = Mapping[str, jax.Array]

DTYPES = ("float32", "bfloat16")
PRETRAINING_HEADS = (Head("masked_token"), Head("next_sentence"))  # of BERT and ALBERT


class Model(NamedTuple):
    """An architecture as pure functions.

    `init(rng) -> params`: a tree of float32 arrays; blocks are stacked on a leading `layers` axis.
    `apply(params, batch, rng) -> arrays`: `rng` draws the dropout; None means none. models/heads.py says what each head
    reads of the batch, beside `input_ids`, `token_type_ids` and `attention_mask`, int32 `[batch, length]`.
    `logical_axes`: as params, with a tuple of logical names for each array.
    """

    config: EncoderConfig
    heads: tuple[Head, ...]
    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Batch, jax.Array | None], dict[str, jax.Array]]
    logical_axes: Any
    sections: Any  # as params, "embeddings", "layers" (stacked on the leading axis) or "heads" for each array


def make_model(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...]) -> Model:
    """The encoder of `config` with `heads`; `UserError` on an architecture that cannot be built."""
    _check(config, compute)
    module = Network(config, compute, heads)
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    example = {name: jax.ShapeDtypeStruct((1, 1), jnp.int32) for name in names}

    def boxed(rng: jax.Array) -> Any:
        return module.init(rng, {name: jnp.zeros(x.shape, x.dtype) for name, x in example.items()}, None)["params"]

    def init(rng: jax.Array) -> Params:
        return nn.unbox(boxed(rng))

    def apply(params: Params, batch: Batch, rng: jax.Array | None) -> dict[str, jax.Array]:
        return cast(dict[str, jax.Array], module.apply({"params": params}, batch, rng))

    shapes = jax.eval_shape(boxed, jax.random.key(0))
    axes = jax.tree.map(tuple, nn.get_partition_spec(shapes))
    sections = jax.tree_util.tree_map_with_path(lambda path, _: _section(path), nn.unbox(shapes))
    return Model(config, heads, init, apply, axes, sections)


def _section(path: Any) -> str:
    if path[0].key != "encoder":
        return "heads"
    return "layers" if path[1].key == "layers" else "embeddings"


def pretraining_model(config: EncoderConfig, compute: ComputeConfig) -> Model:
    """BERT with its two pretraining heads (Devlin et al. 2018), equal to Hugging Face's `BertForPreTraining`."""
    return make_model(config, compute, PRETRAINING_HEADS)


def count_parameters(config: EncoderConfig, heads: tuple[Head, ...] = PRETRAINING_HEADS) -> int:
    """Parameters of the encoder and `heads` without the padding of the vocabulary: what papers count."""
    shapes = jax.tree.leaves(jax.eval_shape(make_model(config, ComputeConfig(), heads).init, jax.random.key(0)))
    padding = padded_vocab(config.vocab_size) - config.vocab_size
    has_bias = any(head.name == "masked_token" for head in heads)
    return sum(math.prod(x.shape) for x in shapes) - padding * (table_width(config) + has_bias)


def model_flops(config: EncoderConfig, length: int, predictions: int) -> float:
    """Floating point operations of one row in one training step, matrix products alone, recomputation not counted.

    Forward and backward make 6 a parameter and token: `72 L h^2 + 12 L s h` a token for a feed-forward of `4 h`, and
    `6 (h V + h^2)` a predicted position. A packed row counts as one example of its length.
    """
    h, width, layers = config.hidden_size, table_width(config), config.num_layers
    token = (
        layers * (6 * (4 * h * h + 2 * h * config.mlp_size) + 12 * length * h) + 6 * (config.embedding_size or 0) * h
    )
    return float(length * token + predictions * 6 * (width * config.vocab_size + h * width))


def _check(config: EncoderConfig, compute: ComputeConfig) -> None:
    if not config.vocab_size:
        raise UserError(f"model.vocab_size={config.vocab_size}: set it to the tokenizer's")
    if config.num_heads < 1 or config.hidden_size % config.num_heads:
        raise UserError(f"model.num_heads={config.num_heads} does not divide model.hidden_size={config.hidden_size}")
    for name, value, known in (
        ("model.activation", config.activation, tuple(ACTIVATIONS)),
        ("compute.dtype", compute.dtype, DTYPES),
    ):
        if value not in known:
            raise UserError(f"{name}='{value}' is none of {', '.join(known)}{did_you_mean(value, known)}")
    if compute.attention == "cudnn" and (config.attention_dropout > 0 or compute.dtype != "bfloat16"):
        raise UserError(
            "config.compute.attention=cudnn wants config.model.attention_dropout=0 and config.compute.dtype=bfloat16"
        )
