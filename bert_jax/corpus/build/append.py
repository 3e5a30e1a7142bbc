"""The new files of a corpus move into it, the manifest last; what is there stays as it is.

Documents of a corpus that another corpus has, too: by the signatures of both, so their tokenizers may differ.

The signatures of the documents of a corpus, in its files `signatures.npy` and, of near copies, `sketches.npy`.

The corpus that documents are added to: its options, which the new documents are prepared with, and its counts.
"""

import os
import pathlib
from bert_jax.corpus.manifest import MANIFEST
from bert_jax.corpus.build.corpus_writer import Base
from bert_jax.files import SUMS
from bert_jax.files import new_file
from bert_jax.files import sync
from bert_jax.files import write_sums
from collections.abc import Sequence
from typing import NamedTuple
from bert_jax.corpus.build import dedup_decisions as decisions
from bert_jax.corpus.build.dedup_signatures import Signatures
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
import numpy as np
from bert_jax.corpus.manifest import read_manifest
from bert_jax.corpus.manifest import split_snapshot
from bert_jax.corpus.build import corpus_writer
from bert_jax.corpus.build.corpus_writer import CONTENT
from bert_jax.corpus.build.corpus_writer import SIGNATURES
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES
from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.corpus.build.dedup_decisions import Stored
from bert_jax.corpus.build.dedup_signatures import ROW
from bert_jax.errors import UserError
from bert_jax.files import sha256_of
import json
from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.recipe import Recipe
from bert_jax.corpus.build.cleaning.recipe import make_step
from bert_jax.corpus.build.corpus_writer import ShardInfo
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.segmenters import NO_SEGMENTER
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer import load_tokenizer


def publish_append(place: pathlib.Path, base: Base) -> None:
    """Move the files in `place` into the corpus, so that it has them all or, for a reader, none.

    A kill leaves files that no manifest names, and the next append replaces or removes them.
    """
    for path in base.directory.glob(f"*.{base.number}-*-of-*.arrayrecord"):
        path.unlink()
    for path in sorted(place.iterdir()):
        if path.name != MANIFEST:
            os.replace(path, base.directory / path.name)
    with new_file(base.directory / base.kept_name, binary=True) as file:
        file.write((base.directory / MANIFEST).read_bytes())
    os.replace(place / MANIFEST, base.directory / MANIFEST)
    sync(base.directory)
    if (base.directory / SUMS).exists():
        write_sums(base.directory)


class Comparison(NamedTuple):
    """Of `documents` of a corpus so many are exact and near copies of documents of another.

    `near` is None where one of them was not prepared with `--deduplicate near`, so that near copies are not known.
    """

    documents: int
    exact: int
    near: int | None


def compare_corpora(corpus: str, other: str) -> Comparison:
    """Count the documents of a corpus that repeat a document of another one.

    Args:
        corpus, other: directories, each with @ and the beginning of a fingerprint for another snapshot than the newest.

    Raises:
        UserError: as `read_manifest` and `stored_signatures`.
    """
    own, others = named_signatures(corpus).signatures, named_signatures(other).signatures
    near = _has_bands(own) and _has_bands(others)
    found = decisions.decide(own, [0] * len(own), near, {other: decisions.Stored(others, 0)})
    first = int(found.partitions[0])
    copy_of, exact = found.copy_of[first:], found.exact[first:]
    repeats = (copy_of >= 0) & (copy_of < first)
    return Comparison(len(copy_of), int((repeats & exact).sum()), int((repeats & ~exact).sum()) if near else None)


def format_comparison(found: Comparison, corpus: str, other: str) -> str:
    """Return a line about a comparison."""
    near = "near copies are not known, as one was not prepared with --deduplicate near"
    if found.near is not None:
        near = f"{found.near:,} are near copies ({found.near / max(1, found.documents):.2%})"
    return (
        f"{corpus}: of {found.documents:,} documents {found.exact:,} are exact copies of documents of {other} "
        f"({found.exact / max(1, found.documents):.2%}); {near}"
    )


