"""Removal of the least important heads, MLP features or layers (Michel et al. 2019).

The output of each part is multiplied by a gate g = 1. The importance of a part is the mean of |dL/dg| over examples. A
gate multiplies rows of the matrix that takes the output as input, so that the code of the model does not change. All
layers keep equal numbers of heads and features, because layers are stacked, and a `config.json` has one number for all
layers.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface.model_config import family_has_config_field
from bert_jax.interop.tensors import Flat, flatten_params, unflatten_params
from bert_jax.models import Params
from bert_jax.models.attention.self_attention import GLOBAL_PROJECTIONS, PROJECTIONS
from bert_jax.models.encoder import is_global_layer
from bert_jax.models.positions import POSITIONS
from bert_jax.objectives.base import Batch

LAYERS = "encoder/layers/"
ATTENTION, MLP = f"{LAYERS}attention/output/", f"{LAYERS}mlp_down/"
BOTTLENECK = f"{LAYERS}output/"  # prefix of the last linear map of a block with a bottleneck
POSITION_BIAS = "encoder/position_bias/table"  # [buckets, heads], shared by all layers
FEATURE_MULTIPLE = 8  # the number of MLP features stays a multiple of 8, the block size of matrix units

Loss = Callable[[Params, Batch], jax.Array]  # loss of one example, whose arrays have a first axis of size 1


class Pruned(NamedTuple):
    """A smaller model, with a description of the removed parts."""

    config: EncoderConfig
    params: Params
    description: str  # a phrase about the removed parts


# (config, flat parameters, importance of each gate, fraction) -> smaller config and parameters, description
Remove = Callable[[EncoderConfig, Flat, np.ndarray, float], tuple[EncoderConfig, Flat, str]]


class PruneTarget(NamedTuple):
    """A row of TARGETS: a kind of part to remove."""

    gate_shape: Callable[[EncoderConfig], tuple[int, ...]]  # shape of the gates of one layer
    apply_gates: Callable[[Flat, jax.Array], Flat]  # flat parameters, gates [layers, *gate_shape] -> flat parameters
    remove: Remove


def prune(
    target: PruneTarget, config: EncoderConfig, params: Params, examples: Batch, loss: Loss, amount: float
) -> Pruned:
    """Remove the parts of one kind that matter least on these examples; `amount` is the fraction to remove.

    Raises:
        UserError: no part would be removed, or no part would be left.
    """
    flat = {path: np.asarray(x) for path, x in flatten_params(params).items()}
    importance = gate_importance(target, config, params, examples, loss)
    config, flat, description = target.remove(config, flat, importance, amount)
    return Pruned(config, unflatten_params(flat), description)


def gate_importance(
    target: PruneTarget, config: EncoderConfig, params: Params, examples: Batch, loss: Loss
) -> np.ndarray:
    """Return the importance of each gate, float64 `[layers, ...]`; shared layers count as one layer."""
    num_layers = 1 if config.share_layers else config.num_layers
    gates_of_one = jnp.ones((num_layers, *target.gate_shape(config)))

    def gated_loss(gates: jax.Array, params: Params, example: Batch) -> jax.Array:
        return loss(unflatten_params(target.apply_gates(flatten_params(params), gates)), example)

    gradient = jax.jit(lambda params, example: jnp.abs(jax.grad(gated_loss)(gates_of_one, params, example)))
    params, total = jax.device_put(params), np.zeros(gates_of_one.shape)
    num_examples = len(examples["input_ids"])
    for index in range(num_examples):
        total += np.asarray(gradient(params, {name: x[index : index + 1] for name, x in examples.items()}))
    return total / num_examples


def multiply_heads_by_gates(flat: Flat, gates: jax.Array) -> Flat:
    """Multiply the output of each head by its gate."""
    kernel = flat[f"{ATTENTION}kernel"]
    by_head = kernel.reshape(*gates.shape, -1, kernel.shape[-1]) * gates[:, :, None, None]
    return flat | {f"{ATTENTION}kernel": by_head.reshape(kernel.shape)}


class SmallerModel(NamedTuple):
    """A model without the removed parts, with its flat parameters, and a description of the removal."""

    config: EncoderConfig
    flat: Flat
    description: str


def remove_heads(config: EncoderConfig, flat: Flat, importance: np.ndarray, amount: float) -> SmallerModel:
    """Remove the least important heads of each layer; other heads keep their size.

    If layers share a table with an entry for each head, all layers lose the heads of equal index. The `config.json` of
    most families cannot state the size of heads. In a family that cannot state the size, the pruned model gets the
    family "research", which only bert_jax reads.
    """
    num_removed = _num_to_remove(amount, config.num_heads, "heads of each layer")
    if POSITIONS[config.positions].bias:
        importance = np.broadcast_to(importance.sum(axis=0), importance.shape)
    heads_LxH = _most_important_gates(importance, config.num_heads - num_removed)
    features = heads_LxH[:, :, None] * config.head_dim + np.arange(config.head_dim)
    features = features.reshape(len(features), -1)
    removed = {f"{ATTENTION}kernel": np.take_along_axis(flat[f"{ATTENTION}kernel"], features[:, :, None], axis=1)}
    for name in (*PROJECTIONS, *GLOBAL_PROJECTIONS):
        removed |= _keep_output_features(flat, f"{LAYERS}attention/{name}/", features)
    if POSITION_BIAS in flat:
        removed[POSITION_BIAS] = flat[POSITION_BIAS][:, heads_LxH[0]]
    family = config.family if family_has_config_field(config.family, "head_size") else "research"
    smaller = dataclasses.replace(
        config, family=family, num_heads=config.num_heads - num_removed, head_size=config.head_dim
    )
    description = f"{num_removed} of {config.num_heads} heads of each layer removed"
    if family != config.family:
        description += f"; transformers has no such {config.family}: a model of family research, for bert_jax alone"
    return SmallerModel(smaller, flat | removed, description)


def multiply_mlp_features_by_gates(flat: Flat, gates: jax.Array) -> Flat:
    """Multiply each feature of the MLPs by its gate."""
    names = [f"{mlp}mlp_down/kernel" for mlp in _mlp_parameter_prefixes(flat)]
    gates_of_mlps = jnp.split(gates, len(names), axis=1)
    return flat | {name: flat[name] * gates[:, :, None] for name, gates in zip(names, gates_of_mlps, strict=True)}


def remove_mlp_features(config: EncoderConfig, flat: Flat, importance: np.ndarray, amount: float) -> SmallerModel:
    """Remove the least important features; all MLPs keep the same number of features, a multiple of 8."""
    size = max(FEATURE_MULTIPLE, round((1 - amount) * config.mlp_size / FEATURE_MULTIPLE) * FEATURE_MULTIPLE)
    if size >= config.mlp_size:
        raise UserError(
            f"--amount {amount:g} removes none of {config.mlp_size} MLP features, because a multiple of "
            f"{FEATURE_MULTIPLE} stays; give a larger fraction"
        )
    removed, mlps = Flat(), _mlp_parameter_prefixes(flat)
    for mlp, importance_of_mlp in zip(mlps, np.split(importance, len(mlps), axis=1), strict=True):
        features = _most_important_gates(importance_of_mlp, size)
        end = f"{mlp}mlp_down/kernel"
        removed[end] = np.take_along_axis(flat[end], features[:, :, None], axis=1)
        for name in ("mlp_up", "mlp_gate"):
            removed |= _keep_output_features(flat, f"{mlp}{name}/", features)
    smaller, each = dataclasses.replace(config, mlp_size=size), "layer" if len(mlps) == 1 else "MLP"
    return SmallerModel(
        smaller, flat | removed, f"{config.mlp_size - size} of {config.mlp_size} MLP features of each {each} removed"
    )


def _mlp_parameter_prefixes(flat: Mapping[str, Any]) -> list[str]:
    """Return the prefix of the parameter names of each MLP; a block with a bottleneck may have several MLPs."""
    ends = [path for path in flat if path.startswith(LAYERS) and path.endswith("mlp_down/kernel")]
    return [path.removesuffix("mlp_down/kernel") for path in ends]


def _most_important_gates(importance: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the most important gates of each layer, ascending, `[layers, count]`."""
    return np.sort(np.argsort(-importance, axis=1, kind="stable")[:, :count], axis=1)


