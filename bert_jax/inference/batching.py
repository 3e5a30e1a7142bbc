"""A model over inputs of any length: batches by bucket, the outputs of each input back in the order of the inputs."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.models import Model, Params
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import PlannedBatch, plan
from bert_jax.tasks.features import Features, collate

SHORTEST = 16  # tokens, of the buckets that are chosen before there is an input
Outputs = dict[str, np.ndarray]  # of one input, padded: as models/heads.py has them of a batch, without the first axis
# Inputs, and a function that is called with how many are done -> the outputs of each.
LocalPredict = Callable[[Sequence[Features], Callable[[int], None]], list[Outputs]]


class Feed(NamedTuple):
    """How inputs become batches."""

    buckets: tuple[int, ...]
    batch_size: int
    num_token_types: int
    pad_id: int


def fixed_buckets(longest: int) -> tuple[int, ...]:
    """Return the same few lengths whatever comes, the last is `longest`: programs are compiled once.

    Each is twice the one before: a model of 8,192 positions is to read short texts too, without much padding.
    """
    doubled = (SHORTEST << n for n in range(longest.bit_length()))
    return (*(length for length in doubled if length < longest), longest)


def evaluation_plan(feed: Feed, features: Sequence[Features]) -> list[PlannedBatch]:
    """Return the batches of one pass over the inputs, the shortest first."""
    lengths = np.array([one.length for one in features], np.int64)
    return plan(lengths, feed.buckets, feed.batch_size, seed=0, epoch=0, shuffle=False)


def collated(
    feed: Feed, features: Sequence[Features], batches: Iterable[PlannedBatch], mine: sharding.BatchBlocks
) -> Generator[Batch, None, None]:
    """Yield this process's part of each planned batch."""
    block = feed.batch_size // mine.num_blocks
    for indices, length in batches:
        whole = collate([features[i] for i in indices], length, feed.num_token_types, feed.pad_id, feed.batch_size)
        part = np.concatenate([np.arange(n * block, (n + 1) * block) for n in mine.blocks])
        yield {name: x[part] for name, x in whole.items()} if mine.num_blocks > 1 else whole


def make_predict(
    model: Model, mesh: jax.sharding.Mesh
) -> Callable[[Params, Sequence[Features], Iterable[PlannedBatch], Iterable[Batch]], list[Outputs]]:
    """Return a function (params, inputs, their plan, this process's batches of it) -> the outputs of each input.

    It applies the model without dropout. Every process gets all outputs. Where the batches end early, so does the list.
    """
    apply = jax.jit(lambda params, batch: model.apply(params, batch, None), out_shardings=sharding.replicated(mesh))

    def predict(
        params: Params, features: Sequence[Features], planned: Iterable[PlannedBatch], batches: Iterable[Batch]
    ) -> list[Outputs]:
        found: list[Outputs] = [{} for _ in features]
        waiting: tuple[np.ndarray, dict[str, jax.Array]] | None = None  # one batch is computed while another is read
        for one, batch in zip(planned, batches, strict=False):
            launched = one.indices, apply(params, sharding.place_batch(batch, mesh))
            if waiting:
                _scatter(found, *waiting)
            waiting = launched
        if waiting:
            _scatter(found, *waiting)
        return found

    return predict


def local_predictor(model: Model, params: Params, feed: Feed) -> LocalPredict:
    """Return a function of inputs, on one device of this process; each length is compiled once."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    blocks, predict = sharding.batch_blocks(mesh), make_predict(model, mesh)
    params = jax.device_put(params, sharding.replicated(mesh))

    def outputs_of(features: Sequence[Features], progress: Callable[[int], None]) -> list[Outputs]:
        planned = evaluation_plan(feed, features)

        def counted() -> Iterator[Batch]:
            done = 0
            for one, batch in zip(planned, collated(feed, features, planned, blocks), strict=True):
                progress(done)
                yield batch
                done += len(one.indices)

        with jax.set_mesh(mesh):
            return predict(params, features, planned, counted())

    return outputs_of


def _scatter(found: list[Outputs], indices: np.ndarray, outputs: dict[str, jax.Array]) -> None:
    fetched = {name: np.asarray(x) for name, x in jax.device_get(outputs).items()}
    for place, number in enumerate(indices):
        found[number] = {name: x[place] for name, x in fetched.items()}
