"""Counts of documents that repeat other documents, found by token ids: exact copies, and near copies across splits.

A shingle is a sequence of `SHINGLE` consecutive token ids. To find near copies, a table stores the lowest shingle
hashes of each held-out document, and the hashes of each training document are looked up in the table. Two documents
that share enough of the stored hashes are then compared by all their hashes.
"""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.dedup_decisions import THRESHOLD
from bert_jax.corpus.build.signatures import SHINGLE, hash_shingles, jaccard_similarity
from bert_jax.corpus.statistics import MAX_TOKENS_READ, document_sizes, random_indices_within_cost
from bert_jax.corpus.store import MAX_RECORD, Split, running_total

LOWEST_HASHES = 16  # number of hashes that the table stores for each held-out document
# A training document is compared with a held-out document if it shares this fraction of the stored hashes. The
# probability that a near copy shares a smaller fraction is 0.0002.
MIN_SHARED_FRACTION = 0.4
MAX_RECORDS = 64  # maximum number of records of a document that are compared; later text is ignored
_MAX_OWNERS = 64  # maximum number of held-out documents stored for a hash; a hash in more documents is boilerplate
_MAX_COMPARED = 8  # maximum number of training documents that are compared with a held-out document
_RECORDS_AT_ONCE = 4096
_TABLE_BITS = 22


class Duplicates(NamedTuple):
    """Counts of documents that have the token ids of another document.

    `train` and `heldout` are the numbers of compared documents; `exact` is True if all documents were compared.
    `repeated` is the number of training documents equal to an earlier training document, and `leaked` the number of
    held-out documents equal to a training document.
    """

    exact: bool
    train: int
    repeated: int
    heldout: int
    leaked: int


class Leaks(NamedTuple):
    """Counts of held-out documents that are near copies of training documents, as `prepare` defines near copies.

    `train` and `heldout` are the numbers of compared documents, and `near` is the number of near copies in `heldout`.
    `exact` is True if all documents were compared, and False if only a sample was compared.
    """

    exact: bool
    train: int
    heldout: int
    near: int


def count_duplicates(train: Split, heldout: Split, limit: int = MAX_TOKENS_READ) -> Duplicates:
    """Count documents with equal ids, found by a hash of 128 bits.

    Equal documents have equal numbers of tokens and sentences, so only documents that share both numbers with another
    document are read. If these documents have more than `limit` tokens together, pairs (number of tokens, number of
    sentences) are sampled, and only the documents with a sampled pair are read.
    """
    split = Split.join([train, heldout])
    tokens, sentences = document_sizes(split)
    if not len(tokens):
        return Duplicates(True, 0, 0, 0, 0)
    _, shape, count = np.unique(tokens * (sentences.max() + 1) + sentences, return_inverse=True, return_counts=True)
    cost = np.bincount(shape, np.where(count[shape] > 1, tokens, 0)).astype(np.int64)
    is_taken = np.zeros(len(cost), bool)
    is_taken[random_indices_within_cost(cost, limit)] = True
    is_compared = is_taken[shape]
    documents = np.flatnonzero(is_compared & (count[shape] > 1))
    digests = bytearray()
    for _, ids, sizes in _read_documents(split, documents):
        for document_ids in np.split(ids, np.cumsum(sizes)[:-1]):
            digests += hashlib.blake2b(document_ids.view(np.uint8).data, digest_size=16).digest()
    keys = np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2)
    _, content = np.unique(keys, axis=0, return_inverse=True)
    content = content.ravel()  # numpy 2.0.0 returns [n, 1]
    in_train = documents < train.num_documents
    known = np.bincount(content[in_train], minlength=int(content.max(initial=-1)) + 1) > 0
    return Duplicates(
        exact=bool(is_taken.all()),
        train=int(is_compared[: train.num_documents].sum()),
        repeated=int(in_train.sum() - known.sum()),
        heldout=int(is_compared[train.num_documents :].sum()),
        leaked=int(known[content[~in_train]].sum()),
    )


