"""A model over inputs of any length: the outputs of each input, in the order of the inputs."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import numpy as np

from bert_jax.models import Model, Params
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import Batch, Feed, PlannedBatch, collate_batches, plan_evaluation
from bert_jax.tasks.features import Features

Outputs = dict[str, np.ndarray]  # of an input, padded: as models/heads.py returns them, without the batch axis
# Inputs, and a function that is called with how many are done -> the outputs of each.
LocalPredict = Callable[[Sequence[Features], Callable[[int], None]], list[Outputs]]


def make_predict(
    model: Model, mesh: jax.sharding.Mesh
) -> Callable[[Params, Sequence[Features], Iterable[PlannedBatch], Iterable[Batch]], list[Outputs]]:
    """Return a function (params, inputs, their plan, this process's batches of it) -> the outputs of each input.

    It applies the model without dropout. Every process gets all outputs. Where the batches end early, so does the list.
    """
    apply = jax.jit(lambda params, batch: model.apply(params, batch, None), out_shardings=sharding.replicated(mesh))

    def predict(
        params: Params, features: Sequence[Features], plan: Iterable[PlannedBatch], batches: Iterable[Batch]
    ) -> list[Outputs]:
        outputs: list[Outputs] = [{} for _ in features]
        pending: tuple[np.ndarray, dict[str, jax.Array]] | None = None  # a batch is computed while the next is read
        for planned, batch in zip(plan, batches, strict=False):
            launched = planned.indices, apply(params, sharding.place_batch(batch, mesh))
            if pending:
                _scatter(outputs, *pending)
            pending = launched
        if pending:
            _scatter(outputs, *pending)
        return outputs

    return predict


def local_predictor(model: Model, params: Params, feed: Feed) -> LocalPredict:
    """Return a function of inputs, on one device of this process; each length is compiled once."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    blocks, predict = sharding.batch_blocks(mesh), make_predict(model, mesh)
    params = jax.device_put(params, sharding.replicated(mesh))

    def outputs_of(features: Sequence[Features], progress: Callable[[int], None]) -> list[Outputs]:
        plan = plan_evaluation(feed, features)

        def counted() -> Iterator[Batch]:
            done = 0
            for planned, batch in zip(plan, collate_batches(feed, features, plan, blocks), strict=True):
                progress(done)
                yield batch
                done += len(planned.indices)

        with jax.set_mesh(mesh):
            return predict(params, features, plan, counted())

    return outputs_of


def _scatter(outputs: list[Outputs], indices: np.ndarray, batch_outputs: dict[str, jax.Array]) -> None:
    """Write the outputs of a batch to the positions of its inputs."""
    arrays = {name: np.asarray(x) for name, x in jax.device_get(batch_outputs).items()}
    for row, index in enumerate(indices):
        outputs[index] = {name: x[row] for name, x in arrays.items()}
