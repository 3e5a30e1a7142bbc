"""What a training objective is: a NamedTuple of pure functions over plain parameter trees."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from bert_jax.objectives.means import Mean

Params = Any
Batch = dict[str, Any]  # batches/pipeline.py has keys, dtypes and shapes
Normalizers = dict[str, jax.Array]


class Rngs(NamedTuple):
    """Keys of one call of a loss. An evaluation has no dropout, but may sample."""

    dropout: jax.Array | None  # None: no dropout
    sampling: jax.Array  # what the objective itself draws, such as the replaced tokens of ELECTRA


def training_rngs(rng: jax.Array) -> Rngs:
    """Return both keys of a training step from its one key."""
    return Rngs(rng, jax.random.fold_in(rng, 1 << 20))


class Objective(NamedTuple):
    """A loss and what the trainer has to know of its parameters.

    `loss` is a fraction of the whole batch's loss, so that the fractions of micro-batches add up to it exactly.

    init(rng) -> params, float32
    normalizers(batch) -> the divisor of each loss term: float32 scalars over the whole batch
    loss(params, frozen, micro_batch, rngs, normalizers) -> (float32 scalar, metrics as Means)
    shapes: the structure of the parameters, a jax.ShapeDtypeStruct per leaf
    logical_axes: the same structure, a tuple of axis names per leaf (parallel/sharding.py)
    sections: the same structure, "embeddings", "layers", ... per leaf (models.Model)
    flops(seq_len, phase) -> model FLOPs of training on one sequence of a phase, by its number
    num_heads: attention heads, which mesh.tensor must divide
    frozen_axes: as logical_axes, of parameters that are read and not trained, such as a teacher's; () for none
    init_frozen(rng) -> parameters of that structure
    """

    init: Callable[[jax.Array], Params]
    normalizers: Callable[[Batch], Normalizers]
    loss: Callable[[Params, Params, Batch, Rngs, Normalizers], tuple[jax.Array, dict[str, Mean]]]
    shapes: Any
    logical_axes: Any
    sections: Any
    flops: Callable[[int, int], float]
    num_heads: int
    frozen_axes: Any = ()
    init_frozen: Callable[[jax.Array], Params] = lambda rng: ()
