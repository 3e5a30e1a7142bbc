"""Evaluation: the loss of the objective without dropout and without an update, summed exactly over a whole set."""

from collections.abc import Callable, Iterator

import jax

from bert_jax.objectives.base import Batch, Objective, Params, Rngs
from bert_jax.objectives.means import Mean, fetched, merge, values
from bert_jax.parallel import sharding

# (params, frozen params, this host's batches) -> what is measured, by name
Evaluate = Callable[[Params, Params, Iterator[Batch]], dict[str, float]]


def make_evaluate(objective: Objective, mesh: jax.sharding.Mesh) -> Evaluate:
    """Return a function (params, frozen params, this host's batches) -> each metric's mean, and their `loss`.

    A mean is over every weighted target. The last batch may hold filler sequences of weight 0
    (data/sequences/pipeline.py): none is dropped, none counts twice. What an objective samples is the same in every
    evaluation.
    """

    @jax.jit
    def measure(params: Params, frozen: Params, batch: Batch, number: int) -> dict[str, Mean]:
        rngs = Rngs(dropout=None, sampling=jax.random.fold_in(jax.random.PRNGKey(0), number))
        _, metrics = objective.loss(params, frozen, batch, rngs, objective.normalizers(batch))
        return metrics

    def evaluate(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        merged: dict[str, Mean] = {}
        waiting = None  # one batch is computed while the next one is read
        for number, batch in enumerate(batches):
            launched = measure(params, frozen, sharding.place_batch(batch, mesh), number)
            if waiting is not None:
                merged = merge(merged, fetched(waiting))
            waiting = launched
        if waiting is not None:
            merged = merge(merged, fetched(waiting))
        return values(merged)

    return evaluate
