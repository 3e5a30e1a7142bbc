"""The plan of a preparation, which is checked before the work begins: settings, inputs, identity."""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from types import MappingProxyType
from typing import Any, TypedDict

from bert_jax import __version__, readers
from bert_jax.corpus import manifest, store
from bert_jax.corpus.build import chunks, encoding, sentences
from bert_jax.corpus.build import dedup_decisions as dedup
from bert_jax.corpus.build import signatures as hashes
from bert_jax.corpus.build.cleaning.recipe import Recipe
from bert_jax.corpus.build.corpus_writer import BaseCorpus
from bert_jax.corpus.build.dedup_decisions import StoredSignatures
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.segmenters import NO_SEGMENTER, check_segmenter, segmenter_manifest
from bert_jax.corpus.languages import check_language
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, documents
from bert_jax.tokenizer import Tokenizer

LIBRARIES = ("array_record", "sentencex", "tokenizers")  # other versions of these packages may produce other bytes


class PrepareOptions(TypedDict, total=False):
    """The options of a preparation. Without a value, an option has its default or, in an append, the corpus's value.

    Keys:
        heldout_fraction: fraction of the documents that are held out for evaluation; default: 0.02. A hash of a
            document's normal form chooses its split, so texts that differ only in white space, case and punctuation are
            in the same split.
        language: ISO 639 code (with two letters if possible) of the language whose rules split sentences; default:
            English.
        segmenter: a key of SEGMENTERS. The segmenter finds words for whole-word masking and, in a language without
            rules, the sentences. With the default, 'none', the vocabulary marks the words.
        deduplicate: 'split' removes no document and puts each group of similar documents in one split; 'exact' removes
            documents with the normal form of an earlier document; 'near' also removes documents with a similarity of
            `dedup_decisions.THRESHOLD` to an earlier kept document, and puts a group of similar documents in one
            split; 'none' does not compare documents; default: 'split'.
        max_rejected_fraction: maximum fraction of the documents that are rejected for a fault; a higher fraction is an
            error; default: 0.1.
    """

    heldout_fraction: float | None
    language: str | None
    segmenter: str | None
    deduplicate: str | None
    max_rejected_fraction: float | None


@dataclasses.dataclass(frozen=True)
class PlannedInputs:
    """The files of the input, their sizes in bytes, the sum of the sizes, and the partitions."""

    files: Sequence[str]
    sizes: Sequence[int]
    num_bytes: int
    partitions: Sequence[chunks.Partition]


def make_settings(read_options: ReadOptions, options: Mapping[str, Any], recipe: Recipe | None) -> PrepareSettings:
    """Return the settings of a preparation, from the options that are not None and the recipe's search for copies.

    Raises:
        UserError: a fraction out of range, an unknown name, an impossible language code, a missing package, or a search
            for copies that contradicts the recipe.
    """
    given = {name: value for name, value in options.items() if value is not None}
    settings = PrepareSettings(read_options=read_options, **given)
    if recipe and recipe.deduplicate != "none":
        if given.get("deduplicate", recipe.deduplicate) != recipe.deduplicate:
            raise UserError(
                f"--deduplicate {settings.deduplicate}: {recipe.name} has {recipe.deduplicate}; leave one of them out"
            )
        settings = dataclasses.replace(settings, deduplicate=recipe.deduplicate)
    check_language(settings.language)
    if not 0 <= settings.heldout_fraction < 1:
        raise UserError(f"--heldout_fraction {settings.heldout_fraction}: give a fraction from 0 to below 1")
    if not 0 <= settings.max_rejected_fraction <= 1:
        raise UserError(f"--max_rejected_fraction {settings.max_rejected_fraction}: give a fraction from 0 to 1")
    if settings.deduplicate not in dedup.REMOVED_COPIES:
        raise UserError(f"--deduplicate {settings.deduplicate}: give one of {', '.join(dedup.REMOVED_COPIES)}")
    if settings.segmenter != NO_SEGMENTER:
        check_segmenter(settings.segmenter, settings.language)
    return settings


def plan_inputs(inputs: Sequence[str], read_options: ReadOptions, say: Callable[[str], None]) -> PlannedInputs:
    """Return the files that the inputs name, and their partitions.

    Raises:
        UserError: `readers.find_files` or `readers.check_read_options` raises it.
    """
    files = readers.find_files(inputs, read_options, say)
    readers.check_read_options(files, read_options)
    sizes = [readers.total_bytes([path]) for path in files]
    return PlannedInputs(files, sizes, sum(sizes), chunks.plan_partitions(files, sizes))


def resolve_num_workers(workers: int | None) -> int:
    """Return the number of worker processes, by default one per core; raise UserError for a number below 1."""
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    return workers


def preparation_identity(
    inputs: PlannedInputs,
    tokenizer: Tokenizer | None,
    settings: PrepareSettings,
    recipe: Recipe | None = None,
    against: Mapping[str, StoredSignatures] = MappingProxyType({}),
    keeps_removed: bool = False,
    base: BaseCorpus | None = None,
) -> dict[str, Any]:
    """Return everything that the bytes of shards depend on, keyed by the names that messages use.

    Args:
        inputs: planned files with their sizes; times or etags are read from the files.
        tokenizer, settings, recipe: tokenizer, settings and recipe of the preparation.
        against: signatures of the corpora that the recipe names.
        keeps_removed: True if removed documents are written to a file.
        base: the corpus that documents are added to.
    """
    content = hashlib.sha256()
    for path, size in zip(inputs.files, inputs.sizes, strict=True):
        name = os.path.abspath(path) if os.path.exists(path) else path
        content.update(json.dumps([name, size, readers.input_version(path)]).encode())
    # `max_unpacked_bytes` is left out, so that a call with a higher limit resumes a preparation that refused an input.
    reading = dataclasses.replace(settings.read_options, max_unpacked_bytes=0)
    return {
        "the input": content.hexdigest(),
        "the corpus": base and base.manifest["fingerprint"],
        "the tokenizer": tokenizer and tokenizer.sha256,
        "the cleaning": recipe and [recipe.identity([c.fingerprint for c in against.values()]), keeps_removed],
        "the settings": [*vars(reading).values(), settings.language, settings.heldout_fraction, settings.deduplicate],
        "the segmenter": segmenter_manifest(settings.segmenter),
        "the program": {
            "versions": [sys.version, __version__, *map(metadata.version, LIBRARIES)],
            "format": [manifest.FORMAT_VERSION, store.MAX_RECORD, store.MAX_SENTENCE, sentences.WINDOW],
            "counts": [encoding.UNKNOWN_READ, encoding.CHANGED_READ],
            "pieces": [documents.MAX_UNSPLIT_BYTES, documents.MAX_PIECE_BYTES],
            "copies": [
                *(hashes.SPLIT_CHARACTERS, hashes.SHINGLE, hashes.BANDS, hashes.ROWS, hashes.SKETCH),
                *(dedup.THRESHOLD, dedup.SAME_SPLIT_SIMILARITY),
            ],
            "chunks": [chunks.PARTITION_BYTES, chunks.CHUNK_BYTES, chunks.CHUNKS_PER_BLOCK],
        },
    }
