"""Signatures of all documents -> decisions: the documents to remove as copies, and a split hash for each document."""

import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.signatures import BANDS, SKETCH, Signatures, choose_split, jaccard_similarity
from bert_jax.errors import UserError
from bert_jax.files import new_file
from bert_jax.readers import RawDocument, storage

THRESHOLD = 0.8  # Jaccard similarity of near copies
# Minimum similarity of documents that must be in one split; lower than THRESHOLD, since similarity is an estimate.
SAME_SPLIT_SIMILARITY = 0.7
EXACT, NEAR = "exact duplicate", "near duplicate"  # reasons of rejection
# Value of `--deduplicate` -> kinds of copies that are removed.
REMOVED_COPIES: dict[str, tuple[str, ...]] = {"none": (), "split": (), "exact": (EXACT,), "near": (EXACT, NEAR)}
OF = " of "  # separates a reason of rejection from the name of the corpus that has the repeated document
# A band is a list of documents with an equal hash. A document is compared with the first document of the band, and with
# the _NEIGHBORS documents before this document. Comparisons with all documents of the band would take time quadratic in
# the number of documents with shared boilerplate.
_NEIGHBORS = 8
_SKETCHES_IN_MEMORY = 4096
_PAIRS_AT_ONCE = 1 << 16
# A larger group of similar kept documents goes to the training split, so that no template fills the held-out split.
_MAX_HELDOUT_GROUP = 100
_FORCED_SPLIT_HASH = {"heldout": 0, "train": 2**64 - 1}  # split -> hash that chooses it for every held-out fraction


def searches_near_copies(deduplicate: str) -> bool:
    """Return whether a preparation searches for near copies."""
    return deduplicate in ("split", "near")


def searches_copies(deduplicate: str, heldout_fraction: float) -> bool:
    """Return whether a preparation searches for copies, to remove them or to put similar documents in one split."""
    return bool(REMOVED_COPIES[deduplicate]) or (searches_near_copies(deduplicate) and heldout_fraction > 0)


class StoredSignatures(NamedTuple):
    """The signatures of the documents of a corpus, the held-out fraction of the corpus, and its fingerprint."""

    blocks: Sequence[Signatures]
    heldout_fraction: float
    fingerprint: str = ""


class DocumentAndHash(NamedTuple):
    """A document, and the hash that chooses its split."""

    document: RawDocument
    split_hash: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decisions:
    """The decision about each document: first the stored documents, then the documents of the input.

    Attributes:
        partitions: int64 [partitions], the index of the first document of each partition; the stored documents come
            before all partitions.
        copy_of: int64 [documents], the index of the earlier kept document that a document repeats; -1: the document is
            kept.
        exact: bool [documents], True if a document is a copy, and has the normal form of the earlier document.
        near: bool [documents], True if a document has a similarity of at least `THRESHOLD` to an earlier document that
            is no copy; the later document is kept unless near copies are removed.
        split_hashes: uint64 [documents], the `split_hash` that decides the split, equal for all documents of a group.
            Each document of a group is similar (`SAME_SPLIT_SIMILARITY`) to another document of the group.
        stored_names: str [corpora], the name of each corpus that has stored documents; "" for the corpus of an append.
        stored_before: int64 [corpora], the index of the first document of each corpus.
    """

    partitions: np.ndarray
    copy_of: np.ndarray
    exact: np.ndarray
    near: np.ndarray
    split_hashes: np.ndarray
    stored_names: np.ndarray
    stored_before: np.ndarray

    def removal_reason(self, document: int) -> str:
        """Return the reason for the removal of a document; '' for a kept document."""
        if self.copy_of[document] < 0:
            return ""
        corpus = self.corpus_of(int(self.copy_of[document]))
        return (EXACT if self.exact[document] else NEAR) + (OF + corpus if corpus else "")

    def count_kept_copies(self) -> dict[str, int]:
        """Return the number of new documents that are kept although they are exact or near copies, by kind of copy."""
        is_kept = self.copy_of[self.partitions[0] :] < 0
        return {
            kind: int((is_kept & is_copy[self.partitions[0] :]).sum())
            for kind, is_copy in ((EXACT, self.exact), (NEAR, self.near))
        }

    def corpus_of(self, document: int) -> str:
        """Return the name of the corpus of a stored document; '' for the corpus of an append and for new documents."""
        if document >= self.partitions[0]:
            return ""
        return str(self.stored_names[np.searchsorted(self.stored_before, document, side="right") - 1])

    def apply(self, partition: int, documents: Iterable[RawDocument]) -> Iterator[DocumentAndHash]:
        """Yield a partition's documents with their split hashes; a removed document has a reason instead of a text.

        Raises:
            UserError: `number_documents` raises it.
        """
        end = int([*self.partitions, len(self.copy_of)][partition + 1])
        for index, raw in number_documents(documents, int(self.partitions[partition]), end):
            reason = self.removal_reason(index)
            if not reason:
                yield DocumentAndHash(raw, int(self.split_hashes[index]))
            elif raw.piece == 0:
                yield DocumentAndHash(RawDocument(name=raw.name, rejected=reason, bytes_read=raw.bytes_read), 0)


