"""Cleaning with Beam: partitions -> partitions of cleaned texts, which are files on the storage of the output."""

import operator
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.corpus.beam.pipeline import beam, read_and_spread_chunks
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.cleaning import repeated_lines
from bert_jax.corpus.build.cleaning.chunk import (
    clean_chunk,
    count_documents_per_line_hash,
    read_cleaned_documents,
    sum_cleaning_counts,
)
from bert_jax.corpus.build.cleaning.recipe import Recipe, Step
from bert_jax.corpus.build.cleaning.repeated_lines import LineCounts
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.stage import KEPT, PARTS, REMOVED
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.corpus.build.passes import BlockKey, FinishedBlocks
from bert_jax.errors import writing
from bert_jax.files import sha256_of
from bert_jax.readers import ReadOptions, storage


class CleanedPartitions(NamedTuple):
    """The partitions of the cleaned texts, and the `CleaningCounts` of all documents."""

    partitions: beam.PCollection
    counts: beam.PCollection


def clean_partitions(
    partitions: beam.PCollection, recipe: Recipe, settings: PrepareSettings, check: Callable[[], None], work_url: str
) -> CleanedPartitions:
    """Return the partitions of the cleaned texts, and the `CleaningCounts` of all documents.

    Args:
        partitions: partitions of the input.
        recipe: the rules.
        settings: how the input is read.
        check: raises UserError on a worker whose package versions differ from the versions on this machine.
        work_url: directory or URL for the cleaned files, which have the names and contents of the files that
            `clean_documents` writes.
    """
    chunks = read_and_spread_chunks(partitions, "clean", settings)
    repeated: Any = ""
    for index, step in enumerate(recipe.steps):
        if RULES[step.rule].survey:
            repeated = beam.pvalue.AsSingleton(
                _find_repeated_lines(chunks, recipe.steps[:index], step, settings, work_url)
            )
    clean = beam.ParDo(_Clean(recipe.steps, settings.read_options, check), repeated)
    cleaned = chunks | "clean" >> clean.with_outputs(_Clean.COUNTS, main="texts")
    cleaned_partitions = (
        cleaned.texts
        | "cleaned of a block" >> beam.GroupByKey()
        | "write cleaned" >> beam.Map(_upload_cleaned_block, work_url).with_output_types(tuple[int, Any])
        | "cleaned of a partition" >> beam.GroupByKey()
        | "cleaned partitions" >> beam.Map(_partition_of_blocks).with_output_types(Any)
    )
    counts = cleaned[_Clean.COUNTS] | "count cleaned" >> beam.CombineGlobally(sum_cleaning_counts)
    return CleanedPartitions(cleaned_partitions, counts)


class _Clean(beam.DoFn):
    """A Beam function: a chunk -> (block, (chunk number, kept and removed lines)); a second output has the counts."""

    COUNTS = "counts"

    def __init__(self, steps: Sequence[Step], read_options: ReadOptions, check: Callable[[], None]):
        self._steps, self._read_options, self._check = steps, read_options, check

    def setup(self) -> None:
        """Check versions, and files that rules read; Beam calls this method once per process, before the chunks."""
        self._check()
        for step in self._steps:
            RULES[step.rule].check(**step.parameters)

    def process(self, chunk: Chunk, repeated: str) -> Iterator[Any]:
        """Yield the cleaned and the removed documents of a chunk, and its counts."""
        cleaned = clean_chunk(chunk, self._steps, self._read_options, repeated)
        yield (chunk.partition, chunk.block), (chunk.index, {KEPT: cleaned.kept_lines, REMOVED: cleaned.removed_lines})
        yield beam.pvalue.TaggedOutput(self.COUNTS, cleaned.counts)


def _find_repeated_lines(
    chunks: beam.PCollection, earlier_steps: Sequence[Step], step: Step, settings: PrepareSettings, work_url: str
) -> beam.PCollection:
    """Return the path of the file of repeated lines; the workers count each range of hashes separately."""
    options = settings.read_options
    return (
        chunks
        | "survey"
        >> beam.FlatMap(_count_lines_of_chunk, earlier_steps, step, options).with_output_types(tuple[int, Any])
        | "count lines" >> beam.CombinePerKey(repeated_lines.sum_line_counts)
        | "repeated" >> beam.Map(_select_frequent_hashes, step).with_output_types(tuple[str, Any])
        | "all repeated" >> beam.GroupByKey()
        | "write repeated" >> beam.Map(_upload_repeated_lines, work_url)
    )


def _count_lines_of_chunk(
    chunk: Chunk, earlier_steps: Sequence[Step], step: Step, read_options: ReadOptions
) -> Iterator[tuple[int, LineCounts]]:
    yield from enumerate(
        repeated_lines.split_into_hash_ranges(count_documents_per_line_hash(chunk, earlier_steps, step, read_options))
    )


def _select_frequent_hashes(counted: tuple[int, LineCounts], step: Step) -> tuple[str, np.ndarray]:
    return "", repeated_lines.select_frequent_hashes(counted[1], **step.parameters)


def _upload_repeated_lines(group: tuple[str, Iterable[np.ndarray]], work_url: str) -> str:
    """Upload the repeated lines; return a URL that depends on the content, since workers cache files by URL."""
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        path = pathlib.Path(directory, "repeated.npy")
        repeated_lines.save_repeated_line_hashes(path, [np.sort(np.concatenate(list(group[1])))])
        url = f"{work_url}/repeated-{sha256_of(path)}.npy"
        storage.upload(path, url)
    return url


def _upload_cleaned_block(
    group: tuple[BlockKey, Iterable[tuple[int, Mapping[str, bytes]]]], work_url: str
) -> tuple[int, tuple[int, str]]:
    """Upload the documents of a block; return (partition, (block, file of the kept documents))."""
    key, chunks = group
    with tempfile.TemporaryDirectory() as directory:
        files = FinishedBlocks(pathlib.Path(directory), lambda: writing(directory))
        files.create_files_of_block(key, PARTS)
        for _, contents in sorted(chunks, key=operator.itemgetter(0)):  # chunks arrive in any order
            files.append(key, contents)
        for part in PARTS:
            storage.upload(files.path(key, part), f"{work_url}/{files.path(key, part).name}")
        return key[0], (key[1], f"{work_url}/{files.path(key, KEPT).name}")


def _partition_of_blocks(group: tuple[int, Iterable[tuple[int, str]]]) -> Partition:
    index, blocks = group
    return Partition(index, tuple(path for _, path in sorted(blocks)), 0, read_cleaned_documents)
