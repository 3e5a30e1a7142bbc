"""Partitions -> partitions of cleaned texts, which are files on the storage of the output."""

import operator
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_jax.corpus.beam.pipeline import beam, spread_chunks
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.cleaning import repeated_lines
from bert_jax.corpus.build.cleaning.blocks import BlockFiles, Key
from bert_jax.corpus.build.cleaning.chunk import clean_chunk, read_cleaned, sum_counts, survey_chunk
from bert_jax.corpus.build.cleaning.recipe import Recipe, Step
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.stage import KEPT, PARTS
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.errors import writing
from bert_jax.files import sha256_of
from bert_jax.readers import ReadOptions, storage

Counted = tuple[np.ndarray, np.ndarray]  # hashes of lines, ascending; how many documents have each


def clean_partitions(
    partitions: beam.PCollection, recipe: Recipe, settings: PrepareSettings, check: Callable[[], None], place: str
) -> tuple[beam.PCollection, beam.PCollection]:
    """Return the partitions of the cleaned texts, and the `CleaningCounts` of all documents.

    Args:
        partitions: of the input.
        recipe: what is done.
        settings: how the input is read.
        check: raises UserError on a worker whose packages are not those of this machine.
        place: directory or URL for the files, with the names and contents that `clean_documents` gives them.
    """
    chunks = spread_chunks(partitions, "clean", settings)
    repeated: Any = ""
    for number, step in enumerate(recipe.steps):
        if RULES[step.rule].survey:
            repeated = beam.pvalue.AsSingleton(_survey(chunks, recipe.steps[:number], step, settings, place))
    clean = beam.ParDo(_Clean(recipe.steps, settings.read_options, check), repeated)
    cleaned = chunks | "clean" >> clean.with_outputs(_Clean.COUNTS, main="texts")
    found = (
        cleaned.texts
        | "cleaned of a block" >> beam.GroupByKey()
        | "write cleaned" >> beam.Map(_write_block, place).with_output_types(tuple[int, Any])
        | "cleaned of a partition" >> beam.GroupByKey()
        | "cleaned partitions" >> beam.Map(_partition).with_output_types(Any)
    )
    return found, cleaned[_Clean.COUNTS] | "count cleaned" >> beam.CombineGlobally(sum_counts)


class _Clean(beam.DoFn):
    """Chunk -> (block, (number of the chunk, kept, removed)); the counts of its documents separately."""

    COUNTS = "counts"

    def __init__(self, steps: Sequence[Step], read_options: ReadOptions, check: Callable[[], None]):
        self._steps, self._read_options, self._check = steps, read_options, check

    def setup(self) -> None:
        """Run once in a worker's process, before the chunks: versions, and the files that rules read."""
        self._check()
        for step in self._steps:
            RULES[step.rule].check(**step.parameters)

    def process(self, chunk: Chunk, repeated: str) -> Iterator[Any]:
        """Clean a chunk."""
        cleaned = clean_chunk(chunk, self._steps, self._read_options, repeated)
        yield (chunk.partition, chunk.block), (chunk.number, (cleaned.kept, cleaned.removed))
        yield beam.pvalue.TaggedOutput(self.COUNTS, cleaned.counts)


def _survey(
    chunks: beam.PCollection, before: Sequence[Step], step: Step, settings: PrepareSettings, place: str
) -> beam.PCollection:
    """Return the file of the lines that are repeated in all chunks; each range of their hashes is counted apart."""
    options = settings.read_options
    return (
        chunks
        | "survey" >> beam.FlatMap(_survey_chunk, before, step, options).with_output_types(tuple[int, Any])
        | "count lines" >> beam.CombinePerKey(_sum_lines)
        | "repeated" >> beam.Map(_select_repeated, step).with_output_types(tuple[str, Any])
        | "all repeated" >> beam.GroupByKey()
        | "write repeated" >> beam.Map(_write_repeated, place)
    )


def _survey_chunk(
    chunk: Chunk, before: Sequence[Step], step: Step, read_options: ReadOptions
) -> Iterator[tuple[int, Counted]]:
    yield from enumerate(repeated_lines.split_ranges(*survey_chunk(chunk, before, step, read_options)))


def _sum_lines(parts: Iterable[Counted]) -> Counted:
    empty = np.zeros(0, "<u8"), np.zeros(0, "<u4")
    return repeated_lines.count_hashes(*zip(empty, *parts, strict=True))


def _select_repeated(counted: tuple[int, Counted], step: Step) -> tuple[str, np.ndarray]:
    return "", repeated_lines.select_repeated(*counted[1], **step.parameters)


def _write_repeated(group: tuple[str, Iterable[np.ndarray]], place: str) -> str:
    """Upload the repeated lines under a name of their own, since workers keep what they read; return it."""
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        path = pathlib.Path(directory, "repeated.npy")
        repeated_lines.save_repeated(path, [np.sort(np.concatenate(list(group[1])))])
        url = f"{place}/repeated-{sha256_of(path)}.npy"
        storage.upload(path, url)
    return url


def _write_block(group: tuple[Key, Iterable[tuple[int, Sequence[bytes]]]], place: str) -> tuple[int, tuple[int, str]]:
    """Upload the documents of a block; return its partition, its number, and the file of the kept ones."""
    key, chunks = group
    with tempfile.TemporaryDirectory() as directory:
        files = BlockFiles(pathlib.Path(directory), PARTS, lambda: writing(directory))
        files.begin(key)
        for _, contents in sorted(chunks, key=operator.itemgetter(0)):  # they arrive in any order
            files.append(key, contents)
        for part in PARTS:
            storage.upload(files.path(key, part), f"{place}/{files.path(key, part).name}")
        return key[0], (key[1], f"{place}/{files.path(key, KEPT).name}")


def _partition(group: tuple[int, Iterable[tuple[int, str]]]) -> Partition:
    number, blocks = group
    return Partition(number, tuple(path for _, path in sorted(blocks)), 0, read_cleaned)
