"""Evaluation of an objective on held-out data: exact means of its loss and metrics, without dropout or updates."""

from collections.abc import Callable, Iterator

import jax

from bert_jax.objectives.base import Batch, Objective, Params, Rngs
from bert_jax.objectives.losses import Mean, fetch_means, mean_values, merge_means
from bert_jax.parallel import sharding
from bert_jax.parallel.memory import out_of_memory_in_evaluation_as_user_error

# Maximum tokens on a device, and sequences on all devices, of an evaluation step whose batch size is not configured.
TOKENS, SEQUENCES = 32_768, 256

# (params, frozen params, this host's batches) -> metrics by name
Evaluate = Callable[[Params, Params, Iterator[Batch]], dict[str, float]]


def evaluation_batch_size(max_seq_len: int, mesh: jax.sharding.Mesh) -> int:
    """Return the default number of sequences of an evaluation step, summed over all devices of the mesh.

    The number depends on `max_seq_len`, not on the batches of the training, so any number of devices can evaluate.
    """
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    return shards * max(1, min(TOKENS // max_seq_len, SEQUENCES // shards))


def make_evaluate(objective: Objective, mesh: jax.sharding.Mesh) -> Evaluate:
    """Return a function (params, frozen params, batches of this host) -> metrics by name, the loss included.

    A metric is a weighted mean in which every target counts exactly once; filler sequences in the last batch have
    weight 0 (batches/pipeline.py). If an objective draws random samples, the samples are equal in every evaluation.
    """

    @jax.jit
    def batch_means(params: Params, frozen: Params, batch: Batch, index: int) -> dict[str, Mean]:
        rngs = Rngs(dropout=None, sampling=jax.random.fold_in(jax.random.PRNGKey(0), index))
        _, metrics = objective.loss(params, frozen, batch, rngs, objective.normalizers(batch))
        return metrics

    def evaluate(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        merged: dict[str, Mean] = {}
        pending = None  # the batch that the device computes while the host reads the next batch
        with out_of_memory_in_evaluation_as_user_error():
            for index, batch in enumerate(batches):
                launched = batch_means(params, frozen, sharding.place_batch(batch, mesh), index)
                if pending is not None:
                    merged = merge_means(merged, fetch_means(pending))
                pending = launched
            if pending is not None:
                merged = merge_means(merged, fetch_means(pending))
        return mean_values(merged)

    return evaluate
