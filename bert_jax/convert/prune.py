"""Heads, MLP features and layers that matter least, removed (Michel et al. 2019).

The importance of a part is the mean over examples of |dL/dg|, where the part's output is multiplied by a gate g = 1. A
gate on an output is one on the rows of the matrix that reads it, so the model itself is not changed.
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
from bert_jax.interop.tensors import flatten, unflatten
from bert_jax.models import Params
from bert_jax.models.encoder import is_global
from bert_jax.objectives.base import Batch

LAYERS = "encoder/layers/"
ATTENTION, MLP = f"{LAYERS}attention/output/", f"{LAYERS}mlp_down/"
BOTTLENECK = f"{LAYERS}output/"  # the end of a block that has one
MULTIPLE = 8  # MLP features, which matrix units take in such blocks

Loss = Callable[[Params, Batch], jax.Array]  # of one example, whose arrays have a first axis of 1


class Pruned(NamedTuple):
    """A smaller model."""

    config: EncoderConfig
    params: Params
    what: str  # a phrase: what was removed


class Part(NamedTuple):
    """A row of PARTS: what can be removed."""

    gates: Callable[[EncoderConfig], tuple[int, ...]]  # how many gates a layer has
    gated: Callable[[dict[str, Any], jax.Array], dict[str, Any]]  # flat parameters, gates [layers, ...] -> the same
    cut: Callable[[EncoderConfig, dict[str, np.ndarray], np.ndarray, float], tuple[EncoderConfig, dict[str, Any], str]]


def prune(part: Part, config: EncoderConfig, params: Params, examples: Batch, loss: Loss, amount: float) -> Pruned:
    """Return the model without the fraction `amount` of a part, the least important of it on these examples.

    Raises:
        UserError: nothing would be removed, or nothing would be left.
    """
    flat = {path: np.asarray(x) for path, x in flatten(params).items()}
    found = importance(part, config, params, examples, loss)
    config, flat, what = part.cut(config, flat, found, amount)
    return Pruned(config, unflatten(flat), what)


def importance(part: Part, config: EncoderConfig, params: Params, examples: Batch, loss: Loss) -> np.ndarray:
    """Return the importance of each gate, float64 `[layers, ...]` (one layer where all share their parameters)."""
    number = 1 if config.share_layers else config.num_layers
    ones = jnp.ones((number, *part.gates(config)))

    def of_one(gates: jax.Array, params: Params, example: Batch) -> jax.Array:
        return loss(unflatten(part.gated(flatten(params), gates)), example)

    gradient = jax.jit(lambda params, example: jnp.abs(jax.grad(of_one)(ones, params, example)))
    on_device, total = jax.device_put(params), np.zeros(ones.shape)
    count = len(examples["input_ids"])
    for number in range(count):
        total += np.asarray(gradient(on_device, {name: x[number : number + 1] for name, x in examples.items()}))
    return total / count


def _gate_heads(flat: dict[str, Any], gates: jax.Array) -> dict[str, Any]:
    kernel = flat[f"{ATTENTION}kernel"]
    by_head = kernel.reshape(*gates.shape, -1, kernel.shape[-1]) * gates[:, :, None, None]
    return flat | {f"{ATTENTION}kernel": by_head.reshape(kernel.shape)}


def _gate_mlp(flat: dict[str, Any], gates: jax.Array) -> dict[str, Any]:
    names = [f"{place}mlp_down/kernel" for place in _mlps(flat)]
    each = jnp.split(gates, len(names), axis=1)
    return flat | {name: flat[name] * own[:, :, None] for name, own in zip(names, each, strict=True)}


def _mlps(flat: Mapping[str, Any]) -> list[str]:
    """The beginnings of the names of each MLP's parameters; a block with a bottleneck may have several."""
    found = [path for path in flat if path.startswith(LAYERS) and path.endswith("mlp_down/kernel")]
    return [path.removesuffix("mlp_down/kernel") for path in found]


def _gate_layers(flat: dict[str, Any], gates: jax.Array) -> dict[str, Any]:
    around = BOTTLENECK if f"{BOTTLENECK}kernel" in flat else (ATTENTION, MLP)
    ends = [path for path in flat if path.startswith(around)]
    return flat | {path: flat[path] * gates.reshape(-1, *(1,) * (flat[path].ndim - 1)) for path in ends}


