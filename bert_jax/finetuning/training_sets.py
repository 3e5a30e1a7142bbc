"""The training sets of a task: their files, and batches by step.

A batch has examples of one set (as with `MultiDatasetBatchSamplers` of sentence-transformers), so a negative comes from
the set of its positive. The number of a batch determines its set, so a resumed training reads the same batches.
"""

import dataclasses
import functools
import itertools
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.batches.order import Order, plan_sequences_per_source, positions_in_sources
from bert_jax.config import TaskConfig, no_effect_error
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.tasks.batching import Feed, PlannedBatch, collate_batches, plan_training_epoch
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds.kind import TaskKind


class TrainingSet(NamedTuple):
    """The features of a training set, and the shapes of its batches."""

    features: Sequence[Features]
    feed: Feed


def settings_of_sets(settings: TaskConfig, kind: TaskKind) -> tuple[TaskConfig, ...]:
    """Return the task settings of each training set; for sentence vectors, commas in `task.train` separate sets.

    Raises:
        UserError: a name is empty or given twice, a dev set is held out of several files, or the weights do not fit
            the files.
    """
    weights = settings.train_weights
    if not settings.train and weights is not None:
        raise no_effect_error("config.task.train_weights", f"config.task.train={settings.train}", None)
    if not kind.loss.whole_batch or not settings.train:
        return (settings,)
    files = [name.strip() for name in settings.train.split(",")]
    if "" in files:
        raise UserError(f"config.task.train={settings.train} has an empty name; remove a comma")
    if twice := [name for name in files if files.count(name) > 1]:
        raise UserError(
            f"config.task.train names {twice[0]} twice; give the file a weight in config.task.train_weights"
        )
    if len(files) > 1 and settings.dev_fraction is not None:
        raise UserError(
            "config.task.dev_fraction holds out a dev set of one file, and config.task.train names "
            f"{len(files)} files; name a file in config.task.dev"
        )
    if weights is not None and (len(weights) != len(files) or min(weights) <= 0):
        raise UserError(
            f"config.task.train_weights={weights}: give a number above 0 for each of the {len(files)} files of "
            "config.task.train"
        )
    return tuple(dataclasses.replace(settings, train=name) for name in files)


def order_of_batches(sizes: Sequence[int], batch_size: int, weights: Sequence[float] | None) -> Order:
    """Return the order of the batches of training sets; `sizes` has the number of examples of each set.

    A set has batches in proportion to its weight; without weights, an epoch has each batch of each set once.
    """
    return plan_sequences_per_source(np.array([-(-size // batch_size) for size in sizes]), weights)


def describe_sets(names: Sequence[str], order: Order) -> str:
    """Return a text with the fraction of the batches that comes from each of several training sets."""
    fractions = order.num_sequences / order.num_per_epoch
    shares = (f"{name} {100 * fraction:.1f} %" for name, fraction in zip(names, fractions, strict=True))
    return f"batches of each training set: {', '.join(shares)}"


def task_training_batches(
    sets: Sequence[TrainingSet], weights: Sequence[float] | None, seed: int, blocks: BatchBlocks, step: int
) -> Generator[Batch, None, None]:
    """Yield this process's part of the training batches from `step` on, without end.

    The seed and the number of a batch determine its set and its examples.

    Args:
        sets: the training sets, whose batches have equal sizes.
        weights: sampling weight of each set; None: in proportion to the number of batches.
        seed: seed of the training.
        blocks: the part of this process.
        step: number of the first batch.
    """
    order = order_of_batches([len(each.features) for each in sets], sets[0].feed.batch_size, weights)

    @functools.lru_cache(maxsize=2 * len(sets))  # batches of two epochs of a set may alternate
    def batches_of_epoch(source: int, epoch: int) -> list[PlannedBatch]:
        return plan_training_epoch(sets[source].feed, sets[source].features, seed, epoch)

    for batch_number in itertools.count(step):
        source, epoch, position = (int(x[0]) for x in positions_in_sources(order, seed, np.array([batch_number])))
        planned = batches_of_epoch(source, epoch)[position]
        yield from collate_batches(sets[source].feed, sets[source].features, [planned], blocks)
