"""`prepare --append`: the corpus that documents are added to, and the signatures by which copies of its documents meet.

A corpus keeps the signatures of its documents in `signatures.npy` and, of near copies, `sketches.npy`. Corpora with
different tokenizers can be compared by them.
"""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.recipe import Recipe, make_step
from bert_jax.corpus.build.corpus_writer import CONTENT, SIGNATURES, BaseCorpus, ShardInfo, SignatureFiles
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES, Decisions, StoredSignatures, decide
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.segmenters import NO_SEGMENTER
from bert_jax.corpus.build.signatures import ROW, Signatures
from bert_jax.corpus.manifest import MANIFEST, read_manifest, split_snapshot
from bert_jax.corpus.store import load_array
from bert_jax.errors import UserError
from bert_jax.tokenizer import Tokenizer, load_tokenizer

SKETCHES = "sketches.npy"
# Settings that all documents of a corpus have in common; a manifest names a segmenter where there is one.
SETTINGS = ("language", "heldout_fraction", "deduplicate", "segmenter")


class Existing(NamedTuple):
    """The corpus that documents are added to: its tokenizer, recipe, and the `SETTINGS` of its documents."""

    base: BaseCorpus
    tokenizer: Tokenizer
    recipe: Recipe | None
    settings: Mapping[str, Any]

    def shards(self) -> list[ShardInfo]:
        """Return the sums of each split as one shard."""
        nouns = ("records", "documents", "sentences", "tokens")
        return [
            ShardInfo(split=split, partition=0, block=0, **{noun: entry[noun] for noun in nouns})
            for split, entry in self.base.manifest["splits"].items()
        ]

    def counts(self) -> DocumentCounts:
        """Return the counts over its documents."""
        documents = self.base.manifest["documents"]
        return DocumentCounts(documents=documents["in"], rejected=documents["rejected"], **self.base.manifest["counts"])

    def cleaning_counts(self) -> CleaningCounts:
        """Return the counts of its cleaning."""
        cleaning = self.base.manifest["cleaning"]
        return CleaningCounts(**{name: cleaning[name] for name in CleaningCounts().for_manifest()})


def read_existing(
    directory: pathlib.Path,
    tokenizer_directory: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    recipe: Recipe | None,
) -> Existing:
    """Return the corpus in a directory that documents are added to.

    Args:
        directory: of the corpus.
        tokenizer_directory: None, or the directory of its tokenizer.
        options: name -> value of `SETTINGS`; those that the user did not give are missing or None.
        recipe: None, or the recipe that it was cleaned with.

    Raises:
        UserError: no corpus, or an argument contradicts it.
    """
    manifest = read_manifest(directory)
    settings = {name: {"segmenter": NO_SEGMENTER, **manifest["settings"]}[name] for name in SETTINGS}
    for name in SETTINGS:
        if options.get(name) not in (None, settings[name]):
            raise UserError(
                f"--{name} {options[name]}: {directory} was prepared with {settings[name]}; leave the option out"
            )
    tokenizer = load_tokenizer(directory / "tokenizer")
    if tokenizer.sha256 != manifest["tokenizer"]["sha256"]:
        raise UserError(f"{directory / 'tokenizer'}: not the tokenizer of this corpus; copy or prepare it again")
    if tokenizer_directory is not None and load_tokenizer(tokenizer_directory).sha256 != tokenizer.sha256:
        raise UserError(
            f"--tokenizer {tokenizer_directory}: {directory} was prepared with another one; leave the option out"
        )
    cleaning = manifest.get("cleaning", {})
    rules, against = cleaning.get("rules"), tuple(cleaning.get("against", ()))
    if recipe:
        recipe_rules = json.loads(json.dumps(recipe.for_manifest()["rules"]))
        if rules is None or list(recipe_rules.items()) != list(rules.items()) or recipe.against != against:
            how = "with other rules" if cleaning else "without cleaning"
            raise UserError(f"--clean {recipe.name}: {directory} was prepared {how}; leave the option out")
        if recipe.deduplicate not in ("none", settings["deduplicate"]):
            raise UserError(
                f"--clean {recipe.name}: deduplicate = {recipe.deduplicate}, but {directory} was prepared with "
                f"{settings['deduplicate']}; leave the option out"
            )
    if rules is not None:
        name = str(directory / MANIFEST)
        steps = tuple(make_step(name, rule, parameters) for rule, parameters in rules.items())
        recipe = Recipe(name, steps, settings["deduplicate"], against)
    return Existing(BaseCorpus(directory, manifest), tokenizer, recipe, settings)