def _keep_output_features(flat: Flat, prefix: str, features: np.ndarray) -> Flat:
    """Return kernel and bias (if any) of a linear map, cut to the outputs at `features`, `[layers, count]`."""
    cut = Flat()
    for path in (f"{prefix}kernel", f"{prefix}bias"):
        if path in flat:
            index = features if flat[path].ndim == 2 else features[:, None]
            cut[path] = np.take_along_axis(flat[path], index, axis=-1)
    return cut


def multiply_layers_by_gates(flat: Flat, gates: jax.Array) -> Flat:
    """Multiply the output of each layer by its gate."""
    ends = BOTTLENECK if f"{BOTTLENECK}kernel" in flat else (ATTENTION, MLP)
    paths = [path for path in flat if path.startswith(ends)]
    return flat | {path: flat[path] * gates.reshape(-1, *(1,) * (flat[path].ndim - 1)) for path in paths}


def remove_layers(config: EncoderConfig, flat: Flat, importance: np.ndarray, amount: float) -> SmallerModel:
    """Remove the least important layers; the remaining layers keep the pattern of global and local layers."""
    if config.share_layers:
        raise UserError("all layers share their parameters (share_layers): none can be removed by itself")
    num_removed = _num_to_remove(amount, config.num_layers, "layers")
    layers = choose_layers_to_keep(config, importance, config.num_layers - num_removed)
    removed = ", ".join(str(layer) for layer in range(config.num_layers) if layer not in layers)
    windows = tuple(config.local_windows[layer] for layer in layers) if config.local_windows else None
    widest = max(windows) if windows else config.local_window
    smaller = dataclasses.replace(config, num_layers=len(layers), local_windows=windows, local_window=widest)
    description = f"{num_removed} of {config.num_layers} layers removed (of 0 to {config.num_layers - 1}: {removed})"
    return SmallerModel(
        smaller, flat | {path: x[layers] for path, x in flat.items() if path.startswith(LAYERS)}, description
    )


