"""A chunk of documents -> signatures: hashes by which equal and similar documents meet."""

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.normal_form import normal_words
from bert_jax.corpus.build.normal_form import text_hashes
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.readers import ReadOptions
from bert_jax.readers import to_document

SHINGLE = 5  # words
# Two documents with a similarity of 0.8 meet in one of the bands with a probability of 1 - (1 - 0.8**5)**20 = 0.9996.
BANDS, ROWS = 20, 5
SKETCH = 1024  # hashes of shingles that are kept of a document, the lowest
ROW = np.dtype(
    [
        ("equal", "<u8", 2),  # hash of the normal form
        ("split", "<u8"),  # `split_hash`
        ("begins", "?"),  # False for a later piece of a long document
        ("has_text", "?"),
        ("sketch", "<u2"),  # number of hashes in the sketch
        ("bands", "<u4", BANDS),
    ]
)


class Signatures(NamedTuple):
    """The signatures of documents, or of pieces of long ones: `ROW` [documents], and their sketches, uint32 [any]."""

    rows: np.ndarray
    sketches: np.ndarray


def sign_chunk(chunk: Chunk, read_options: ReadOptions, near: bool) -> Signatures:
    """Return the signatures of the documents of a chunk; bands and sketches are empty without `near`.

    Raises:
        UserError: as `sources.to_document`.
    """
    rows = np.zeros(len(chunk.documents), ROW)
    words: list[list[str]] = []
    for number, raw in enumerate(chunk.documents):
        document = to_document(raw, read_options)
        has_text = not document.rejected
        if has_text:
            digest, rows["split"][number] = text_hashes(document.text)
            rows["equal"][number] = np.frombuffer(digest, "<u8")
        rows["has_text"][number], rows["begins"][number] = has_text, raw.piece == 0
        words.append(normal_words(document.text) if near and has_text else [])
    full = np.array([bool(own) for own in words], bool)
    if not full.any():
        return Signatures(rows, np.zeros(0, "<u4"))
    shingles, starts = hash_shingles([own for own in words if own])
    rows["bands"][full] = _band_hashes(shingles, starts)
    sketches = [np.unique(own >> np.uint64(32))[:SKETCH] for own in np.split(shingles, starts[1:])]
    rows["sketch"][full] = [len(sketch) for sketch in sketches]
    return Signatures(rows, np.concatenate(sketches).astype("<u4"))


def hash_shingles(texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of the shingles of texts of words, none empty, and where each text begins.

    A text of fewer than `SHINGLE` words is one shingle.

    Returns:
        uint64 [shingles], int64 [texts].
    """
    sizes = np.array([max(len(text), SHINGLE) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    words = np.zeros(ends[-1], np.uint64)
    for text, end, size in zip(texts, ends.tolist(), sizes.tolist(), strict=True):
        first = end - size
        words[first : first + len(text)] = np.fromiter(
            (zlib.crc32(word.encode()) for word in text), np.uint64, len(text)
        )
    shingles = hash_windows(words)
    inside = np.ones(len(words), bool)  # not across the end of a text
    inside[(ends[:, None] - np.arange(1, SHINGLE)).ravel()] = False
    return shingles[inside[: len(shingles)]], ends - sizes - (SHINGLE - 1) * np.arange(len(sizes))


def hash_windows(words: np.ndarray) -> np.ndarray:
    """Return hashes of `SHINGLE` numbers in a row, uint64 [max(0, words - SHINGLE + 1)], of numbers as uint64."""
    found = np.zeros(max(0, len(words) - SHINGLE + 1), np.uint64)
    for place in range(SHINGLE):
        found = found * _MULTIPLIER + words[place : place + len(found)]
    return _mix(found)


def _band_hashes(shingles: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return a hash for each band of MinHash values of each text, uint32 [texts, BANDS]."""
    lowest = np.empty([BANDS * ROWS, len(starts)], np.uint64)
    for number, multiplier in enumerate(_MULTIPLIERS):
        np.minimum.reduceat(shingles * multiplier, starts, out=lowest[number])
    bands = np.zeros([BANDS, len(starts)], np.uint64)
    for row in range(ROWS):
        bands = _mix(bands * _MULTIPLIER + lowest[row::ROWS])
    return (bands.T >> np.uint64(32)).astype("<u4")


def _mix(bits: np.ndarray) -> np.ndarray:
    """Return hashes of uint64 numbers, a permutation: the finalizer of MurmurHash3 (Appleby)."""
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return bits ^ (bits >> np.uint64(33))


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Odd, so that each gives a permutation of the hashes; the text with the least is the same in two sets with the
# probability of their similarity.
_MULTIPLIERS = _mix(np.arange(1, BANDS * ROWS + 1, dtype=np.uint64) * _MULTIPLIER) | np.uint64(1)
