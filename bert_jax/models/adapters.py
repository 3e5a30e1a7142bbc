"""Adapters (LoRA, Hu et al. 2021): small trained matrices beside the frozen linear maps of an encoder.

A linear map `x @ kernel` becomes `x @ kernel + alpha / rank * dropout(x) @ a @ b`. The function `with_adapter` adds the
matrices to a model; `merge_adapter_into_weights` adds the products of the matrices to the kernels.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple, cast

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.models.dropout import dropout_seeds
from bert_jax.models.heads import Batch
from bert_jax.models.layers import ADAPTER, LOW_RANK, LowRank
from bert_jax.models.model import Model, Params

Matrices = dict[str, Any]  # "a": float32 [..., inputs, rank]; "b": float32 [..., rank, kernels, outputs]


class Target(NamedTuple):
    """A linear map with an adapter: one tensor of a file, which may hold several kernels of our parameter tree."""

    name: str  # name of the module in a file of transformers; `{layer}` stands for the index of a layer
    path: str  # path of the matrices in the tree of the adapter
    kernels: tuple[str, ...]  # paths of the linear maps in the parameter tree, in the order of the parts of the tensor


@dataclasses.dataclass(frozen=True)
class Adapter:
    """The linear maps to which an adapter adds matrices, and the settings that all of these matrices share."""

    targets: tuple[Target, ...]
    rank: int
    alpha: float
    dropout: float  # dropout rate on the input of the matrices

    @property
    def scale(self) -> float:
        """The factor by which the product of the two matrices of a linear map is multiplied."""
        return self.alpha / self.rank


def with_adapter(model: Model, adapter: Adapter) -> Model:
    """Return the model with an adapter, whose matrices are model parameters at `params["adapter"]`.

    As in the library `peft`, the entries of the matrix `a` start as uniform random numbers of at most 1 / sqrt(inputs)
    in absolute value, and the matrix `b` starts at 0. So the adapter does not change the outputs of the model before
    training.
    """

    draw = functools.partial(init_adapter_matrices, adapter, model.shapes)

    def init(rng: jax.Array) -> Params:
        return model.init(rng) | {ADAPTER: draw(rng)}

    def apply(params: Params, batch: Batch, rng: jax.Array | None) -> dict[str, jax.Array]:
        terms = _low_rank_terms(adapter, params[ADAPTER], model.config.num_layers, rng)
        return model.apply(params | {ADAPTER: terms}, batch, rng)

    axes, sections = _flatten(model.logical_axes), _flatten(model.sections)

    def axes_of(target: Target) -> Matrices:
        *stacked, inputs, outputs = axes[f"{target.kernels[0]}/kernel"]
        return {"a": (*stacked, inputs, "rank"), "b": (*stacked, "rank", "maps", outputs)}

    def sections_of(target: Target) -> Matrices:
        return dict.fromkeys(("a", "b"), sections[f"{target.kernels[0]}/kernel"])

    return dataclasses.replace(
        model,
        init=init,
        apply=apply,
        shapes=model.shapes | {ADAPTER: jax.eval_shape(draw, jax.random.key(0))},
        logical_axes=model.logical_axes | {ADAPTER: _matrices_by_target(adapter, axes_of)},
        sections=model.sections | {ADAPTER: _matrices_by_target(adapter, sections_of)},
    )


def init_adapter_matrices(adapter: Adapter, model_shapes: Params, rng: jax.Array) -> Params:
    """Return the initial matrices of an adapter as a tree of `Matrices`; `model_shapes` is `Model.shapes`."""
    shapes, keys = _flatten(model_shapes), iter(jax.random.split(jax.random.fold_in(rng, 1), len(adapter.targets)))

    def draw(target: Target) -> Matrices:
        *stacked, inputs, outputs = shapes[f"{target.kernels[0]}/kernel"].shape
        bound = 1 / math.sqrt(inputs)
        return {
            "a": jax.random.uniform(next(keys), (*stacked, inputs, adapter.rank), jnp.float32, -bound, bound),
            "b": jnp.zeros((*stacked, adapter.rank, len(target.kernels), outputs), jnp.float32),
        }

    return _matrices_by_target(adapter, draw)


def merge_adapter_into_weights(adapter: Adapter, params: Params) -> Params:
    """Return the parameters without the adapter, as numpy arrays; its products are added to the kernels."""
    flat, matrices = _flatten({name: x for name, x in params.items() if name != ADAPTER}), _flatten(params[ADAPTER])
    for target in adapter.targets:
        a, b = (np.asarray(matrices[f"{target.path}/{name}"]) for name in ("a", "b"))
        for index, path in enumerate(target.kernels):
            product = np.matmul(a, b[..., index, :]) * np.float32(adapter.scale)
            flat[f"{path}/kernel"] = np.asarray(flat[f"{path}/kernel"]) + product
    return cast(Params, flax.traverse_util.unflatten_dict(flat, sep="/"))


def _low_rank_terms(adapter: Adapter, matrices: Params, num_layers: int, rng: jax.Array | None) -> Params:
    """Return a tree with the term that an adapter adds to each linear map; terms of blocks are stacked by layer."""
    flat, terms = _flatten(matrices), dict[str, LowRank]()
    seeds = None
    if rng is not None and adapter.dropout:
        seeds = dropout_seeds(jax.random.fold_in(rng, 2), (len(adapter.targets), num_layers))
    for index, target in enumerate(adapter.targets):
        a, b = flat[f"{target.path}/a"], flat[f"{target.path}/b"] * adapter.scale
        seed = None if seeds is None else seeds[index]
        if a.ndim == 3:  # layers that share their parameters have one pair of matrices
            a, b = (jnp.broadcast_to(x, (num_layers, *x.shape[1:])) for x in (a, b))
        else:
            seed = None if seed is None else seed[0]
        for part, path in enumerate(target.kernels):
            terms[f"{path}/{LOW_RANK}"] = LowRank(a, b[..., part, :], seed, adapter.dropout)
    return cast(Params, flax.traverse_util.unflatten_dict(terms, sep="/"))


def _matrices_by_target(adapter: Adapter, make: Any) -> Params:
    """Return a tree with the result of `make(target)` at the path of each target."""
    tree = {target.path: make(target) for target in adapter.targets}
    return cast(Params, flax.traverse_util.unflatten_dict(tree, sep="/"))


def _flatten(tree: Any) -> dict[str, Any]:
    """Return a tree of dicts as one flat dict: path -> leaf."""
    return cast(dict[str, Any], flax.traverse_util.flatten_dict(tree, sep="/"))
