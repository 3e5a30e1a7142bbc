"""Signatures of texts, which find equal and similar texts: hashes of the normal form and of the shingles.

Two texts are equal if they have the same normal form, which ignores the common differences between copies: width, case,
white space and punctuation. Two texts are near copies if the sets of their shingles have a Jaccard similarity of at
least `dedup_decisions.THRESHOLD`. A shingle is five words in a row, or five characters in scripts without spaces.
Candidates for near copies come from MinHash with locality-sensitive hashing (Broder 1997; Leskovec, Rajaraman and
Ullman, "Mining of Massive Datasets", chapter 3). A candidate is verified with the sketches of its two documents; the
sketch of a document has its lowest shingle hashes.
"""

import functools
import hashlib
import re
import unicodedata
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.languages import UNSPACED
from bert_jax.readers import RawDocument, ReadOptions, to_document

SPLIT_CHARACTERS = 1 << 16  # number of characters at the start of the normal form that decide the split
SHINGLE = 5  # number of words in a shingle
# Two documents with a similarity of 0.8 share at least one band with a probability of 1 - (1 - 0.8**5)**20 = 0.9996.
BANDS, ROWS = 20, 5
SKETCH = 1024  # number of lowest shingle hashes that are stored for a document
ROW = np.dtype(
    [
        ("equal", "<u8", 2),  # hash of the normal form; 0 for a blank piece
        ("split", "<u8"),  # `split_hash`
        ("begins", "?"),  # True if the row begins a document; False for a later piece of a long document
        ("has_text", "?"),
        ("sketch", "<u2"),  # number of hashes in the sketch
        ("bands", "<u4", BANDS),
    ]
)
_IGNORED = "PZC"  # Unicode categories: punctuation, separators, controls
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Signatures(NamedTuple):
    """The signatures of documents or pieces of long documents: rows, `ROW` [documents], and sketches, uint32 [any]."""

    rows: np.ndarray
    sketches: np.ndarray


def _is_ignored_in_normal_form(character: str) -> bool:
    return unicodedata.category(character)[0] in _IGNORED


_ASCII_IGNORED = [code for code in range(128) if _is_ignored_in_normal_form(chr(code))]
# Replacement of white space -> the ASCII characters that are deleted.
_DELETED = {"": bytes(_ASCII_IGNORED), " ": bytes(code for code in _ASCII_IGNORED if not chr(code).isspace())}


def normal_form(text: str) -> str:
    """Return a text in NFKC, case folded, without white space and punctuation; if nothing remains, return the text."""
    return _normal_form_with_spaces(text, "") or text


def normal_words(text: str) -> list[str]:
    """Return the words of the normal form, split at white space; in scripts without spaces, a character is a word."""
    spaced = _normal_form_with_spaces(text, " ")
    return (spaced if spaced.isascii() else _UNSPACED_CHARACTER.sub(r" \g<0> ", spaced)).split()


class TextHashes(NamedTuple):
    """The 16-byte hash of the normal form of a text, and the hash that chooses its split."""

    content_hash: bytes
    split_hash: int


def text_hashes(text: str) -> TextHashes:
    """Return a hash of the normal form of a text, 16 bytes, and its `split_hash`."""
    form = normal_form(text)
    start = hashlib.blake2b(form[:SPLIT_CHARACTERS].encode(), digest_size=8).digest()
    return TextHashes(hashlib.blake2b(form.encode(), digest_size=16).digest(), int.from_bytes(start, "big"))


def split_hash(text: str) -> int:
    """Return a hash of the start of a text's normal form; hashes are uniform below 2**64."""
    return text_hashes(text)[1]


def choose_split(hash_of_text: int, heldout_fraction: float) -> str:
    """Return 'train' or 'heldout'; the split depends only on the `split_hash` and the fraction."""
    return "heldout" if hash_of_text < heldout_fraction * 2**64 else "train"


