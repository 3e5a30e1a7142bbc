"""The signatures of the documents of a corpus, in its files `signatures.npy` and, of near copies, `sketches.npy`."""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.manifest import read_manifest, split_snapshot
from bert_jax.data.preparation import corpus_writer
from bert_jax.data.preparation.corpus_writer import CONTENT, SIGNATURES
from bert_jax.data.preparation.duplicates.decisions import NEAR_COPIES, Decisions, Stored
from bert_jax.data.preparation.duplicates.signatures import ROW, Signatures
from bert_jax.errors import UserError
from bert_jax.files import sha256_of

SKETCHES = "sketches.npy"


def kept_signatures(found: Sequence[Signatures], decisions: Decisions, near: bool) -> corpus_writer.Signatures:
    """Return what a corpus keeps of the signatures of its documents.

    Args:
        found: of all documents that were read, as the decisions count them.
        decisions: about them.
        near: whether near copies are found; otherwise only the hashes of normal forms are kept.
    """
    if not near:
        return {
            SIGNATURES: (CONTENT, (rows[["equal", "begins"]].astype(CONTENT) for rows, _ in _kept(found, decisions)))
        }
    return {
        SIGNATURES: (ROW, (rows for rows, _ in _kept(found, decisions))),
        SKETCHES: (np.dtype("<u4"), (sketches for _, sketches in _kept(found, decisions))),
    }


def _kept(found: Sequence[Signatures], decisions: Decisions) -> Iterator[Signatures]:
    """Yield the signatures of the documents that are kept, with the hash by which each was put in a split."""
    before = int(decisions.partitions[0]) - 1
    for block in found:
        number = before + np.cumsum(block.rows["begins"])
        before = int(number[-1]) if len(number) else before
        kept = (decisions.copy_of[number] < 0) & block.rows["has_text"]
        rows = np.array(block.rows)
        rows["split"] = decisions.split_hashes[number]
        yield Signatures(rows[kept], block.sketches[np.repeat(kept, rows["sketch"])])


def stored_signatures(directory: str | os.PathLike[str], manifest: Mapping[str, Any]) -> Stored:
    """Return the signatures of all documents of a corpus, mapped into memory; bands and sketches of near copies alone.

    Raises:
        UserError: the corpus keeps none, or its files are damaged.
    """
    if "signatures" not in manifest:
        raise UserError(
            f"{directory}: prepared by a version of bert_jax that kept no signatures of documents; prepare it again"
        )
    arrays = {one["name"]: _read(pathlib.Path(directory), one) for one in manifest["signatures"]}
    found = []
    for name, rows in arrays.items():
        if rows.dtype == ROW:
            found.append(Signatures(rows, arrays[name.replace("signatures", "sketches", 1)]))
        elif rows.dtype == CONTENT:
            full = np.zeros(len(rows), ROW)
            full["equal"], full["begins"], full["has_text"] = rows["equal"], rows["begins"], True
            found.append(Signatures(full, np.zeros(0, "<u4")))
    return Stored(found, manifest["settings"]["heldout_fraction"])


def named_signatures(place: str, near: bool = False) -> Stored:
    """Return the `stored_signatures` of a corpus, or of a snapshot of it, CORPUS@FINGERPRINT.

    Raises:
        UserError: as `read_manifest` and `stored_signatures`; `near`, and the corpus keeps none of near copies.
    """
    directory, snapshot = split_snapshot(place)
    manifest = read_manifest(pathlib.Path(directory), snapshot)
    if near and not NEAR_COPIES.get(manifest["settings"]["deduplicate"], False):
        raise UserError(
            f"{directory}: prepared without --deduplicate near, so near copies of its documents cannot be found; "
            'prepare it again with that, or search with deduplicate = "exact"'
        )
    return stored_signatures(directory, manifest)


def _read(directory: pathlib.Path, entry: Mapping[str, str]) -> np.ndarray:
    path = directory / entry["name"]
    try:
        if sha256_of(path) == entry["sha256"]:
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); copy or prepare the corpus again") from None
    raise UserError(f"{path}: digest differs from the manifest; copy or prepare the corpus again")
