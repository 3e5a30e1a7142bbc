"""The rule that removes lines that many documents share, such as menus and notices; an earlier pass counts the lines.

The comparison of lines ignores case and the length of white space, and replaces each number by 0, so that
'Page 12 of 300' equals 'page 3 of 81'.
"""

import functools
import hashlib
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.corpus.languages import UNSPACED
from bert_jax.errors import UserError
from bert_jax.readers import storage

_RANGES = 64  # number of ranges of hashes that are merged separately, to bound the memory
_NUMBER = re.compile(r"\d+")
LETTERS_PER_WORD = 2  # in scripts without spaces
_UNSPACED_LETTER = re.compile(rf"(?=[{UNSPACED}])\w")  # neither punctuation nor a combining mark
_EMPTY_LINES = re.compile(r"\n\s*\n\s*\n")


def remove_repeated_lines(text: str, repeated: str, *, min_documents: int = 20, min_words: int = 3) -> str | Removed:
    """Remove the lines that `min_documents` or more documents have.

    Args:
        text: text of a document.
        repeated: path or URL of a file that `save_repeated_line_hashes` wrote.
        min_documents: minimum number of documents that must share a line for the line to be removed.
        min_words: minimum number of words of a line that is removed, so that 'Yes.' in a dialog stays. In scripts
            without spaces, two letters count as a word.
    """
    del min_documents
    hashes = _load_repeated_line_hashes(repeated)
    return _remove_rejected_lines(text, lambda line: not _has_words(line, min_words) or _hash_line(line) not in hashes)


def check_repeated_lines_rule(*, min_documents: int, min_words: int) -> None:
    """Raise UserError if the rule would remove lines of a single document, or empty lines."""
    if min_documents < 2 or min_words < 1:
        raise UserError("give min_documents from 2 on, and min_words from 1 on")


def versions_of_words(**_: object) -> list[Any]:
    """Return the constants that decide how many words a line has; with other constants, other lines are removed."""
    return [UNSPACED, LETTERS_PER_WORD]


def distinct_line_hashes(text: str, *, min_documents: int, min_words: int) -> Iterator[int]:
    """Yield the hash of each distinct line of at least `min_words` words in a text."""
    del min_documents
    yield from {_hash_line(line) for line in text.split("\n") if _has_words(line, min_words)}


def _has_words(line: str, min_words: int) -> bool:
    """Return whether a line has at least `min_words` words; in scripts without spaces, two letters are a word."""
    if len(line.split(None, min_words)) >= min_words:
        return True
    letters = () if line.isascii() else _UNSPACED_LETTER.finditer(line)
    return sum(1 for _ in itertools.islice(letters, LETTERS_PER_WORD * min_words)) == LETTERS_PER_WORD * min_words


class LineCounts(NamedTuple):
    """The number of documents with each line, in rows with ascending hashes.

    A line of a long document has a row of its own with the key of this document. So the document counts once, even if
    several of its pieces have the line.

    Attributes:
        hashes: uint64 [rows], the hash of a line.
        long: uint64 [rows], the key of a long document; 0 in the row that counts all documents in one piece.
        counts: uint32 [rows], number of documents.
    """

    hashes: np.ndarray
    long: np.ndarray
    counts: np.ndarray


NO_LINES = LineCounts(np.zeros(0, "<u8"), np.zeros(0, "<u8"), np.zeros(0, "<u4"))


def key_of_long_document(name: str) -> int:
    """Return a key that all pieces of a document have in common; `name` is the name of the document."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="backslashreplace"), digest_size=8).digest(), "big") or 1


def sum_line_counts(parts: Iterable[LineCounts]) -> LineCounts:
    """Return the sum of the counts of chunks or blocks."""
    hashes, long, counts = (np.concatenate(column) for column in zip(NO_LINES, *parts, strict=True))
    order = np.lexsort([long, hashes])
    hashes, long = hashes[order], long[order]
    is_first = np.append(True, (hashes[1:] != hashes[:-1]) | (long[1:] != long[:-1]))[: len(hashes)]
    starts = np.flatnonzero(is_first)
    sums = np.add.reduceat(counts[order], starts) if len(starts) else counts
    return LineCounts(hashes[starts], long[starts], np.where(long[starts] > 0, 1, sums).astype("<u4"))


def write_repeated_line_hashes(
    path: pathlib.Path, blocks: Sequence[LineCounts], *, min_documents: int, min_words: int
) -> None:
    """Write the hashes of lines that at least `min_documents` documents have; merge all blocks in bounded memory."""
    ranges = zip(*map(split_into_hash_ranges, blocks), strict=True)
    counted = map(sum_line_counts, ranges)
    save_repeated_line_hashes(
        path, [select_frequent_hashes(part, min_documents=min_documents, min_words=min_words) for part in counted]
    )


def split_into_hash_ranges(lines: LineCounts) -> Iterator[LineCounts]:
    """Split the hashes into `_RANGES` ranges; yield the rows of each range."""
    hashes = lines.hashes
    for index in range(_RANGES):
        first = np.searchsorted(hashes, np.uint64(index << 58))
        end = len(hashes) if index == _RANGES - 1 else np.searchsorted(hashes, np.uint64((index + 1) << 58))
        yield LineCounts(*(column[first:end] for column in lines))


def select_frequent_hashes(lines: LineCounts, *, min_documents: int, min_words: int) -> np.ndarray:
    """Return the hashes of the lines that at least `min_documents` documents have, uint64, ascending."""
    del min_words
    hashes, row = np.unique(lines.hashes, return_inverse=True)
    return hashes[np.bincount(row, lines.counts, len(hashes)) >= min_documents]


def save_repeated_line_hashes(path: pathlib.Path, parts: Sequence[np.ndarray]) -> None:
    """Write the hashes of repeated lines to the file that `remove_repeated_lines` reads."""
    np.save(path, np.concatenate(parts))
    _load_repeated_line_hashes.cache_clear()  # a file of this name may have changed since the last call


@functools.lru_cache(maxsize=1)
def _load_repeated_line_hashes(path: str) -> frozenset[int]:
    """Return the hashes in a file that `save_repeated_line_hashes` wrote."""
    with storage.open_file(path) as file:
        return frozenset(np.load(file, allow_pickle=False).tolist())


def _hash_line(line: str) -> int:
    """Return a hash of a line; the hash ignores case, the length of white space, and the values of numbers."""
    plain = _NUMBER.sub("0", " ".join(line.lower().split()))
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "big")


def _remove_rejected_lines(text: str, keep: Callable[[str], bool]) -> str | Removed:
    """Return the text without the lines that `keep` rejects.

    Empty lines stay; if several empty lines follow each other after the removal, they become a single empty line.
    """
    lines = text.split("\n")
    kept_lines = [line for line in lines if not line.strip() or keep(line.strip())]
    if len(kept_lines) == len(lines):
        return text
    left = _EMPTY_LINES.sub("\n\n", "\n".join(kept_lines)).strip("\n")
    return left if left.strip() else Removed("no line is left")