def choose_layers_to_keep(config: EncoderConfig, importance: np.ndarray, count: int) -> list[int]:
    """Return the `count` layers with the highest total importance that can have the new indices 0 to count - 1.

    The new index of a local layer must be an index at which the config has a local layer. Layer 0 stays the first layer
    if it has no norm before its attention. The method is dynamic programming: `best[n]` is the best choice of n layers
    among the layers so far.
    """
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for layer, new_index in itertools.product(range(config.num_layers), reversed(range(count))):
        first_fits = config.first_attention_norm or (layer == 0) == (new_index == 0)
        if new_index in best and first_fits and is_global_layer(config, layer) == is_global_layer(config, new_index):
            total = best[new_index][0] + float(importance[layer])
            if new_index + 1 not in best or total > best[new_index + 1][0]:
                best[new_index + 1] = total, [*best[new_index][1], layer]
    return best[count][1]


def _num_to_remove(amount: float, total: int, parts: str) -> int:
    """Return the number of parts to remove; raise UserError if no part or every part would be removed."""
    count = round(amount * total)
    if not 0 < count < total:
        fix = "a smaller fraction, which leaves some" if count else f"at least {1 / total:.2g}"
        raise UserError(f"--amount {amount:g} removes {count} of {total} {parts}; give {fix}")
    return count


TARGETS: dict[str, PruneTarget] = {
    "heads": PruneTarget(lambda config: (config.num_heads,), multiply_heads_by_gates, remove_heads),
    "mlp": PruneTarget(
        lambda config: (config.bottleneck_mlps * config.mlp_size,), multiply_mlp_features_by_gates, remove_mlp_features
    ),
    "layers": PruneTarget(lambda config: (), multiply_layers_by_gates, remove_layers),
}
