"""The existing corpus of `prepare --append`, and the signatures that a corpus stores to find copies later.

A corpus keeps the signatures of its documents in `signatures.npy` and, for near copies, in `sketches.npy`. Signatures
do not depend on the tokenizer, so corpora with different tokenizers can be compared.
"""

import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.recipe import Recipe, make_cleaning_step
from bert_jax.corpus.build.corpus_writer import CONTENT, SIGNATURES, SKETCHES, BaseCorpus, ShardInfo, SignatureFiles
from bert_jax.corpus.build.dedup_decisions import Decisions, StoredSignatures, decide_copies
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.segmenters import NO_SEGMENTER
from bert_jax.corpus.build.signatures import ROW, Signatures
from bert_jax.corpus.cache import copy_corpus_to_cache
from bert_jax.corpus.manifest import MANIFEST, parse_corpus_and_snapshot, read_manifest
from bert_jax.corpus.store import load_array
from bert_jax.errors import UserError
from bert_jax.tokenizer import Tokenizer, load_tokenizer

# Settings that all documents of a corpus have in common; without a segmenter, a manifest has no entry `segmenter`.
SETTINGS = ("language", "heldout_fraction", "deduplicate", "segmenter")


class ExistingCorpus(NamedTuple):
    """The corpus that documents are added to, with its tokenizer, its recipe, and the `SETTINGS` of its documents."""

    base: BaseCorpus
    tokenizer: Tokenizer
    recipe: Recipe | None
    settings: Mapping[str, Any]

    def split_totals(self) -> list[ShardInfo]:
        """Return a `ShardInfo` for each split, whose counts are the totals of the split."""
        nouns = ("records", "documents", "sentences", "tokens")
        return [
            ShardInfo(split=split, partition=0, block=0, **{noun: entry[noun] for noun in nouns})
            for split, entry in self.base.manifest["splits"].items()
        ]

    def document_counts(self) -> DocumentCounts:
        """Return the counts over all documents of the corpus."""
        documents = self.base.manifest["documents"]
        return DocumentCounts(documents=documents["in"], rejected=documents["rejected"], **self.base.manifest["counts"])

    def copies_with_new(self, new_copies: Mapping[str, int]) -> dict[str, int]:
        """Return the number of kept copies of each kind, among the documents of the corpus and the new documents."""
        known = self.base.manifest.get("copies", {})
        return {kind: count + known.get(kind, 0) for kind, count in new_copies.items()}

    def cleaning_counts(self) -> CleaningCounts:
        """Return the counts of the cleaning of the corpus."""
        cleaning = self.base.manifest["cleaning"]
        return CleaningCounts(**{name: cleaning[name] for name in CleaningCounts().for_manifest()})


def read_existing_corpus(
    directory: pathlib.Path,
    tokenizer_directory: str | os.PathLike[str] | None,
    options: Mapping[str, Any],
    recipe: Recipe | None,
) -> ExistingCorpus:
    """Return the corpus to which documents are added; check that the arguments agree with the corpus.

    Args:
        directory: directory of the corpus.
        tokenizer_directory: directory of a tokenizer, which must equal the tokenizer of the corpus; None: no check.
        options: values of `SETTINGS` by name; an option that the user did not give is missing or None.
        recipe: a recipe, which must agree with the recipe of the corpus; None: the recipe of the corpus is used.

    Raises:
        UserError: the directory has no corpus, or an argument contradicts the corpus.
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
        raise UserError(f"--tokenizer {tokenizer_directory}: not the tokenizer of {directory}; leave the option out")
    cleaning = manifest.get("cleaning", {})
    rules, against = cleaning.get("rules"), tuple(cleaning.get("against", ()))
    if recipe:
        recipe_rules = json.loads(json.dumps(recipe.for_manifest()["rules"]))
        if rules is None or list(recipe_rules.items()) != list(rules.items()) or recipe.against != against:
            preparation = "with other rules" if cleaning else "without cleaning"
            raise UserError(f"--clean {recipe.name}: {directory} was prepared {preparation}; leave the option out")
        if recipe.deduplicate not in ("none", settings["deduplicate"]):
            raise UserError(
                f"--clean {recipe.name}: deduplicate = {recipe.deduplicate}, but {directory} was prepared with "
                f"{settings['deduplicate']}; leave the option out"
            )
    if rules is not None:
        name = str(directory / MANIFEST)
        steps = tuple(make_cleaning_step(name, rule, parameters) for rule, parameters in rules.items())
        recipe = Recipe(name, steps, settings["deduplicate"], against)
    return ExistingCorpus(BaseCorpus(directory, manifest), tokenizer, recipe, settings)


def signature_files_of_kept_documents(
    blocks: Sequence[Signatures], decisions: Decisions, keep_sketches: bool
) -> SignatureFiles:
    """Return the files of signatures that a corpus keeps for its documents.

    Args:
        blocks: signatures of all documents that were read, in the order of the decisions.
        decisions: decisions about the documents in `blocks`.
        keep_sketches: True to keep all signatures, by which near copies are found; otherwise the files have only the
            hashes of normal forms.
    """
    if not keep_sketches:
        hashes = (
            block.rows[["equal", "begins"]].astype(CONTENT)
            for block in _signatures_of_kept_documents(blocks, decisions)
        )
        return {SIGNATURES: (CONTENT, hashes)}
    return {
        SIGNATURES: (ROW, (block.rows for block in _signatures_of_kept_documents(blocks, decisions))),
        SKETCHES: (np.dtype("<u4"), (block.sketches for block in _signatures_of_kept_documents(blocks, decisions))),
    }


def _signatures_of_kept_documents(blocks: Sequence[Signatures], decisions: Decisions) -> Iterator[Signatures]:
    """Yield the signatures of the kept documents; their split hashes come from the decisions."""
    last = int(decisions.partitions[0]) - 1
    for block in blocks:
        document = last + np.cumsum(block.rows["begins"])
        last = int(document[-1]) if len(document) else last
        is_kept = (decisions.copy_of[document] < 0) & block.rows["has_text"]
        rows = np.array(block.rows)
        rows["split"] = decisions.split_hashes[document]
        yield Signatures(rows[is_kept], block.sketches[np.repeat(is_kept, rows["sketch"])])


def read_stored_signatures(directory: str | os.PathLike[str], manifest: Mapping[str, Any]) -> StoredSignatures:
    """Return the signatures of all documents of a corpus, mapped into memory.

    Bands and sketches are empty for documents whose sketches were not kept.

    Raises:
        UserError: a file of signatures is damaged.
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