def _cut_heads(
    config: EncoderConfig, flat: dict[str, np.ndarray], found: np.ndarray, amount: float
) -> tuple[EncoderConfig, dict[str, Any], str]:
    """Zero what heads write: no config.json can say that layers have different numbers of heads."""
    relative = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.finfo(float).tiny)
    number = _removed(amount, relative.size, "heads")
    gates = np.ones(relative.size, np.float32)
    gates[np.argsort(relative, axis=None, kind="stable")[:number]] = 0
    zeroed = {path: np.asarray(x) for path, x in _gate_heads(flat, jnp.asarray(gates.reshape(relative.shape))).items()}
    return config, zeroed, f"{number} of {relative.size} heads write zeros: config.json cannot leave them out, no speed"


def _cut_mlp(
    config: EncoderConfig, flat: dict[str, np.ndarray], found: np.ndarray, amount: float
) -> tuple[EncoderConfig, dict[str, Any], str]:
    """Keep the same number of features in every MLP, as config.json has one."""
    size = max(MULTIPLE, round((1 - amount) * config.mlp_size / MULTIPLE) * MULTIPLE)
    _removed((config.mlp_size - size) / config.mlp_size, config.mlp_size, "MLP features")
    cut, places = dict[str, Any](), _mlps(flat)
    for place, own in zip(places, np.split(found, len(places), axis=1), strict=True):
        kept = np.sort(np.argsort(-own, axis=1, kind="stable")[:, :size], axis=1)
        end = f"{place}mlp_down/kernel"
        cut[end] = np.take_along_axis(flat[end], kept[:, :, None], axis=1)
        for path in (f"{place}{name}/{leaf}" for name in ("mlp_up", "mlp_gate") for leaf in ("kernel", "bias")):
            if path in flat:
                index = kept if flat[path].ndim == 2 else kept[:, None]
                cut[path] = np.take_along_axis(flat[path], index, axis=-1)
    smaller, each = dataclasses.replace(config, mlp_size=size), "layer" if len(places) == 1 else "MLP"
    return smaller, flat | cut, f"{config.mlp_size - size} of {config.mlp_size} MLP features of each {each} removed"


def _cut_layers(
    config: EncoderConfig, flat: dict[str, np.ndarray], found: np.ndarray, amount: float
) -> tuple[EncoderConfig, dict[str, Any], str]:
    """Keep layers that follow the architecture's pattern of global and local ones."""
    if config.share_layers:
        raise UserError("all layers share their parameters (share_layers): none can be removed by itself")
    number = _removed(amount, config.num_layers, "layers")
    kept = best_layers(config, found, config.num_layers - number)
    gone = [layer for layer in range(config.num_layers) if layer not in kept]
    cut = {path: x[kept] for path, x in flat.items() if path.startswith(LAYERS)}
    names = ", ".join(map(str, gone))
    what = f"{number} of {config.num_layers} layers removed (of 0 to {config.num_layers - 1}: {names})"
    windows = tuple(config.local_windows[layer] for layer in kept) if config.local_windows else None
    widest = max(windows) if windows else config.local_window
    smaller = dataclasses.replace(config, num_layers=len(kept), local_windows=windows, local_window=widest)
    return smaller, flat | cut, what


def best_layers(config: EncoderConfig, found: np.ndarray, count: int) -> list[int]:
    """Return the `count` layers with the highest sum of importance of which each fits its new place.

    A layer that reads a window takes the place of one that does; without a norm before its attention, layer 0 stays.
    By dynamic programming: `best[n]` is the best choice of n layers among those seen.
    """
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for layer, place in itertools.product(range(config.num_layers), reversed(range(count))):
        first_fits = config.first_attention_norm or (layer == 0) == (place == 0)
        if place in best and first_fits and is_global(config, layer) == is_global(config, place):
            total = best[place][0] + float(found[layer])
            if place + 1 not in best or total > best[place + 1][0]:
                best[place + 1] = total, [*best[place][1], layer]
    return best[count][1]


def _removed(amount: float, total: int, what: str) -> int:
    number = round(amount * total)
    if not 0 < number < total:
        raise UserError(f"--amount {amount:g} removes {number} of {total} {what}; give a fraction that leaves some")
    return number


PARTS: dict[str, Part] = {
    "heads": Part(lambda config: (config.num_heads,), _gate_heads, _cut_heads),
    "mlp": Part(lambda config: (config.bottleneck_mlps * config.mlp_size,), _gate_mlp, _cut_mlp),
    "layers": Part(lambda config: (), _gate_layers, _cut_layers),
}
