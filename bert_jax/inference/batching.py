"""A model over rows of any length: batches by bucket, the outputs of each row back in the order of the rows."""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.models import Model, Params
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import PlannedBatch, plan
from bert_jax.tasks.features import Features, collate

Outputs = dict[str, np.ndarray]  # of one row, as models/heads.py has them of a batch, without its leading axis


class Feed(NamedTuple):
    """How rows become batches."""

    buckets: tuple[int, ...]
    batch_size: int
    num_token_types: int
    pad_id: int


def evaluation_plan(feed: Feed, rows: Sequence[Features]) -> list[PlannedBatch]:
    """The batches of one pass over the rows, the shortest first."""
    lengths = np.array([row.length for row in rows], np.int64)
    return plan(lengths, feed.buckets, feed.batch_size, seed=0, epoch=0, shuffle=False)


def collated(
    feed: Feed, rows: Sequence[Features], batches: Iterable[PlannedBatch], share: sharding.Share
) -> Generator[Batch, None, None]:
    """This process's rows of each planned batch."""
    block = feed.batch_size // share.of
    for indices, length in batches:
        whole = collate([rows[i] for i in indices], length, feed.num_token_types, feed.pad_id, feed.batch_size)
        mine = np.concatenate([np.arange(n * block, (n + 1) * block) for n in share.blocks])
        yield {name: x[mine] for name, x in whole.items()} if share.of > 1 else whole


def make_predict(
    model: Model, mesh: jax.sharding.Mesh
) -> Callable[[Params, Sequence[Features], Iterable[PlannedBatch], Iterable[Batch]], list[Outputs]]:
    """A function (params, rows, their plan, this process's batches of it) -> the outputs of each row.

    Without dropout. Every process gets all of them. Where the batches end early, so does the list.
    """
    apply = jax.jit(lambda params, batch: model.apply(params, batch, None), out_shardings=sharding.replicated(mesh))

    def predict(
        params: Params, rows: Sequence[Features], planned: Iterable[PlannedBatch], batches: Iterable[Batch]
    ) -> list[Outputs]:
        found: list[Outputs] = [{} for _ in rows]
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


def row_predictor(model: Model, params: Params, feed: Feed) -> Callable[[Sequence[Features]], list[Outputs]]:
    """A function of rows -> the outputs of each, on one device of this process; each length is compiled once."""
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    share, predict = sharding.batch_share(mesh), make_predict(model, mesh)
    params = jax.device_put(params, sharding.replicated(mesh))

    def of(rows: Sequence[Features]) -> list[Outputs]:
        batches = evaluation_plan(feed, rows)
        with jax.set_mesh(mesh):
            return predict(params, rows, batches, collated(feed, rows, batches, share))

    return of


def _scatter(found: list[Outputs], indices: np.ndarray, outputs: dict[str, jax.Array]) -> None:
    fetched = {name: np.asarray(x) for name, x in jax.device_get(outputs).items()}
    for place, number in enumerate(indices):
        found[number] = {name: x[place] for name, x in fetched.items()}