def count_leaked_near_copies(train: Split, heldout: Split, limit: int = MAX_TOKENS_READ) -> Leaks:
    """Count the held-out documents that are near copies of training documents.

    If the training split has more than `limit` tokens, or the held-out split more than `limit` / 10, a random sample of
    the documents is read.
    """
    heldout_cost, train_cost = (
        np.minimum(document_sizes(split)[0], MAX_RECORDS * MAX_RECORD) for split in (heldout, train)
    )
    heldout_read, train_read = (
        random_indices_within_cost(heldout_cost, limit // 10),
        random_indices_within_cost(train_cost, limit),
    )
    near = set[int]()
    for heldout_document, train_document in _candidate_copy_pairs(
        train, train_read, *_lowest_hashes(heldout, heldout_read)
    ):
        if heldout_document not in near:
            similarity = jaccard_similarity(
                _document_hashes(heldout, heldout_document), _document_hashes(train, train_document)
            )
            if similarity >= THRESHOLD:
                near.add(heldout_document)
    is_complete = (len(heldout_read), len(train_read)) == (heldout.num_documents, train.num_documents)
    return Leaks(is_complete, len(train_read), len(heldout_read), len(near))


class _DocumentTokens(NamedTuple):
    """The indices of documents, their token ids end to end, and the number of tokens of each."""

    documents: np.ndarray
    ids: np.ndarray
    num_tokens: np.ndarray


def _read_documents(split: Split, documents: np.ndarray, max_records: int | None = None) -> Iterator[_DocumentTokens]:
    """Yield a few documents at a time: their indexes, their token ids end to end, and their token counts."""
    num_records = np.minimum(np.diff(split.first_record)[documents], max_records or split.num_records)
    before = running_total(num_records)
    first = 0
    while first < len(documents):
        end = max(first + 1, int(np.searchsorted(before, before[first] + _RECORDS_AT_ONCE, side="right")) - 1)
        group, starts = documents[first:end], before[first:end] - before[first]
        records = np.repeat(split.first_record[group] - starts, num_records[first:end])
        records += np.arange(len(records))
        yield _DocumentTokens(group, split.read(records)[0], np.add.reduceat(split.tokens_per_record[records], starts))
        first = end


class _HashesOfDocuments(NamedTuple):
    """Hashes, uint64, of sequences of consecutive token ids, and the document of each hash."""

    hashes: np.ndarray
    documents: np.ndarray


def _shingle_hashes(split: Split, documents: np.ndarray) -> Iterator[_HashesOfDocuments]:
    """Yield the hashes, uint64, of all sequences of `SHINGLE` consecutive token ids, and the document of each hash."""
    for group, ids, sizes in _read_documents(split, documents, MAX_RECORDS):
        owner = np.repeat(group, sizes)
        hashes = hash_shingles(ids.astype(np.uint64))
        inside = owner[: len(hashes)] == owner[SHINGLE - 1 :]
        yield _HashesOfDocuments(hashes[inside], owner[: len(hashes)][inside])


def _document_hashes(split: Split, document: int) -> np.ndarray:
    """Return the different shingle hashes of a document, ascending."""
    return np.unique(next(_shingle_hashes(split, np.array([document])))[0])


def _lowest_hashes(split: Split, documents: np.ndarray) -> _HashesOfDocuments:
    """Return the `LOWEST_HASHES` lowest distinct hashes of each document, in one sorted array, and their documents."""
    lowest = [(np.zeros(0, np.uint64), np.zeros(0, np.int64))]
    for hashes, owners in _shingle_hashes(split, documents):
        order = np.lexsort([hashes, owners])
        hashes, owners = hashes[order], owners[order]
        is_new = np.append(True, (hashes[1:] != hashes[:-1]) | (owners[1:] != owners[:-1]))[: len(hashes)]
        hashes, owners = hashes[is_new], owners[is_new]
        is_low = np.arange(len(owners)) - np.searchsorted(owners, owners) < LOWEST_HASHES
        lowest.append((hashes[is_low], owners[is_low]))
    hashes, owners = (np.concatenate(column) for column in zip(*lowest, strict=True))
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    is_rare = np.arange(len(hashes)) - np.searchsorted(hashes, hashes) < _MAX_OWNERS
    return _HashesOfDocuments(hashes[is_rare], owners[is_rare])


class _CopyCandidate(NamedTuple):
    """A held-out document, and a training document that shares many hashes with it."""

    heldout_document: int
    train_document: int


def _candidate_copy_pairs(
    train: Split, documents: np.ndarray, keys: np.ndarray, owners: np.ndarray
) -> Iterator[_CopyCandidate]:
    """Yield (held-out document, training document) pairs that share many hashes, sorted by held-out document."""
    table = np.zeros(1 << _TABLE_BITS, bool)
    shift = np.uint64(64 - _TABLE_BITS)
    table[keys >> shift] = True
    num_keys = np.bincount(owners, minlength=1)
    candidates = [np.zeros([0, 3], np.int64)]  # held-out document, -(number of shared hashes), training document
    for hashes, train_documents in _shingle_hashes(train, documents):
        may_match = table[hashes >> shift]
        first, end = (np.searchsorted(keys, hashes[may_match], side=side) for side in ("left", "right"))
        size = end - first
        matches = np.repeat(first - running_total(size)[:-1], size) + np.arange(size.sum())
        matching_documents = np.repeat(train_documents[may_match], size)
        shared = np.unique(np.stack([matching_documents, matches]), axis=1)  # a hash may occur twice in a document
        pairs, count = np.unique(np.stack([owners[shared[1]], shared[0]]), axis=1, return_counts=True)
        is_enough = count >= MIN_SHARED_FRACTION * num_keys[pairs[0]]
        candidates.append(np.stack([pairs[0], -count, pairs[1]], axis=1)[is_enough])
    rows = np.concatenate(candidates)
    rows = rows[np.lexsort(rows.T[::-1])]
    is_best = np.arange(len(rows)) - np.searchsorted(rows[:, 0], rows[:, 0]) < _MAX_COMPARED
    for heldout_document, _, train_document in rows[is_best].tolist():
        yield _CopyCandidate(heldout_document, train_document)