def _normal_form_with_spaces(text: str, space: str) -> str:
    """Return the normal form of a text; `space`, which is '' or ' ', replaces white space."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold().encode().translate(None, _DELETED[space]).decode()
    if not text.isascii():
        for character in filter(_is_ignored_non_ascii, set(text)):
            text = text.replace(character, space if character.isspace() else "")
    return text


@functools.cache
def _is_ignored_non_ascii(character: str) -> bool:
    return not character.isascii() and _is_ignored_in_normal_form(character)


def hash_words(words: Sequence[str]) -> np.ndarray:
    """Return a hash of each word, uint64 [words]; the hashes are equal on every machine."""
    # Words have no white space. A call of `encode` for all words is twice as fast as a call for each word.
    return np.fromiter(map(zlib.crc32, " ".join(words).encode().split(b" ")), np.uint64, len(words))


def hash_ngrams(word_hashes: np.ndarray, n: int) -> np.ndarray:
    """Return a hash of each n-gram of words, uint64 [max(0, words - n + 1)], from the `word_hashes`, uint64 [words].

    Equal n-grams have equal hashes. The hashes are not uniform; `hash_shingles` returns uniform hashes.
    """
    hashes = np.zeros(max(0, len(word_hashes) - n + 1), np.uint64)
    for offset in range(n):
        hashes = hashes * _MULTIPLIER + word_hashes[offset : offset + len(hashes)]
    return hashes


def hash_shingles(word_hashes: np.ndarray) -> np.ndarray:
    """Return a uniform hash of each shingle of word hashes or ids, uint64 [max(0, words - SHINGLE + 1)]."""
    return _murmur_finalizer(hash_ngrams(word_hashes, SHINGLE))


class ShingleHashes(NamedTuple):
    """The shingle hashes of texts, uint64 [shingles], and the first shingle of each text, int64 [texts]."""

    shingles: np.ndarray
    starts: np.ndarray


def hash_shingles_of_texts(texts: Sequence[Sequence[str]]) -> ShingleHashes:
    """Return shingle hashes of texts (non-empty lists of words), and the index of each text's first shingle.

    A text of fewer than `SHINGLE` words has one shingle.

    Returns:
        uint64 [shingles], int64 [texts].
    """
    sizes = np.array([max(len(text), SHINGLE) for text in texts], np.int64)
    ends = np.cumsum(sizes)
    words = np.zeros(ends[-1], np.uint64)
    for text, start in zip(texts, (ends - sizes).tolist(), strict=True):
        words[start : start + len(text)] = hash_words(text)
    shingles = hash_shingles(words)
    inside = np.ones(len(words), bool)  # shingles that do not cross the end of a text
    inside[(ends[:, None] - np.arange(1, SHINGLE)).ravel()] = False
    return ShingleHashes(shingles[inside[: len(shingles)]], ends - sizes - (SHINGLE - 1) * np.arange(len(sizes)))


def compute_document_signatures(documents: Sequence[RawDocument], read_options: ReadOptions, near: bool) -> Signatures:
    """Return the signatures of documents; bands and sketches are empty if `near` is False.

    Raises:
        UserError: `readers.to_document` raises it.
    """
    rows = np.zeros(len(documents), ROW)
    texts: list[list[str]] = []
    for index, raw in enumerate(documents):
        document = to_document(raw, read_options)
        has_text = not document.rejected
        if has_text:
            digest, rows["split"][index] = text_hashes(document.text)
            rows["equal"][index] = np.frombuffer(digest, "<u8") if document.text.strip() else 0
        rows["has_text"][index], rows["begins"][index] = has_text, raw.piece == 0
        texts.append(normal_words(document.text) if near and has_text else [])
    has_words = np.array([bool(words) for words in texts], bool)
    if not has_words.any():
        return Signatures(rows, np.zeros(0, "<u4"))
    shingles, starts = hash_shingles_of_texts([words for words in texts if words])
    rows["bands"][has_words] = _minhash_band_hashes(shingles, starts)
    sketches = [np.unique(hashes >> np.uint64(32))[:SKETCH] for hashes in np.split(shingles, starts[1:])]
    rows["sketch"][has_words] = [len(sketch) for sketch in sketches]
    return Signatures(rows, np.concatenate(sketches).astype("<u4"))


def jaccard_similarity(first: np.ndarray, second: np.ndarray, sketch_size: int | None = None) -> float:
    """Return the Jaccard similarity of two sets of integers, which are ascending arrays of distinct values.

    With `sketch_size`, the arrays are the lowest values of larger sets. The similarity is exact if both arrays have
    fewer values than `sketch_size`; otherwise it is estimated from the lowest values of their union (Cohen and Kaplan,
    "Summarizing data using bottom-k sketches", 2007).
    """
    union = np.union1d(first, second)
    if sketch_size and max(len(first), len(second)) >= sketch_size:
        union = union[:sketch_size]
    common = np.intersect1d(first, second, assume_unique=True)
    return int(np.searchsorted(common, union[-1], side="right")) / len(union)


def _minhash_band_hashes(shingles: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return a hash for each band of MinHash values of each text, uint32 [texts, BANDS]."""
    lowest = np.empty([BANDS * ROWS, len(starts)], np.uint64)
    for row, multiplier in enumerate(_MULTIPLIERS):
        np.minimum.reduceat(shingles * multiplier, starts, out=lowest[row])
    bands = np.zeros([BANDS, len(starts)], np.uint64)
    for row in range(ROWS):
        bands = _murmur_finalizer(bands * _MULTIPLIER + lowest[row::ROWS])
    return (bands.T >> np.uint64(32)).astype("<u4")


def _murmur_finalizer(bits: np.ndarray) -> np.ndarray:
    """Apply the finalizer of MurmurHash3 (Appleby), a permutation of all uint64 values, to each value."""
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return bits ^ (bits >> np.uint64(33))


# The multipliers are odd, so that each multiplication permutes the hashes. The probability that the lowest products of
# two sets are equal is the similarity of the sets.
_MULTIPLIERS = _murmur_finalizer(np.arange(1, BANDS * ROWS + 1, dtype=np.uint64) * _MULTIPLIER) | np.uint64(1)