def number_documents(documents: Iterable[RawDocument], first: int, end: int) -> Iterator[tuple[int, RawDocument]]:
    """Yield the index of each document, from `first` to `end` - 1, and the document, or each of its pieces.

    Raises:
        UserError: the number of documents differs from `end - first`, the number in the search for copies.
    """
    index, name = first - 1, "the input"
    for raw in documents:
        index, name = index + (raw.piece == 0), raw.name
        if index == end:
            break
        yield index, raw
    if index != end - 1:
        raise UserError(f"{name}: the input changed while it was read; copy it, and start again with the copy")


def save_decisions(decisions: Decisions, path: pathlib.Path) -> None:
    """Write decisions to an .npz file, completely or not at all."""
    with new_file(path, binary=True) as file:
        np.savez(file, **vars(decisions))


def load_decisions(path: str | os.PathLike[str]) -> Decisions:
    """Read decisions that `save_decisions` wrote, from a file or URL."""
    with storage.open_file(os.fspath(path)) as file, np.load(file, allow_pickle=False) as arrays:
        return Decisions(**arrays)


def decide_copies(
    signatures: Sequence[Signatures],
    partitions: Sequence[int],
    near: bool,
    stored: Mapping[str, StoredSignatures] = MappingProxyType({}),
    heldout_fraction: float = 0.0,
    removes: Collection[str] = (EXACT, NEAR),
) -> Decisions:
    """Return the decisions about all documents; the first of several copies is kept.

    Args:
        signatures: signatures of each block, in order.
        partitions: index of the partition of each block, ascending from 0 without gaps.
        near: True to search for near copies as well as exact copies, so that all copies of a document are in one split.
        stored: maps each corpus to the signatures of its documents, and these documents keep their splits. With `near`,
            a new document goes to the split of the stored documents that are similar to it. A new document is removed
            if similar stored documents are in both splits. A new document is also removed if similar stored documents
            are held out and the new documents have no held-out split.
        heldout_fraction: held-out fraction of the new documents.
        removes: kinds of copies that are removed.
    """
    num_blocks = np.cumsum([0, *(len(corpus.blocks) for corpus in stored.values())])
    rows = _DocumentRows([*itertools.chain.from_iterable(corpus.blocks for corpus in stored.values()), *signatures])
    first_stored = rows.documents_before[num_blocks]
    split_hashes = rows.column("split")
    copy_of = _find_exact_copies(rows)
    exact = copy_of >= 0
    group = np.where(exact, copy_of, np.arange(len(copy_of)))
    is_near_copy = np.zeros_like(exact)
    if near:
        splits = [  # the split of each stored document in its corpus
            choose_split(hash_of_text, corpus.heldout_fraction)
            for (first, end), corpus in zip(itertools.pairwise(first_stored), stored.values(), strict=True)
            for hash_of_text in split_hashes[first:end].tolist()
        ]
        is_near_copy = _merge_near_copies_into_groups(
            rows, copy_of, group, splits, heldout_fraction > 0, NEAR in removes
        )
        for document, split in enumerate(splits):
            if choose_split(int(split_hashes[document]), heldout_fraction) != split:
                split_hashes[document] = _FORCED_SPLIT_HASH[split]
        repeated = np.where(exact, copy_of[copy_of], -1)  # an exact copy of a near copy repeats the original
        copy_of, exact = np.where(repeated < 0, copy_of, repeated), exact & (repeated < 0)
        if NEAR not in removes:
            sizes = np.bincount(group)
            is_large = sizes > max(_MAX_HELDOUT_GROUP, heldout_fraction * len(group))
            split_hashes[: len(sizes)][is_large & (np.arange(len(sizes)) >= len(splits))] = _FORCED_SPLIT_HASH["train"]
    if EXACT not in removes:
        copy_of = np.where(exact, -1, copy_of)
    blocks_before = [num_blocks[-1] + partitions.index(index) for index in range(partitions[-1] + 1)]
    return Decisions(
        partitions=rows.documents_before[blocks_before],
        copy_of=copy_of,
        exact=exact,
        near=is_near_copy,
        split_hashes=split_hashes[group],
        stored_names=np.array([*stored], np.str_),
        stored_before=first_stored[:-1],
    )


