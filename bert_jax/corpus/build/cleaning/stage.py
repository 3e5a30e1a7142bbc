"""The passes of a cleaning over all documents, on all cores; the next stage reads the cleaned documents."""

import contextlib
import functools
import pathlib
import shutil
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.corpus.build.chunks import Partition, read_chunks
from bert_jax.corpus.build.cleaning import repeated_lines
from bert_jax.corpus.build.cleaning.chunk import (
    CleaningCounts,
    clean_chunk,
    count_documents_per_line_hash,
    read_cleaned_documents,
    sum_cleaning_counts,
)
from bert_jax.corpus.build.cleaning.recipe import Recipe, Step
from bert_jax.corpus.build.cleaning.repeated_lines import LineCounts
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.passes import FinishedBlocks, PassProgress, map_blocks
from bert_jax.errors import writing
from bert_jax.readers import storage

KEPT, REMOVED = "jsonl", "removed"  # parts of a block: kept documents and removed documents
PARTS = (KEPT, REMOVED)
LINE_PARTS = {"lines": "<u8", "long": "<u8", "counts": "<u4"}  # parts of a surveyed block: columns of `LineCounts`


class CleanedDocuments(NamedTuple):
    """The result of a cleaning.

    Attributes:
        partitions: partitions of the cleaned documents, which replace the partitions of the input.
        num_bytes: number of bytes of the cleaned documents.
        removed: files of the removed documents, in order.
        counts: counts over all documents.
    """

    partitions: tuple[Partition, ...]
    num_bytes: int
    removed: tuple[str, ...]
    counts: CleaningCounts


def num_cleaning_passes(recipe: Recipe) -> int:
    """Return the number of passes of a cleaning over the input: 2 if a rule needs a survey, else 1."""
    return 1 + sum(RULES[step.rule].survey is not None for step in recipe.steps)


def clean_documents(
    cleaned: FinishedBlocks,
    surveyed: FinishedBlocks,
    partitions: Sequence[Partition],
    recipe: Recipe,
    settings: PrepareSettings,
    num_workers: int,
    progress: PassProgress,
) -> CleanedDocuments:
    """Clean all documents; finished blocks of a killed cleaning are reused.

    Args:
        cleaned: the blocks of cleaned documents.
        surveyed: the blocks of the survey, the pass that counts lines.
        partitions: the whole input.
        recipe: the rules.
        settings: how the input is read.
        num_workers: as in `map_chunks`.
        progress: progress over all passes; `clean_documents` begins `num_cleaning_passes` passes.

    Raises:
        UserError: `read_chunks` or `clean_chunk` raises it.
    """
    repeated = ""
    for index, step in enumerate(recipe.steps):
        if RULES[step.rule].survey:
            progress.begin_pass()
            repeated = _find_repeated_lines(
                surveyed, partitions, recipe.steps[:index], step, settings, num_workers, progress
            )
    progress.begin_pass()
    read = functools.partial(read_chunks, tokenizer=None, settings=settings)
    work = functools.partial(
        clean_chunk, steps=recipe.steps, read_options=settings.read_options, repeated_lines_file=repeated
    )
    num_documents = sum(record["counts"]["documents"] for record in cleaned.records.values())
    with contextlib.closing(map_blocks(cleaned, partitions, read, work, num_workers)) as blocks:
        for key, results in blocks:
            counts = CleaningCounts()
            cleaned.create_files_of_block(key, PARTS)
            for chunk, result in results:
                cleaned.append(key, {KEPT: result.kept_lines, REMOVED: result.removed_lines})
                counts = sum_cleaning_counts([counts, result.counts])
                num_documents += result.counts.documents
                progress.report(chunk.bytes_read, num_documents)
            cleaned.finish(key, chunk.is_last, counts=vars(counts))
    cleaned_partitions = []
    bytes_before = 0
    for partition in partitions:
        paths = [cleaned.path(key, KEPT) for key in cleaned.in_order() if key[0] == partition.index]
        cleaned_partitions.append(
            Partition(partition.index, tuple(map(str, paths)), bytes_before, read_cleaned_documents)
        )
        bytes_before += sum(path.stat().st_size for path in paths)
    return CleanedDocuments(
        tuple(cleaned_partitions),
        bytes_before,
        tuple(str(cleaned.path(key, REMOVED)) for key in cleaned.in_order()),
        sum_cleaning_counts(CleaningCounts(**cleaned.records[key]["counts"]) for key in cleaned.in_order()),
    )


def append_removed_documents(path: pathlib.Path, removed: Sequence[str]) -> None:
    """Append a JSON line {name, reason, found, text} to a file for each document, or piece, that a rule removed.

    Args:
        path: file of JSON lines.
        removed: files or URLs with the lines of the removed documents, in order.
    """
    with writing(path), path.open("ab") as target:
        for name in removed:
            with storage.open_file(name) as source:
                shutil.copyfileobj(source, target)


def _find_repeated_lines(
    surveyed: FinishedBlocks,
    partitions: Sequence[Partition],
    earlier_steps: Sequence[Step],
    step: Step,
    settings: PrepareSettings,
    num_workers: int,
    progress: PassProgress,
) -> str:
    """Count the lines of all documents; return the path of the file of the repeated lines."""
    read = functools.partial(read_chunks, tokenizer=None, settings=settings)
    work = functools.partial(
        count_documents_per_line_hash, earlier_steps=earlier_steps, step=step, read_options=settings.read_options
    )
    with contextlib.closing(map_blocks(surveyed, partitions, read, work, num_workers)) as blocks:
        for key, results in blocks:
            counts = []
            for chunk, chunk_counts in results:
                counts.append(chunk_counts)
                progress.report(chunk.bytes_read, 0)
            block = repeated_lines.sum_line_counts(counts)
            surveyed.create_files_of_block(key, LINE_PARTS)
            surveyed.append(key, {part: column.tobytes() for part, column in zip(LINE_PARTS, block, strict=True)})
            surveyed.finish(key, chunk.is_last)
    counted = [
        LineCounts(*(surveyed.load_array(key, part, dtype) for part, dtype in LINE_PARTS.items()))
        for key in surveyed.in_order()
    ]
    path = surveyed.directory / "repeated.npy"
    with surveyed.writing():
        repeated_lines.write_repeated_line_hashes(path, counted, **step.parameters)
    return str(path)
