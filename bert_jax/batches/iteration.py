"""Batches in order; threads build each batch ahead of time; the state of the iteration is a sequence number."""

import dataclasses
import sys
from collections.abc import Generator
from typing import Any

import numpy as np

from bert_jax.batches.pipeline import Batch, Sequences
from bert_jax.errors import UserError


def batches(
    sequences: Sequences,
    start: int,
    batch_size: int,
    *,
    host: int = 0,
    num_hosts: int = 1,
    num_threads: int = 2,
    prefetch: int = 4,
    stop: int | None = None,
) -> Generator[Batch, None, None]:
    """Yield this host's part of each batch, in order; the first batch begins with sequence number `start`.

    Close the generator (`contextlib.closing`) to stop its threads.

    Args:
        sequences: made by `make_sequences`.
        start: number of the first sequence.
        batch_size: sequences per batch over all hosts; this host gets `batch_size / num_hosts` contiguous sequences.
        host: index of this host.
        num_hosts: number of hosts.
        num_threads: number of threads that build batches; 0 builds each batch on demand.
        prefetch: number of batches that are built before they are needed; 0 builds each batch on demand.
        stop: sequence number before which the iteration ends (None: never); filler sequences of weight 0 complete the
        last batch.

    Raises:
        UserError: the batch size is not a positive multiple of the number of hosts.
    """
    if batch_size < 1 or batch_size % num_hosts:
        raise UserError(
            f"batch_size {batch_size} cannot be split evenly over {num_hosts} hosts; use a multiple of {num_hosts}"
        )
    per_host = batch_size // num_hosts
    source = _BatchSource(sequences, start, stop, batch_size, host * per_host, per_host)
    depth = prefetch if num_threads else 0
    import grain  # imported here, since grain loads jax, which the verb `inspect` does not need

    # Grain warns if there are more threads than prefetched batches, since the additional threads would be idle.
    options = grain.ReadOptions(num_threads=min(num_threads, depth), prefetch_buffer_size=depth)
    return _close_after_iteration(iter(grain.MapDataset.source(source).to_iter_dataset(options)))


@dataclasses.dataclass(frozen=True)
class _BatchSource:
    """Random access to batches, for Grain; batch i begins with the sequence `start + i * batch_size + offset`."""

    sequences: Sequences
    start: int
    stop: int | None
    batch_size: int
    offset: int
    per_host: int

    def __len__(self) -> int:
        if self.stop is None:
            return (sys.maxsize - self.start) // self.batch_size - 1  # more batches than any run reads
        return max(0, -(-(self.stop - self.start) // self.batch_size))

    def __getitem__(self, index: int) -> Batch:
        numbers = self.start + index * self.batch_size + self.offset + np.arange(self.per_host)
        if self.stop is None:
            return self.sequences.batch(numbers)
        batch = self.sequences.batch(np.minimum(numbers, self.stop - 1))
        filler = numbers >= self.stop
        batch["example_weights"][filler] = 0
        batch["masked_weights"][filler] = 0
        return batch


def _close_after_iteration(iterator: Any) -> Generator[Batch, None, None]:
    """Yield the items of an iterator, and close the iterator at the end."""
    try:
        yield from iterator
    finally:
        iterator.close()