def signature_files(blocks: Sequence[Signatures], decisions: Decisions, near: bool) -> SignatureFiles:
    """Return the files of signatures that a corpus keeps of its documents.

    Args:
        blocks: signatures of all documents that were read, as the decisions count them.
        decisions: about them.
        near: whether near copies are found; otherwise only the hashes of normal forms are kept.
    """
    if not near:
        hashes = (block.rows[["equal", "begins"]].astype(CONTENT) for block in _of_kept_documents(blocks, decisions))
        return {SIGNATURES: (CONTENT, hashes)}
    return {
        SIGNATURES: (ROW, (block.rows for block in _of_kept_documents(blocks, decisions))),
        SKETCHES: (np.dtype("<u4"), (block.sketches for block in _of_kept_documents(blocks, decisions))),
    }


def _of_kept_documents(blocks: Sequence[Signatures], decisions: Decisions) -> Iterator[Signatures]:
    """Yield the signatures of the documents that are kept, with the hash by which each was put in a split."""
    last = int(decisions.partitions[0]) - 1
    for block in blocks:
        document = last + np.cumsum(block.rows["begins"])
        last = int(document[-1]) if len(document) else last
        is_kept = (decisions.copy_of[document] < 0) & block.rows["has_text"]
        rows = np.array(block.rows)
        rows["split"] = decisions.split_hashes[document]
        yield Signatures(rows[is_kept], block.sketches[np.repeat(is_kept, rows["sketch"])])


def stored_signatures(directory: str | os.PathLike[str], manifest: Mapping[str, Any]) -> StoredSignatures:
    """Return the signatures of all documents of a corpus, mapped into memory; bands and sketches of near copies alone.

    Raises:
        UserError: their files are damaged.
    """
    arrays = {
        entry["name"]: load_array(pathlib.Path(directory, entry["name"]), entry["sha256"], mmap_mode="r")
        for entry in manifest["signatures"]
    }
    blocks = []
    for name, rows in arrays.items():
        if rows.dtype == ROW:
            blocks.append(Signatures(rows, arrays[name.replace("signatures", "sketches", 1)]))
        elif rows.dtype == CONTENT:
            full_rows = np.zeros(len(rows), ROW)
            full_rows["equal"], full_rows["begins"], full_rows["has_text"] = rows["equal"], rows["begins"], True
            blocks.append(Signatures(full_rows, np.zeros(0, "<u4")))
    return StoredSignatures(blocks, manifest["settings"]["heldout_fraction"], manifest["fingerprint"])


def signatures_of_corpus(corpus: str, near: bool = False) -> StoredSignatures:
    """Return the `stored_signatures` of a corpus, or of a snapshot of it, CORPUS@FINGERPRINT.

    Raises:
        UserError: as `read_manifest` and `stored_signatures`; `near`, and the corpus keeps none of near copies.
    """
    directory, snapshot = split_snapshot(corpus)
    manifest = read_manifest(pathlib.Path(directory), snapshot)
    if near and not NEAR_COPIES.get(manifest["settings"]["deduplicate"], False):
        raise UserError(
            f"{directory}: prepared without --deduplicate near, so near copies of its documents cannot be found; "
            'prepare it again with that, or search with deduplicate = "exact"'
        )
    return stored_signatures(directory, manifest)


class Comparison(NamedTuple):
    """Numbers of `documents` of a corpus that are exact and near copies of documents of another.

    `near` is None where one of them was not prepared with `--deduplicate near`, so that near copies are not known.
    """

    documents: int
    exact: int
    near: int | None


def compare_corpora(corpus: str, reference: str) -> Comparison:
    """Count the documents of a corpus that repeat a document of the corpus `reference`.

    Args:
        corpus, reference: directories, each with @ and the beginning of a fingerprint for a snapshot that is not the
            newest.

    Raises:
        UserError: as `read_manifest` and `stored_signatures`.
    """
    blocks, stored = signatures_of_corpus(corpus).blocks, signatures_of_corpus(reference)
    near = all(any(block.rows["bands"].any() for block in both) for both in (blocks, stored.blocks))
    decisions = decide(blocks, [0] * len(blocks), near, {reference: stored._replace(heldout_fraction=0)})
    first = int(decisions.partitions[0])
    copy_of, exact = decisions.copy_of[first:], decisions.exact[first:]
    repeats = (copy_of >= 0) & (copy_of < first)
    return Comparison(len(copy_of), int((repeats & exact).sum()), int((repeats & ~exact).sum()) if near else None)


def format_comparison(comparison: Comparison, corpus: str, reference: str) -> str:
    """Return a line about a comparison."""
    num_documents = max(1, comparison.documents)
    near = "near copies are not known, as one was not prepared with --deduplicate near"
    if comparison.near is not None:
        near = f"{comparison.near:,} are near copies ({comparison.near / num_documents:.2%})"
    return (
        f"{corpus}: of {comparison.documents:,} documents {comparison.exact:,} are exact copies of documents of "
        f"{reference} ({comparison.exact / num_documents:.2%}); {near}"
    )