class _BlockRow(NamedTuple):
    """The index of a block, and the index of a row in this block."""

    block: int
    row: int


class _DocumentRows:
    """The signature rows of all blocks; a document has a row for each of its pieces."""

    def __init__(self, signatures: Sequence[Signatures]):
        self._signatures = signatures
        self._first_row = np.cumsum([0, *(len(block.rows) for block in signatures)])
        begins = np.concatenate([block.rows["begins"] for block in signatures])
        self.starts = np.flatnonzero(begins)
        self.ends = np.append(self.starts[1:], len(begins))
        self.documents_before = np.searchsorted(self.starts, self._first_row[:-1])  # documents before each block
        self._offsets = [np.cumsum(np.append(0, block.rows["sketch"]).astype(np.int64)) for block in signatures]

    def column(self, name: str, band: int | None = None) -> np.ndarray:
        """Return the field `name` of the first signature row of each document; `band` selects a column of the field."""
        fields = (block.rows[name] if band is None else block.rows[name][:, band] for block in self._signatures)
        return np.concatenate(list(fields))[self.starts]

    def rows_of(self, document: int) -> Iterator[_BlockRow]:
        """Yield, for each row of a document, the index of the block and the index of the row in the block."""
        for row in range(self.starts[document], self.ends[document]):
            block = int(np.searchsorted(self._first_row, row, side="right")) - 1
            yield _BlockRow(block, row - self._first_row[block])

    def normal_form_hash(self, document: int) -> np.ndarray:
        """Return a hash of a document, uint64 [2]: the hash of the normal-form hashes of its pieces.

        Blank pieces do not count, because a corpus stores neither records nor signatures of blank pieces. The hash of a
        blank document is 0.
        """
        pieces = (self._signatures[block].rows["equal"][row] for block, row in self.rows_of(document))
        hashes: list[np.ndarray] = [piece for piece in pieces if piece.any()]
        if len(hashes) < 2:
            return hashes[0] if hashes else np.zeros(2, "<u8")
        return np.frombuffer(
            hashlib.blake2b(b"".join(piece.tobytes() for piece in hashes), digest_size=16).digest(), "<u8"
        )

    def sketch(self, document: int) -> np.ndarray:
        """Return the lowest `SKETCH` hashes of the shingles of a document, uint32, ascending."""
        sketches = []
        for block, row in self.rows_of(document):
            first, end = self._offsets[block][row : row + 2]
            sketches.append(self._signatures[block].sketches[first:end])
        return sketches[0] if len(sketches) == 1 else np.unique(np.concatenate(sketches))[:SKETCH]