def _has_bands(signatures: Sequence[Signatures]) -> bool:
    return any(one.rows["bands"].any() for one in signatures)


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


# Settings that all documents of a corpus have in common; a manifest names a segmenter where there is one.
SETTINGS = ("language", "heldout_fraction", "deduplicate", "segmenter")


class Existing(NamedTuple):
    """A corpus and what its documents were prepared with."""

    base: Base
    tokenizer: Tokenizer
    settings: PrepareSettings
    recipe: Recipe | None

    def shards(self) -> list[ShardInfo]:
        """Return the sums of each split as one shard."""
        return [
            ShardInfo(name, 0, 0, part["records"], part["documents"], part["sentences"], part["tokens"], 0, "", "")
            for name, part in self.base.manifest["splits"].items()
        ]

    def counts(self) -> DocumentCounts:
        """Return the counts over its documents."""
        documents, counts = self.base.manifest["documents"], self.base.manifest["counts"]
        return DocumentCounts(documents["in"], documents["rejected"], **counts)

    def cleaning_counts(self) -> CleaningCounts:
        """Return the counts of its cleaning."""
        known = self.base.manifest["cleaning"]
        return CleaningCounts(**{name: known[name] for name in CleaningCounts().description()})


def read_existing(
    directory: pathlib.Path,
    tokenizer_directory: Any,
    settings: PrepareSettings,
    given: Mapping[str, Any],
    recipe: Recipe | None,
) -> Existing:
    """Return the corpus in a directory, and `settings` with the options of the corpus.

    Args:
        directory: of the corpus.
        tokenizer_directory: None, or the directory of its tokenizer.
        settings: how the new documents are read.
        given: name -> value, None where it is not given, for `SETTINGS`.
        recipe: None, or the recipe that it was cleaned with.

    Raises:
        UserError: no corpus, or what is given contradicts it.
    """
    manifest = read_manifest(directory)
    if "signatures" not in manifest:
        raise UserError(
            f"{directory}: prepared by a version of bert_jax that kept no signatures of documents, so nothing can be "
            "added; prepare it again"
        )
    known = {name: {"segmenter": NO_SEGMENTER, **manifest["settings"]}[name] for name in SETTINGS}
    for name, value in given.items():
        if value is not None and value != known[name]:
            raise UserError(f"--{name} {value}: {directory} was prepared with {known[name]}; leave the option out")
    tokenizer = load_tokenizer(directory / "tokenizer")
    if tokenizer.sha256 != manifest["tokenizer"]["sha256"]:
        raise UserError(f"{directory / 'tokenizer'}: not the tokenizer of this corpus; copy or prepare it again")
    if tokenizer_directory is not None and load_tokenizer(tokenizer_directory).sha256 != tokenizer.sha256:
        raise UserError(
            f"--tokenizer {tokenizer_directory}: {directory} was prepared with another one; leave the option out"
        )
    cleaning = manifest.get("cleaning", {})
    rules, against = cleaning.get("rules"), tuple(cleaning.get("against", ()))
    own = json.loads(json.dumps(recipe.description()["rules"])) if recipe else {}
    if recipe and (rules is None or list(own.items()) != list(rules.items()) or recipe.against != against):
        was = "with other rules" if cleaning else "without cleaning"
        raise UserError(f"--clean {recipe.name}: {directory} was prepared {was}; leave the option out")
    if recipe and recipe.deduplicate not in ("none", known["deduplicate"]):
        raise UserError(
            f"--clean {recipe.name}: deduplicate = {recipe.deduplicate}, but {directory} was prepared with "
            f"{known['deduplicate']}; leave the option out"
        )
    if rules is not None:
        name = str(directory / "manifest.json")
        recipe = Recipe(
            name, tuple(make_step(name, rule, one) for rule, one in rules.items()), known["deduplicate"], against
        )
    return Existing(Base(directory, manifest), tokenizer, settings._replace(**known), recipe)