def open_signatures(corpus: str, near: bool = False) -> StoredSignatures:
    """Return the signatures of all documents of a corpus, or of a snapshot CORPUS@FINGERPRINT.

    `corpus` is a directory or a URL. The signatures at a URL are copied into the cache.

    Raises:
        UserError: `copy_corpus_to_cache`, `read_manifest` or `read_stored_signatures` raises it, or `near` is True and
            the corpus was prepared without `--deduplicate near`.
    """
    path, snapshot = parse_corpus_and_snapshot(corpus)
    if "://" in path:
        directory = copy_corpus_to_cache(path, snapshot=snapshot, only_signatures=True)
    else:
        directory = pathlib.Path(path)
    manifest = read_manifest(directory, snapshot)
    if near and manifest["settings"]["deduplicate"] != "near":
        raise UserError(
            f"{path}: prepared without --deduplicate near, so near copies of its documents cannot be found; "
            'prepare it again with --deduplicate near, or search with deduplicate = "exact"'
        )
    return read_stored_signatures(directory, manifest)


class CorpusComparison(NamedTuple):
    """The number of documents of a corpus, and how many are copies of documents of a reference corpus.

    `near` is None (unknown) if one of the corpora was prepared without `--deduplicate near`.
    """

    documents: int
    exact: int
    near: int | None


def compare_corpora(corpus: str, reference: str) -> CorpusComparison:
    """Count the documents of a corpus that repeat a document of the corpus `reference`.

    Args:
        corpus, reference: directories or URLs of corpora; CORPUS@FINGERPRINT is an older snapshot, named by the
            beginning of its fingerprint.

    Raises:
        UserError: `read_manifest` or `read_stored_signatures` raises it.
    """
    blocks, stored = open_signatures(corpus).blocks, open_signatures(reference)
    near = all(any(block.rows["bands"].any() for block in both) for both in (blocks, stored.blocks))
    decisions = decide_copies(blocks, [0] * len(blocks), near, {reference: stored._replace(heldout_fraction=0)})
    first = int(decisions.partitions[0])
    copy_of, exact = decisions.copy_of[first:], decisions.exact[first:]
    repeats_reference = (copy_of >= 0) & (copy_of < first)
    num_near = int((repeats_reference & ~exact).sum()) if near else None
    return CorpusComparison(len(copy_of), int((repeats_reference & exact).sum()), num_near)


def format_comparison(comparison: CorpusComparison, corpus: str, reference: str) -> str:
    """Return a line about the comparison of a corpus with a reference corpus."""
    num_documents = max(1, comparison.documents)
    near = "near copies are not known, as one corpus was prepared without --deduplicate near"
    if comparison.near is not None:
        near = f"{comparison.near:,} are near copies ({comparison.near / num_documents:.2%})"
    return (
        f"{corpus}: of {comparison.documents:,} documents {comparison.exact:,} are exact copies of documents of "
        f"{reference} ({comparison.exact / num_documents:.2%}); {near}"
    )