def _find_exact_copies(rows: _DocumentRows) -> np.ndarray:
    """Return, for each document, the index of the first document with the same normal form, int64 [documents].

    The index is -1 if the document has no copy or no text.
    """
    hashes = rows.column("equal")
    for document in np.flatnonzero(rows.ends - rows.starts > 1).tolist():
        hashes[document] = rows.normal_form_hash(document)
    with_text = np.flatnonzero(rows.column("has_text") & hashes.any(axis=1))
    copy_of = np.full(len(hashes), -1)
    order = with_text[np.lexsort([with_text, hashes[with_text, 0], hashes[with_text, 1]])]
    first = _first_equal_index(hashes[order])
    copies = first != np.arange(len(order))
    copy_of[order[copies]] = order[first[copies]]
    return copy_of


def _first_equal_index(sorted_keys: np.ndarray) -> np.ndarray:
    """Return, for each sorted key, the index of the first equal key, int64 [keys]."""
    change = sorted_keys[1:] != sorted_keys[:-1]
    if change.ndim > 1:
        change = change.any(axis=1)
    starts = np.flatnonzero(np.append(True, change)[: len(sorted_keys)])
    return np.repeat(starts, np.diff(np.append(starts, len(sorted_keys))))


def _merge_near_copies_into_groups(
    rows: _DocumentRows,
    copy_of: np.ndarray,
    group: np.ndarray,
    stored_splits: Sequence[str],
    holds_out: bool,
    removes: bool,
) -> np.ndarray:
    """Merge, in place, groups of similar documents in `group`; with `removes`, also set `copy_of` of near copies.

    Return bool [documents], True for a document with a similarity of at least `THRESHOLD` to an earlier document that
    is no copy.
    """
    num_stored = len(stored_splits)
    alive = np.flatnonzero((copy_of < 0) & (rows.column("sketch") > 0))
    sketch = functools.lru_cache(_SKETCHES_IN_MEMORY)(rows.sketch)
    is_near_copy = np.zeros(len(group), bool)

    def first_document_of_group(document: int) -> int:
        while group[document] != document:
            document = int(group[document])
        return document

    for earlier, later in _candidate_copy_pairs(rows, alive):
        if later < num_stored or copy_of[later] >= 0:
            continue
        similarity = jaccard_similarity(sketch(earlier), sketch(later), SKETCH)
        if similarity < SAME_SPLIT_SIMILARITY:
            continue
        low, high = sorted(map(first_document_of_group, (earlier, later)))
        splits = {stored_splits[document] for document in (low, high) if document < num_stored}
        if len(splits) > 1 or ("heldout" in splits and not holds_out):
            copy_of[later] = earlier if copy_of[earlier] < 0 else low
            continue
        if similarity >= THRESHOLD and copy_of[earlier] < 0 and not is_near_copy[earlier]:
            is_near_copy[later] = True
            if removes:
                copy_of[later] = earlier
        group[high] = low
    for document in np.flatnonzero(group != np.arange(len(group))).tolist():
        group[document] = first_document_of_group(document)
    return is_near_copy


class _DocumentPair(NamedTuple):
    """The indices of two documents."""

    earlier: int
    later: int


def _candidate_copy_pairs(rows: _DocumentRows, alive: np.ndarray) -> Iterator[_DocumentPair]:
    """Yield pairs (earlier, later) of documents that share a band, sorted by the later document."""
    num_documents = len(rows.starts)
    pairs = np.zeros(0, np.int64)  # later document * num_documents + earlier document
    for band in range(BANDS):
        keys = rows.column("bands", band)[alive]
        order = np.argsort(keys, kind="stable")
        first, rank = _first_equal_index(keys[order]), np.arange(len(order))
        new_pairs = [pairs]
        for earlier in (first, *(np.maximum(rank - step, first) for step in range(1, _NEIGHBORS + 1))):
            different = earlier != rank
            new_pairs.append(alive[order[different]] * num_documents + alive[order[earlier[different]]])
        pairs = np.unique(np.concatenate(new_pairs))
    for begin in range(0, len(pairs), _PAIRS_AT_ONCE):
        for pair in pairs[begin : begin + _PAIRS_AT_ONCE].tolist():
            later, earlier = divmod(pair, num_documents)
            yield _DocumentPair(earlier, later)
