"""What a training objective is: a NamedTuple of pure functions over plain parameter trees."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from bert_jax.objectives.means import Mean

Params = Any
Batch = dict[str, Any]  # see data/rows/pipeline.py for keys, dtypes and shapes
Normalizers = dict[str, jax.Array]


class Objective(NamedTuple):
    """`loss` is a share of the whole batch's loss, so that the shares of micro-batches add up to it exactly.

    init(rng) -> params
    normalizers(batch) -> by how much each loss term is divided: float32 scalars over the whole batch
    loss(params, micro_batch, rng | None, normalizers) -> (float32 scalar, metrics as Means)
    logical_axes: the structure of the parameters with a tuple of axis names a leaf (sharding.py)
    flops(length) -> model FLOPs of training on one row of that length
    """

    init: Callable[[jax.Array], Params]
    normalizers: Callable[[Batch], Normalizers]
    loss: Callable[[Params, Batch, jax.Array | None, Normalizers], tuple[jax.Array, dict[str, Mean]]]
    logical_axes: Any
    flops: Callable[[int], float]
