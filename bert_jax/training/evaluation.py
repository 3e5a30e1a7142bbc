"""Evaluation: the loss of the objective without dropout and without an update, summed exactly over a whole set."""

import dataclasses
from collections.abc import Callable, Iterator

import jax

from bert_jax.config import PretrainConfig
from bert_jax.objectives.base import Batch, Objective, Params, Rngs
from bert_jax.objectives.means import Mean, fetched, merge, values
from bert_jax.parallel import sharding
from bert_jax.parallel.memory import out_of_memory_in_evaluation_as_user_error

TOKENS, SEQUENCES = 32_768, 256  # on a device and in all, of an evaluation step whose size is not set

# (params, frozen params, this host's batches) -> what is measured, by name
Evaluate = Callable[[Params, Params, Iterator[Batch]], dict[str, float]]


def sized_evaluation(config: PretrainConfig, mesh: jax.sharding.Mesh) -> PretrainConfig:
    """Return the config with the number of sequences of an evaluation step, over all devices of the mesh.

    Unless it is set, it follows from the longest sequences and not from the batches of training, so that another number
    of devices can evaluate as well.
    """
    if config.evaluate.batch_size is not None:
        return config
    shards, longest = mesh.shape["data"] * mesh.shape["fsdp"], max(phase.seq_len for phase in config.train.phases)
    size = shards * max(1, min(TOKENS // longest, SEQUENCES // shards))
    return dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, batch_size=size))


def make_evaluate(objective: Objective, mesh: jax.sharding.Mesh) -> Evaluate:
    """Return a function (params, frozen params, this host's batches) -> each metric's mean, and their `loss`.

    A mean is over every weighted target. The last batch may hold filler sequences of weight 0
    (batches/pipeline.py): none is dropped, none counts twice. What an objective samples is the same in every
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
        with out_of_memory_in_evaluation_as_user_error():
            for number, batch in enumerate(batches):
                launched = measure(params, frozen, sharding.place_batch(batch, mesh), number)
                if waiting is not None:
                    merged = merge(merged, fetched(waiting))
                waiting = launched
            if waiting is not None:
                merged = merge(merged, fetched(waiting))
        return values(merged)

    return evaluate
