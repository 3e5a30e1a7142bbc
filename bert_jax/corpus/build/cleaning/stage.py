"""The passes of a cleaning over all documents, on all cores; what they leave is read instead of the input."""

import contextlib
import functools
import itertools
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import numpy as np

from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.chunks import read_chunks
from bert_jax.corpus.build.cleaning import repeated_lines
from bert_jax.corpus.build.cleaning.blocks import BlockFiles
from bert_jax.corpus.build.cleaning.blocks import Key
from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.chunk import clean_chunk
from bert_jax.corpus.build.cleaning.chunk import read_cleaned
from bert_jax.corpus.build.cleaning.chunk import sum_counts
from bert_jax.corpus.build.cleaning.chunk import survey_chunk
from bert_jax.corpus.build.cleaning.recipe import Recipe
from bert_jax.corpus.build.cleaning.recipe import Step
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.workers import map_chunks
from bert_jax.readers import storage
from bert_jax.errors import writing

KEPT, REMOVED = "jsonl", "removed"  # parts of a block: documents that are kept, and those that were removed
PARTS = (KEPT, REMOVED)
Progress = Callable[[int, int], None]  # bytes of input read, documents done
Result = TypeVar("Result")


class Cleaned(NamedTuple):
    """What a cleaning leaves.

    Attributes:
        partitions: those of the input, to be read instead of them.
        bytes_kept: of their files.
        removed: the files of the removed documents, in order.
        counts: of all documents.
    """

    partitions: tuple[Partition, ...]
    bytes_kept: int
    removed: tuple[str, ...]
    counts: CleaningCounts


def num_passes(recipe: Recipe) -> int:
    """Return how often a cleaning reads the input: 1, or 2 with a survey."""
    return 1 + sum(RULES[step.rule].survey is not None for step in recipe.steps)


def pass_reports(
    progress: Callable[[int, int, int], None] | None, all_bytes: int, number: int
) -> Callable[[int], Progress]:
    """Return a function that gives the reports of the next pass, as parts of `number` passes over `all_bytes`.

    Args:
        progress: called with (bytes of input read, bytes in all, documents done).
        all_bytes: of the input.
        number: of passes.

    Returns:
        A function of the bytes that the pass reads.
    """
    done = itertools.count()

    def next_pass(own_bytes: int) -> Progress:
        before = next(done) * all_bytes

        def report(bytes_read: int, num_documents: int) -> None:
            if progress:
                read = bytes_read * all_bytes // own_bytes if own_bytes else bytes_read
                progress(before + read, number * all_bytes, num_documents)

        return report

    return next_pass


def clean_documents(
    files: BlockFiles,
    survey_files: BlockFiles,
    partitions: Sequence[Partition],
    recipe: Recipe,
    settings: PrepareSettings,
    workers: int,
    reports: Callable[[int], Progress],
    all_bytes: int,
) -> Cleaned:
    """Clean all documents; finished blocks of a killed cleaning are kept.

    Args:
        files: the blocks of cleaned documents, with the parts `PARTS`.
        survey_files: the blocks of a survey, with the parts `repeated_lines.PARTS`.
        partitions: the whole input.
        recipe: what is done.
        settings: how the input is read.
        workers: number of processes.
        reports: from `pass_reports`.
        all_bytes: of the input.

    Raises:
        UserError: as `read_chunks` and `clean_chunk`.
    """
    repeated = ""
    for number, step in enumerate(recipe.steps):
        if RULES[step.rule].survey:
            report = reports(all_bytes)
            repeated = _survey(survey_files, partitions, recipe.steps[:number], step, settings, workers, report)
    work = functools.partial(clean_chunk, steps=recipe.steps, read_options=settings.read_options, repeated=repeated)
    progress = reports(all_bytes)
    documents = sum(known["counts"]["documents"] for known in files.finished.values())
    for key, results in _blocks(files, partitions, settings, work, workers):
        counts, last = CleaningCounts(), False
        files.begin(key)
        for chunk, cleaned in results:
            files.append(key, (cleaned.kept, cleaned.removed))
            counts, last = sum_counts([counts, cleaned.counts]), chunk.last
            documents += cleaned.counts.documents
            progress(chunk.bytes_read, documents)
        files.finish(key, last, counts=counts._asdict())
    keys = {partition.number: files.keys_of(partition.number) for partition in partitions}
    found = []
    before = 0
    for number, own in keys.items():
        paths = tuple(str(files.path(key, KEPT)) for key in own)
        found.append(Partition(number, paths, before, read_cleaned))
        before += sum(files.path(key, KEPT).stat().st_size for key in own)
    return Cleaned(
        tuple(found),
        before,
        tuple(str(files.path(key, REMOVED)) for own in keys.values() for key in own),
        sum_counts(CleaningCounts(**files.finished[key]["counts"]) for own in keys.values() for key in own),
    )


def copy_removed(path: pathlib.Path, removed: Sequence[str]) -> None:
    """Append a line {name, reason, found, text} per document, or piece of a long one, that a rule removed.

    Args:
        path: the file.
        removed: files or URLs of the removed documents, in order.
    """
    with writing(path), path.open("ab") as target:
        for name in removed:
            with storage.open_file(name) as source:
                shutil.copyfileobj(source, target)


def _survey(
    files: BlockFiles,
    partitions: Sequence[Partition],
    before: Sequence[Step],
    step: Step,
    settings: PrepareSettings,
    workers: int,
    progress: Progress,
) -> str:
    """Count the lines of all documents; return the file of those that are repeated."""
    work = functools.partial(survey_chunk, before=before, step=step, read_options=settings.read_options)
    for key, results in _blocks(files, partitions, settings, work, workers):
        found, last = [], False
        for chunk, own in results:
            found.append(own)
            last = chunk.last
            progress(chunk.bytes_read, 0)
        files.begin(key)
        merged = repeated_lines.count_hashes(*zip(*found, strict=True))
        files.append(key, [array.tobytes() for array in merged])
        files.finish(key, last)
    lines, counts = repeated_lines.PARTS
    keys = sorted(files.finished)
    blocks = [(_mapped(files, key, lines, "<u8"), _mapped(files, key, counts, "<u4")) for key in keys]
    path = files.directory / "repeated.npy"
    with files.writing():
        repeated_lines.find_repeated(path, blocks, **step.parameters)
    return str(path)


def _blocks(
    files: BlockFiles,
    partitions: Sequence[Partition],
    settings: PrepareSettings,
    work: Callable[[Chunk], Result],
    workers: int,
) -> Generator[tuple[Key, Iterator[tuple[Chunk, Result]]]]:
    """Yield each block that is not finished, and its chunks with their results, in order."""
    todo = (
        chunk
        for partition in partitions
        if not files.is_finished(partition.number)
        for chunk in read_chunks(partition, None, settings)
        if (chunk.partition, chunk.block) not in files.finished
    )
    with contextlib.closing(map_chunks(todo, work, workers)) as results:
        yield from itertools.groupby(results, lambda result: (result[0].partition, result[0].block))


def _mapped(files: BlockFiles, key: Key, part: str, dtype: Any) -> np.ndarray:
    """Return the numbers of a file, mapped into memory; an empty file cannot be mapped."""
    path = files.path(key, part)
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
