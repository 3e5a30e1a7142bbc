"""The same loss without dropout and without an update, summed exactly over a whole set."""

from collections.abc import Callable, Iterator

import jax

from bert_jax.objectives.base import Batch, Objective, Params
from bert_jax.objectives.means import Mean, fetched, merge, values
from bert_jax.parallel import sharding

Evaluate = Callable[[Params, Iterator[Batch]], dict[str, float]]


def make_evaluate(objective: Objective, mesh: jax.sharding.Mesh) -> Evaluate:
    """A function (params, this host's batches) -> each metric's mean over every weighted target, and their `loss`.

    The last batch may hold filler rows of weight 0 (data/rows/pipeline.py): none is dropped, none normalizers twice.
    """

    @jax.jit
    def measure(params: Params, batch: Batch) -> dict[str, Mean]:
        _, metrics = objective.loss(params, batch, None, objective.normalizers(batch))
        return metrics

    def evaluate(params: Params, batches: Iterator[Batch]) -> dict[str, float]:
        merged: dict[str, Mean] = {}
        waiting = None  # one batch is computed while the one before is read
        for batch in batches:
            launched = measure(params, sharding.place_batch(batch, mesh))
            if waiting is not None:
                merged = merge(merged, fetched(waiting))
            waiting = launched
        if waiting is not None:
            merged = merge(merged, fetched(waiting))
        return values(merged)

    return evaluate
