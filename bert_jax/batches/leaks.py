"""Held-out documents that are near copies of training documents, by the ids of five tokens in a row.

The lowest hashes of each held-out document are looked up while the training documents pass; pairs of documents that
share enough of them are compared with all of their hashes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.batches.layout import running_total
from bert_jax.batches.statistics import MAX_TOKENS_READ, document_sizes, sample
from bert_jax.corpus.store import MAX_RECORD, Split

KEPT = 16  # lowest hashes of a held-out document
SHARED = 0.4  # of these, in a document that it is compared with: a near copy has fewer with a probability of 0.0002
MAX_RECORDS = 64  # of a document; what follows is not compared
_MAX_OWNERS = 64  # held-out documents with the same hash: more have a boilerplate in common
_MAX_COMPARED = 8  # training documents that a held-out one is compared with: those that share the most
_RECORDS_AT_ONCE = 4096
_TABLE_BITS = 22


class Leaks(NamedTuple):
    """`near` of `heldout` documents are near copies of one of `train` documents, as preparation defines them.

    `exact`: these are all documents, not a sample.
    """

    exact: bool
    train: int
    heldout: int
    near: int


def find_leaks(train: Split, heldout: Split, limit: int = MAX_TOKENS_READ) -> Leaks:
    """Count the held-out documents that are near copies of training documents.

    Of more than `limit` tokens for training, or a tenth of that held out, a random part of the documents is read.
    """
    from bert_jax.corpus.build.dedup_decisions import THRESHOLD  # its libraries are for preparation

    cost = [np.minimum(document_sizes(split)[0], MAX_RECORDS * MAX_RECORD) for split in (heldout, train)]
    held, read = sample(cost[0], limit // 10), sample(cost[1], limit)
    near = set[int]()
    for one, other in _candidates(train, read, *_lowest_hashes(heldout, held)):
        if one not in near and _similarity(_document(heldout, one), _document(train, other)) >= THRESHOLD:
            near.add(one)
    complete = (len(held), len(read)) == (heldout.num_documents, train.num_documents)
    return Leaks(complete, len(read), len(held), len(near))


def _hashes(split: Split, documents: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield hashes of `SHINGLE` ids in a row, uint64, each with its document; few documents are in memory at a time."""
    from bert_jax.corpus.build.dedup_signatures import SHINGLE, hash_windows

    count = np.minimum(np.diff(split.first_record)[documents], MAX_RECORDS)
    before = running_total(count)
    first = 0
    while first < len(documents):
        end = max(first + 1, int(np.searchsorted(before, before[first] + _RECORDS_AT_ONCE, side="right")) - 1)
        own, sizes = documents[first:end], count[first:end]
        starts = before[first:end] - before[first]
        records = np.repeat(split.first_record[own] - starts, sizes) + np.arange(sizes.sum())
        owner = np.repeat(np.repeat(own, sizes), split.tokens_per_record[records])
        found = hash_windows(split.read(records)[0].astype(np.uint64))
        inside = owner[: len(found)] == owner[SHINGLE - 1 :]
        yield found[inside], owner[: len(found)][inside]
        first = end


def _lowest_hashes(split: Split, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the `KEPT` lowest different hashes of each document, ascending over all, and their documents."""
    kept = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
    for hashes, owners in _hashes(split, documents):
        order = np.lexsort([hashes, owners])
        hashes, owners = hashes[order], owners[order]
        new = np.append(True, (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1]))[: len(hashes)]
        hashes, owners = hashes[new], owners[new]
        low = np.arange(len(owners)) - np.searchsorted(owners, owners) < KEPT
        kept.append((hashes[low], owners[low]))
    hashes, owners = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    few = np.arange(len(hashes)) - np.searchsorted(hashes, hashes) < _MAX_OWNERS
    return hashes[few], owners[few]


def _candidates(train: Split, documents: np.ndarray, keys: np.ndarray, owners: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield held-out documents with training documents that share their hashes, by the held-out document."""
    table = np.zeros(1 << _TABLE_BITS, bool)
    shift = np.uint64(64 - _TABLE_BITS)
    table[keys >> shift] = True
    number_of_keys = np.bincount(owners, minlength=1)
    found = [np.zeros([0, 3], np.int64)]
    for hashes, others in _hashes(train, documents):
        maybe = table[hashes >> shift]
        first, end = (np.searchsorted(keys, hashes[maybe], side=side) for side in ("left", "right"))
        size = end - first
        places = np.repeat(first - running_total(size)[:-1], size) + np.arange(size.sum())
        shared = np.unique(np.stack([np.repeat(others[maybe], size), places]), axis=1)  # a hash may be there twice
        pairs, count = np.unique(np.stack([owners[shared[1]], shared[0]]), axis=1, return_counts=True)
        enough = count >= SHARED * number_of_keys[pairs[0]]
        found.append(np.stack([pairs[0], -count, pairs[1]], axis=1)[enough])
    rows = np.concatenate(found)
    rows = rows[np.lexsort(rows.T[::-1])]
    best = np.arange(len(rows)) - np.searchsorted(rows[:, 0], rows[:, 0]) < _MAX_COMPARED
    yield from ((one, other) for one, _, other in rows[best].tolist())


def _document(split: Split, document: int) -> np.ndarray:
    return np.unique(next(_hashes(split, np.array([document])))[0])


def _similarity(one: np.ndarray, other: np.ndarray) -> float:
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)
