"""The rule about lines that many documents have, such as menus and notices: a pass counts them before the cleaning.

Lines are compared without case and the length of white space, and with 0 for every number, so that 'Page 12 of 300' is
'page 3 of 81'.
"""

import functools
import hashlib
import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_jax.corpus.build.cleaning.texts import Removed, keep_lines
from bert_jax.readers import storage

LINES, COUNTS = "lines", "counts"  # parts of a block: hashes, ascending; how many documents have each
_RANGES = 64  # in which the hashes are merged, to bound the memory
_NUMBER = re.compile(r"\d+")


def remove_repeated(text: str, repeated: str, *, min_documents: int = 20, min_words: int = 3) -> str | Removed:
    """Remove the lines that `min_documents` or more documents have.

    Args:
        text: any.
        repeated: the file of `save_repeated`, or its URL.
        min_documents: number of documents.
        min_words: of a line; shorter ones, such as 'Yes.' in dialogs, stay.
    """
    del min_documents
    hashes = _load(repeated)
    return keep_lines(text, lambda line: len(line.split(None, min_words)) < min_words or _hash(line) not in hashes)


def hash_lines(text: str, *, min_documents: int, min_words: int) -> Iterator[int]:
    """Yield the hashes of the different lines of a text that have `min_words`."""
    del min_documents
    yield from {_hash(line) for line in text.split("\n") if len(line.split(None, min_words)) >= min_words}


def count_hashes(hashes: Sequence[np.ndarray], counts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the different hashes, uint64, ascending, and the sums of their counts, uint32."""
    keys, inverse = np.unique(np.concatenate(hashes), return_inverse=True)
    sums = np.bincount(inverse, np.concatenate(counts), len(keys))
    return keys.astype("<u8"), sums.astype("<u4")


def find_repeated(
    path: pathlib.Path, blocks: Sequence[tuple[np.ndarray, np.ndarray]], *, min_documents: int, min_words: int
) -> None:
    """Write the hashes that `min_documents` documents have in all blocks together; in bounded memory."""
    ranges = zip(*(split_ranges(*block) for block in blocks), strict=True)
    counted = (count_hashes(*zip(*parts, strict=True)) for parts in ranges)
    save_repeated(path, [select_repeated(*part, min_documents=min_documents, min_words=min_words) for part in counted])


def split_ranges(hashes: np.ndarray, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the hashes, ascending, and the counts of each of `_RANGES` ranges of hashes."""
    for index in range(_RANGES):
        first = np.searchsorted(hashes, np.uint64(index << 58))
        end = len(hashes) if index == _RANGES - 1 else np.searchsorted(hashes, np.uint64((index + 1) << 58))
        yield hashes[first:end], counts[first:end]


def select_repeated(hashes: np.ndarray, counts: np.ndarray, *, min_documents: int, min_words: int) -> np.ndarray:
    """Return the hashes that `min_documents` documents have."""
    del min_words
    return hashes[counts >= min_documents]


def save_repeated(path: pathlib.Path, parts: Sequence[np.ndarray]) -> None:
    """Write the file that `remove_repeated` reads."""
    np.save(path, np.concatenate(parts))
    _load.cache_clear()  # of an earlier call of this process, for the same output


@functools.lru_cache(maxsize=1)
def _load(path: str) -> frozenset[int]:
    with storage.open_file(path) as file:
        return frozenset(np.load(file, allow_pickle=False).tolist())


def _hash(line: str) -> int:
    plain = _NUMBER.sub("0", " ".join(line.lower().split()))
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "big")
