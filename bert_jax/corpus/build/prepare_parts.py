"""A text in parts, each of which makes a snapshot of its corpus, so that training can begin after the first.

After each part, `GROWTH` times the text of before is prepared. A part has its stretch of every large file, and small
files as a whole, which are spread over the parts, so that each part has something of all sources.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from bert_jax import readers
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import fingerprints, read_manifest
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions

FIRST_BYTES = 32 << 20  # of the inputs on disk, which the first part has at most
GROWTH = 4
GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, are spread evenly, however many they are


def num_parts(files: Sequence[str], options: ReadOptions) -> int:
    """Return in how many parts a text is prepared: 1 where it is short, or has a large file that is not divisible."""
    if not all(readers.is_small(path) or readers.is_divisible(path, options) for path in files):
        return 1
    count, num_bytes = 1, readers.total_bytes(files)
    while prepared_fraction(0, count) * num_bytes > FIRST_BYTES:
        count += 1
    return count


def prepared_fraction(part: int, count: int) -> float:
    """Return the fraction of a text that is prepared after the part `part`, counted from 0, of `count`."""
    return float(GROWTH) ** (part + 1 - count)


def text_tokens(first_part_tokens: int, count: int | None) -> int:
    """Return about how many tokens a text has, from the tokens of its first of `count` parts; None: it has one part."""
    return round(first_part_tokens / prepared_fraction(0, count or 1))


def files_of_part(files: Sequence[str], options: ReadOptions, part: int, count: int) -> tuple[list[str], ReadOptions]:
    """Return the files of a part, and how they are read.

    Args:
        files: of `find_files`.
        options: how all of the text is read.
        part: counted from 0, of `count`.

    Raises:
        UserError: there are too few files for so many parts.
    """
    begin, end = prepared_fraction(part - 1, count) if part else 0.0, prepared_fraction(part, count)
    part_files = [
        path
        for index, path in enumerate(files)
        if begin <= index * GOLDEN_RATIO % 1 < end or readers.is_divisible(path, options)
    ]
    if not part_files:
        raise UserError(f"config.data.snapshots={count}: the text has too few files for so many parts; lower it")
    return part_files, dataclasses.replace(options, stretch=(begin, end))


def prepare_rest(
    inputs: Sequence[str],
    options: ReadOptions,
    corpus: pathlib.Path,
    count: int,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Add the parts to a corpus of the first of them, a snapshot each; those that it has already stay.

    Args:
        inputs, options: as in `readers.read_documents`.
        corpus: directory of the corpus; its tokenizer and settings are taken.
        count: number of parts.
        say: called with a line about a preparation that resumes.

    Raises:
        UserError: as `prepare`; a part adds no document.
    """
    files = readers.find_files(inputs, options)
    for part in range(len(fingerprints(read_manifest(corpus))), count):
        part_files, part_options = files_of_part(files, options, part, count)
        if "unchanged" in prepare(part_files, None, corpus, part_options, say=say, append=True):
            begin, end = part_options.stretch
            raise UserError(
                f"the text from {begin:.2%} to {end:.2%} adds no document; prepare all of it "
                "with `bert-jax prepare`, or set config.data.snapshots=1"
            )
