"""Preparation of a text in parts. Each part adds a snapshot to the corpus, so training can begin after the first part.

Each part multiplies the amount of prepared text by `GROWTH`. A part contains a range of every large file, and some
complete small files. The small files are spread evenly over the parts, so a source of few small files may have no text
in the first part.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax import readers
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import read_manifest, snapshot_fingerprints
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions

MAX_FIRST_PART_BYTES = 32 << 20  # maximum size of the first part: bytes of input files on disk
GROWTH = 4
GOLDEN_RATIO = 0.6180339887498949  # the first n multiples of this number, modulo 1, are spread evenly for every n


def num_parts_of_text(files: Sequence[str], options: ReadOptions) -> int:
    """Return the number of parts of a text; it is 1 if the text is short, or if a large file cannot be divided."""
    if not all(readers.is_small(path) or readers.is_divisible(path, options) for path in files):
        return 1
    count, num_bytes = 1, readers.total_bytes(files)
    while fraction_prepared_after_part(0, count) * num_bytes > MAX_FIRST_PART_BYTES:
        count += 1
    return count


def fraction_prepared_after_part(part: int, count: int) -> float:
    """Return the fraction of a text that is prepared after part `part` (counted from 0) of `count` parts."""
    return float(GROWTH) ** (part + 1 - count)


def estimate_text_tokens(first_part_tokens: int, count: int | None) -> int:
    """Estimate the tokens of a text of `count` parts (None means 1 part) from the tokens of its first part."""
    return round(first_part_tokens / fraction_prepared_after_part(0, count or 1))


class PartOfText(NamedTuple):
    """The files of a part of a text, and the options for reading the files."""

    files: list[str]
    read_options: ReadOptions


def files_of_part(files: Sequence[str], options: ReadOptions, part: int, count: int) -> PartOfText:
    """Return the files of a part, and the options for reading the files.

    Args:
        files: result of `find_files`.
        options: options for the whole text.
        part: index of the part, below `count`.
        count: number of parts.

    Raises:
        UserError: the text has too few files for `count` parts.
    """
    begin, end = (
        fraction_prepared_after_part(part - 1, count) if part else 0.0,
        fraction_prepared_after_part(part, count),
    )
    part_files = [
        path
        for index, path in enumerate(files)
        if begin <= index * GOLDEN_RATIO % 1 < end or readers.is_divisible(path, options)
    ]
    if not part_files:
        raise UserError(
            f"config.data.snapshots={count}: the text has too few files for {count} parts; lower the number"
        )
    return PartOfText(part_files, dataclasses.replace(options, stretch=(begin, end)))


def prepare_missing_parts(
    inputs: Sequence[str],
    options: ReadOptions,
    corpus: pathlib.Path,
    count: int,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Add the missing parts of a text to its corpus; each part becomes a snapshot.

    Args:
        inputs, options: as in `readers.read_documents`.
        corpus: directory of the corpus, which has at least the first part; its tokenizer and settings are used.
        count: number of parts.
        say: function that prints a line; called when a preparation resumes.

    Raises:
        UserError: `prepare` raises it, or a part adds no document.
    """
    files = readers.find_files(inputs, options)
    for part in range(len(snapshot_fingerprints(read_manifest(corpus))), count):
        part_files, part_options = files_of_part(files, options, part, count)
        if "unchanged" in prepare(part_files, None, corpus, part_options, say=say, append=True):
            begin, end = part_options.stretch
            raise UserError(
                f"the text from {begin:.2%} to {end:.2%} adds no document; prepare all of it "
                "with `bert-jax prepare`, or set config.data.snapshots=1"
            )
