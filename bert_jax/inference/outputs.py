"""The outputs of a model for inputs of any length, in the order of the inputs."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import numpy as np

from bert_jax.config import ComputeConfig
from bert_jax.inference.row_limits import row_limits
from bert_jax.models import Model, Params
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import Batch, Feed, PlannedBatch, collate_batches
from bert_jax.tasks.features import Features
from bert_jax.tasks.prediction_batches import plan_prediction_batches

Outputs = dict[str, np.ndarray]  # outputs of an input, with padding: arrays of models/heads.py without the batch axis
# A function (inputs, function to call with the number of finished inputs) -> the outputs of each input.
LocalPredict = Callable[[Sequence[Features], Callable[[int], None]], list[Outputs]]


def make_predict(
    model: Model, mesh: jax.sharding.Mesh
) -> Callable[[Params, Sequence[Features], Iterable[PlannedBatch], Iterable[Batch]], list[Outputs]]:
    """Return a function (params, inputs, plan, this process's batches of the plan) -> the outputs of each input.

    The function applies the model without dropout. Every process gets all outputs. If the batches end early, the
    remaining inputs have no outputs.
    """
    apply = jax.jit(model.apply, out_shardings=sharding.replicated(mesh))

    def predict(
        params: Params, features: Sequence[Features], plan: Iterable[PlannedBatch], batches: Iterable[Batch]
    ) -> list[Outputs]:
        outputs: list[Outputs] = [{} for _ in features]
        pending: tuple[np.ndarray, dict[str, jax.Array]] | None = (
            None  # a batch is computed while the next batch is read
        )
        for planned, batch in zip(plan, batches, strict=False):
            launched = planned.indices, apply(params, sharding.place_batch(batch, mesh), None)
            if pending:
                _write_at_indices(outputs, *pending)
            pending = launched
        if pending:
            _write_at_indices(outputs, *pending)
        return outputs

    return predict


def single_device_predictor(model: Model, params: Params, feed: Feed, compute: ComputeConfig) -> LocalPredict:
    """Return a function from inputs to outputs on one device of this process; each shape is compiled once."""
    mesh = sharding.single_device_mesh()
    blocks, predict = sharding.batch_blocks(mesh), make_predict(model, mesh)
    params = jax.device_put(params, sharding.replicated(mesh))
    limits = row_limits((model.config,), model.heads, compute, mesh)

    def outputs_of(features: Sequence[Features], progress: Callable[[int], None]) -> list[Outputs]:
        plan = plan_prediction_batches(feed, features, limits, model.config.max_dense_length)

        def batches_with_progress() -> Iterator[Batch]:
            done = 0
            for planned, batch in zip(plan, collate_batches(feed, features, plan, blocks), strict=True):
                progress(done)
                yield batch
                done += len(planned.indices)

        with jax.set_mesh(mesh):
            return predict(params, features, plan, batches_with_progress())

    return outputs_of


def _write_at_indices(outputs: list[Outputs], indices: np.ndarray, batch_outputs: dict[str, jax.Array]) -> None:
    """Write the outputs of a batch into `outputs`, at the indices of its inputs."""
    arrays = {name: np.asarray(x) for name, x in jax.device_get(batch_outputs).items()}
    for row, index in enumerate(indices):
        outputs[index] = {name: x[row] for name, x in arrays.items()}
