"""A text in parts, each of which makes a snapshot of its corpus, so that training can begin after the first.

After each part, `GROWTH` times the text of before is prepared. A part has its stretch of every large file, and small
files as a whole, which are spread over the parts, so that each part has something of all sources.
"""

import pathlib
from collections.abc import Callable
from collections.abc import Sequence

from bert_jax import readers as sources
from bert_jax.corpus.manifest import fingerprints
from bert_jax.corpus.manifest import read_manifest
from bert_jax.corpus.build.prepare import prepare
from bert_jax.readers import ReadOptions
from bert_jax.errors import UserError

FIRST_BYTES = 32 << 20  # of the inputs on disk, which the first part has at most
GROWTH = 4
GOLDEN_RATIO = 0.6180339887498949  # its multiples, modulo 1, are spread evenly, however many they are


def num_parts(files: Sequence[str], options: ReadOptions) -> int:
    """Return in how many parts a text is prepared: 1 where it is short, or has a large file that is not divisible."""
    if not all(sources.is_small(path) or sources.is_divisible(path, options) for path in files):
        return 1
    number, size = 1, sources.total_bytes(files)
    while fraction(0, number) * size > FIRST_BYTES:
        number += 1
    return number


def fraction(part: int, count: int) -> float:
    """Return how much of a text is prepared after the part `part`, counted from 0, of `count`."""
    return float(GROWTH) ** (part + 1 - count)


def text_tokens(tokens: int, count: int | None) -> int:
    """Return about how many tokens a text has whose first of `count` parts has `tokens`; None: it has one part."""
    return round(tokens / fraction(0, count or 1))


def divide(files: Sequence[str], options: ReadOptions, part: int, count: int) -> tuple[list[str], ReadOptions]:
    """Return the files of a part, and how they are read.

    Args:
        files: of `find_files`.
        options: how all of the text is read.
        part: counted from 0, of `count`.

    Raises:
        UserError: there are too few files for so many parts.
    """
    stretch = fraction(part - 1, count) if part else 0.0, fraction(part, count)
    found = [
        path
        for number, path in enumerate(files)
        if stretch[0] <= number * GOLDEN_RATIO % 1 < stretch[1] or sources.is_divisible(path, options)
    ]
    if not found:
        raise UserError(f"config.data.snapshots={count}: the text has too few files for so many parts; lower it")
    return found, options._replace(stretch=stretch)


def prepare_rest(
    inputs: Sequence[str],
    options: ReadOptions,
    corpus: pathlib.Path,
    count: int,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Add the parts to a corpus of the first of them, a snapshot each; those that it has already stay.

    Args:
        inputs, options: as in `sources.read_documents`.
        corpus: directory of the corpus; its tokenizer and settings are taken.
        count: number of parts.
        say: called with a line about a preparation that resumes.

    Raises:
        UserError: as `prepare`; a part adds no document.
    """
    files = sources.find_files(inputs, options)
    for part in range(len(fingerprints(read_manifest(corpus))), count):
        found, read = divide(files, options, part, count)
        if "unchanged" in prepare(found, None, corpus, read, say=say, append=True):
            raise UserError(
                f"the text from {read.stretch[0]:.2%} to {read.stretch[1]:.2%} adds no document; prepare all of it "
                "with `bert-jax prepare`, or set config.data.snapshots=1"
            )
