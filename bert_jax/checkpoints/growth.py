"""Growth in depth and width: the weights of a smaller encoder become the initial weights of a larger encoder.

Width. Each feature, head and MLP unit is repeated. A weight that reads repeated features is divided between the copies,
so the larger model computes the function of the smaller model (Net2Net, Chen et al. 2016; bert2BERT, Chen et al. 2021).
The fractions are random, because copies with equal weights would get equal gradients.

Depth. Layer i of L' layers is a copy of layer floor(i L / L') of L layers, so that copies are neighbors (Chang et al.
2018). Stacking (Gong et al. 2019), also in bert2BERT, repeats the whole stack instead. Copies of layers change the
function of the model.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.huggingface.model import OVER_VOCABULARY
from bert_jax.models import make_model

SIZES = ("num_layers", "hidden_size", "embedding_size", "num_heads", "head_size", "mlp_size")
NORMALIZED = ("hidden_size", "embedding_size")  # a norm needs equally many copies of each feature


def with_size_of(config: EncoderConfig, wanted: EncoderConfig) -> EncoderConfig:
    """Return the architecture `config` in the size of the architecture `wanted`."""
    return dataclasses.replace(config, **{name: getattr(wanted, name) for name in SIZES})


def grow_weights(weights: Weights, grown: EncoderConfig, where: str, name: str, seed: int, console: Console) -> Weights:
    """Return the weights in the architecture `grown`; if only the width grows, the outputs of the model stay equal.

    The console prints the sizes and the copied layers.

    Args:
        weights: the smaller model.
        grown: the result of `with_size_of` for the architecture of `weights`.
        where: place of the weights, for messages.
        name: prefix of the keys of `grown`, for messages.
        seed: seed of the fractions that divide weights.
        console: console that prints a line.

    Raises:
        UserError: a size shrinks, or no copies of features compute the function of the smaller model.
    """
    small = weights.config
    _check_sizes(small, grown, where, name)
    console.say(_growth_line(small, grown))
    layers = source_layers(small.num_layers, grown.num_layers)
    rng = np.random.default_rng(seed)

    def grow(path: tuple[Any, ...], x: np.ndarray, shape: jax.ShapeDtypeStruct) -> np.ndarray:
        names, sizes, x = [key.key for key in path], shape.shape, np.asarray(x)
        if names[:2] == ["encoder", "layers"] and len(x) < sizes[0]:  # shared layers have one set of parameters
            x = x[layers]
        # The output of this norm is multiplied by the token table, whose features are repeated.
        reads_copies = names[0] in OVER_VOCABULARY and names[1] == "norm"
        x = _divide(x, -1, sizes[-1], rng) if reads_copies else _repeat(x, -1, sizes[-1])
        return _divide(x, -2, sizes[-2], rng) if names[-1] == "kernel" else x

    shapes = make_model(grown, ComputeConfig(), weights.heads).shapes
    params = jax.tree_util.tree_map_with_path(grow, weights.params, shapes)
    return dataclasses.replace(weights, config=grown, params=params)


def source_layers(num_layers: int, num_grown: int) -> list[int]:
    """Return the index of the layer that each layer of the deeper model copies, such as 0, 0, 1, 1, 2, 2."""
    return [index * num_layers // num_grown for index in range(num_grown)]


def _growth_line(small: EncoderConfig, grown: EncoderConfig) -> str:
    """Return a line about the sizes and the copied layers."""
    sizes = f"{small.num_layers} x {small.hidden_size} to {grown.num_layers} x {grown.hidden_size} (layers x width)"
    heads = f", heads {small.num_heads} to {grown.num_heads}" if grown.num_heads > small.num_heads else ""
    mlp = f", MLP {small.mlp_size} to {grown.mlp_size}" if grown.mlp_size > small.mlp_size else ""
    layers = ", ".join(map(str, source_layers(small.num_layers, grown.num_layers)))
    is_copied = grown.num_layers > small.num_layers and not grown.share_layers
    return f"grown from {sizes}{heads}{mlp}{f', copies of the layers {layers}' if is_copied else ''}"


def _repeat(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Return `x` with the entries of an axis repeated in order, until the axis has `size` entries."""
    repeated: np.ndarray = x.take(np.arange(size) % x.shape[axis], axis)
    return repeated


def _divide(x: np.ndarray, axis: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return `_repeat(x, axis, size)` times random fractions, so that the copies of an entry add up to the entry."""
    if size == x.shape[axis]:
        return x
    repeated = _repeat(x, axis, size)
    fractions = rng.standard_exponential(repeated.shape, np.float32)
    # The arrays are views whose first axis is `axis`.
    parts, totals = np.moveaxis(fractions, axis, 0), np.moveaxis(np.zeros_like(x), axis, 0)
    for begin in range(0, size, len(totals)):
        part = parts[begin : begin + len(totals)]
        totals[: len(part)] += part
    parts /= totals[np.arange(size) % len(totals)]
    return repeated * fractions


def _check_sizes(small: EncoderConfig, grown: EncoderConfig, where: str, name: str) -> None:
    """Raise UserError if a size shrinks, or if no copies of features compute the function of the smaller model."""
    for field in SIZES:
        before, after = getattr(small, field), getattr(grown, field)
        if field == "head_size" or before == after:
            continue
        if None in (before, after) or after < before or (field in NORMALIZED and after % before):
            sizes = f"a multiple of {before}" if field in NORMALIZED else f"at least {before}"
            raise UserError(f"{where} cannot grow to {name}.{field}={after}; choose {before and sizes}")
    if grown.head_dim != small.head_dim:
        num_heads = grown.block_width // small.head_dim
        fix = f"head_size={small.head_dim}" if grown.head_size else f"num_heads={num_heads}"
        raise UserError(
            f"{where} cannot grow from {small.head_dim} to {grown.head_dim} features per head; set {name}.{fix}"
        )
    is_wider = (small.hidden_size, small.table_width) != (grown.hidden_size, grown.table_width)
    if is_wider and (small.trigram_embeddings or small.masked_extra_table):
        raise UserError(
            f"{where} cannot grow in width with {name}.trigram_embeddings or masked_extra_table; keep "
            f"{name}.hidden_size={small.hidden_size} and embedding_size={small.embedding_size}"
        )
    if grown.table_width > small.table_width and not small.norm_scale:
        raise UserError(
            f"{where} cannot grow to wider embeddings with {name}.norm_scale=False, which would scale the logits; "
            f"keep the width {small.table_width}"
        )
