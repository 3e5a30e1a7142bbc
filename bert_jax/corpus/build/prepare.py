"""Documents -> corpus on this machine: on all cores, in bounded memory; resumes where it was killed."""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from bert_jax import __version__
from bert_jax.corpus import store as corpus
from bert_jax.corpus import manifest
from bert_jax import readers as sources
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build import encoding
from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.chunk import sum_counts as sum_cleaning
from bert_jax.corpus.build.cleaning.recipe import Recipe
from bert_jax.corpus.build.cleaning.recipe import read_recipe
from bert_jax.corpus.build.cleaning.stage import Cleaned
from bert_jax.corpus.build.cleaning.stage import clean_documents
from bert_jax.corpus.build.cleaning.stage import copy_removed
from bert_jax.corpus.build.cleaning.stage import num_passes
from bert_jax.corpus.build.cleaning.stage import pass_reports
from bert_jax.corpus.build.corpus_writer import Base
from bert_jax.corpus.build.corpus_writer import ShardWriter
from bert_jax.corpus.build.corpus_writer import token_dtype
from bert_jax.corpus.build.dedup_decisions import DEDUPLICATION
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES
from bert_jax.corpus.build.dedup_decisions import THRESHOLD
from bert_jax.corpus.build.dedup_decisions import TOGETHER
from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.corpus.build.normal_form import SPLIT_CHARACTERS
from bert_jax.corpus.build.dedup_pass import removed_file
from bert_jax.corpus.build.dedup_pass import write_removed
from bert_jax.corpus.build.dedup_pass import find_copies
from bert_jax.corpus.build.dedup_signatures import BANDS
from bert_jax.corpus.build.dedup_signatures import ROWS
from bert_jax.corpus.build.dedup_signatures import SHINGLE
from bert_jax.corpus.build.dedup_signatures import SKETCH
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.encoding import EncodedChunk
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.encoding import encode_chunk
from bert_jax.corpus.build.encoding import sum_counts
from bert_jax.corpus.build.append import read_existing
from bert_jax.corpus.build.append import kept_signatures
from bert_jax.corpus.build.append import named_signatures
from bert_jax.corpus.build.append import stored_signatures
from bert_jax.corpus.build.languages import check_language
from bert_jax.corpus.build.segmenters import check_segmenter
from bert_jax.corpus.build.segmenters import description
from bert_jax.corpus.build.summary import TooManyRejectedUserError
from bert_jax.corpus.build.summary import check_rejected
from bert_jax.corpus.build.summary import format_summary
from bert_jax.corpus.build.summary import summarize
from bert_jax.corpus.build.staging import Block
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.corpus.build.workers import map_chunks
from bert_jax.readers import ReadOptions
from bert_jax.readers import documents
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer import load_tokenizer
from bert_jax.errors import UserError

__all__ = ["check_settings", "format_summary", "prepare"]

LIBRARIES = ("array_record", "sentencex", "tokenizers")  # another version may produce other bytes

Progress = Callable[[int, int, int], None]


def prepare(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    workers: int | None = None,
    heldout_fraction: float | None = None,
    language: str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
    deduplicate: str | None = None,
    keep_removed: str | os.PathLike[str] | None = None,
    max_rejected_fraction: float = PrepareSettings().max_rejected_fraction,
    clean: str | os.PathLike[str] | None = None,
    append: bool = False,
    segmenter: str | None = None,
) -> dict[str, Any]:
    """Make the corpus `output` from text, or add to it; the same input gives the same bytes for any number of workers.

    Killed or interrupted, it leaves `.NAME.incomplete` beside the output if a block of `chunks.CHUNKS_PER_BLOCK` chunks
    was finished; the same call resumes from there and produces the same bytes. A change since (an input's name, size,
    time or etag, a setting, the tokenizer, a version) makes it start over.

    Args:
        inputs, read_options: as in `sources.read_documents`.
        tokenizer_directory: for `load_tokenizer`; the tokenizer is saved in the corpus. None: that of the corpus.
        workers: number of processes that encode; None: one per core; 1: this process.
        heldout_fraction: fraction of the documents held out for evaluation, chosen by a hash of their normal form, so
            that texts that differ in white space, case and punctuation alone stay in one split; None: 0.02.
        language: ISO 639 code, of two letters where there is one, whose rules split sentences; None: English.
        progress: called with (bytes of input read, bytes in all, documents done); `deduplicate` reads the input twice.
        say: called with a line when the preparation resumes, starts over, or keeps blocks for the next call.
        deduplicate: 'exact' removes documents with the normal form of an earlier one; 'near' also removes those with
            a similarity of `decisions.THRESHOLD` to an earlier one that is kept, and puts the members of a group of
            similar documents in one split; 'none' or None removes nothing.
        keep_removed: JSON lines file for the documents that `clean` and `deduplicate` removed; for the latter, the
            input is read once more.
        max_rejected_fraction: fraction of the documents that may be rejected for a fault; more are an error.
        clean: recipe for `cleaning.recipe.read_recipe`, whose rules change or remove documents before anything else.
        append: add documents to the corpus `output`, with its tokenizer and its options, where none are given. Exact
            copies of its documents are removed and, with its `deduplicate` near, near ones. Its files stay as they are;
            until the manifest is replaced at the end, it is the corpus of before.
        segmenter: a row of SEGMENTERS, which finds the words that whole-word masking hides, and in a language without
            rules the sentences; 'none' or None: words begin as the vocabulary marks them.

    Returns:
        The manifest. `manifest['documents']` has {in, stored, rejected: {reason: n}}, where in = stored + the sum of
        rejected; `manifest['warnings']` has lines to show; with `clean`, `manifest['cleaning']` has the rules and
        {changed: {rule: n}}. Where `append` found nothing new, it is that of before, and `manifest['unchanged']` has
        {in, rejected} of what was read.

    Raises:
        UserError: bad input, tokenizer or output; no training document; too many rejected documents; `append` with
            options that contradict the corpus.
    """
    recipe = None if clean is None else read_recipe(clean)
    given: dict[str, Any] = {"language": language, "heldout_fraction": heldout_fraction, "deduplicate": deduplicate}
    given["segmenter"] = segmenter
    settings = PrepareSettings(read_options, max_rejected_fraction=max_rejected_fraction)
    existing = None
    if append:
        existing = read_existing(pathlib.Path(output), tokenizer_directory, settings, given, recipe)
        tokenizer, settings, recipe = existing.tokenizer, existing.settings, existing.recipe
        check_settings(settings)
    else:
        asked = {name: value for name, value in given.items() if value is not None}
        settings = settings._replace(**asked)
        settings = settings._replace(deduplicate=deduplication(settings.deduplicate, recipe))
        check_settings(settings)
        if tokenizer_directory is None:
            raise UserError("no tokenizer: give --tokenizer DIR, made by `bert-jax tokenizer`")
        tokenizer = load_tokenizer(tokenizer_directory)
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    files = sources.find_files(inputs, read_options, say)
    sources.check_read_options(files, read_options)
    sizes = [sources.total_bytes([path]) for path in files]
    partitions = chunks.plan_partitions(files, sizes)
    removing, all_bytes = append or settings.deduplicate in NEAR_COPIES, sum(sizes)
    base = existing and existing.base
    near = NEAR_COPIES.get(settings.deduplicate, False)
    stored = {"": stored_signatures(base.directory, base.manifest)} if base else {}
    stored |= {place: named_signatures(place, near) for place in (recipe.against if recipe else ())}
    if keep_removed is not None and not removing and recipe is None:
        raise UserError("--keep_removed: nothing is removed; give --deduplicate exact or near, or --clean")
    reports = pass_reports(progress, all_bytes, 1 + removing + (num_passes(recipe) if recipe else 0))
    with (
        removed_file(keep_removed) as removed,
        UnfinishedCorpus(
            output, identity(files, sizes, tokenizer, settings, recipe, keep_removed is not None, base), say, base
        ) as unfinished,
    ):
        cleaned = decisions = None
        if recipe:
            cleaned = clean_documents(
                unfinished.cleaned, unfinished.lines, partitions, recipe, settings, workers, reports, all_bytes
            )
            partitions = cleaned.partitions
        bytes_left = cleaned.bytes_kept if cleaned else all_bytes
        if removing:
            report = reports(bytes_left)
            decisions = find_copies(unfinished.first_pass, partitions, tokenizer, settings, workers, report, stored)
        todo = (
            chunk
            for partition in partitions
            if not unfinished.is_finished(partition.number)
            for chunk in chunks.read_chunks(partition, tokenizer, settings, decisions)
            if (chunk.partition, chunk.block) not in unfinished.blocks
        )
        before = sum(block.counts.documents for block in unfinished.blocks.values())
        work = functools.partial(encode_chunk, tokenizer=tokenizer, settings=settings)
        with contextlib.closing(map_chunks(todo, work, workers)) as encoded:
            for _, results in itertools.groupby(_report(encoded, before, reports(bytes_left)), _block_of):
                unfinished.add(_write_block(results, unfinished))
        blocks = unfinished.blocks.values()
        shards = [shard for block in blocks for shard in block.shards]
        cleaning_counts = [cleaned.counts] if cleaned else []
        counts = sum_counts([*map(removed_counts, cleaning_counts), *(block.counts for block in blocks)])
        if existing:
            check_rejected(counts.rejected, counts.documents, counts.fields, settings)
            if not shards:
                _write_removed(removed, cleaned, decisions, partitions, read_options, output)
                unfinished.discard()
                return {
                    **existing.base.manifest,
                    "unchanged": {"in": counts.documents, "rejected": dict(counts.rejected)},
                }
            settings = settings._replace(max_rejected_fraction=1)  # of the new documents, as checked
            shards, counts = [*existing.shards(), *shards], sum_counts([existing.counts(), counts])
            cleaning_counts += [existing.cleaning_counts()] if cleaned else []
        try:
            summary = summarize(tokenizer, settings, shards, counts)
        except TooManyRejectedUserError:
            raise  # the same command may allow it, and needs no more work
        except UserError:
            unfinished.discard()
            raise
        if recipe:
            summary["cleaning"] = {**recipe.description(), **sum_cleaning(cleaning_counts).description()}
        _write_removed(removed, cleaned, decisions, partitions, read_options, output)
        signatures = None
        if decisions:
            signatures = kept_signatures(unfinished.first_pass.open_all(), decisions, near)
        return unfinished.publish(tokenizer, token_dtype(tokenizer.vocab_size), summary, signatures)


def check_settings(settings: PrepareSettings) -> None:
    """Raise UserError for a fraction out of range, an unknown name, and for what cannot be a language code."""
    check_language(settings.language)
    if not 0 <= settings.heldout_fraction < 1:
        raise UserError(f"--heldout_fraction {settings.heldout_fraction}: give a fraction from 0 to below 1")
    if not 0 <= settings.max_rejected_fraction <= 1:
        raise UserError(f"--max_rejected_fraction {settings.max_rejected_fraction}: give a fraction from 0 to 1")
    if settings.deduplicate not in DEDUPLICATION:
        raise UserError(f"--deduplicate {settings.deduplicate}: give one of {', '.join(DEDUPLICATION)}")
    check_segmenter(settings.segmenter, settings.language)


def deduplication(deduplicate: str, recipe: Recipe | None) -> str:
    """Return what is asked for by the option or by the recipe."""
    asked = {deduplicate, recipe.deduplicate if recipe else "none"} - {"none"}
    if recipe and len(asked) > 1:
        raise UserError(f"--deduplicate {deduplicate}: {recipe.name} has {recipe.deduplicate}; leave one of them out")
    return next(iter(asked), "none")


def _write_removed(
    removed: pathlib.Path | None,
    cleaned: Cleaned | None,
    decisions: Decisions | None,
    partitions: Sequence[chunks.Partition],
    read_options: ReadOptions,
    output: str | os.PathLike[str],
) -> None:
    """Write the documents that were removed, where they are asked for."""
    if removed and cleaned:
        copy_removed(removed, cleaned.removed)
    if removed and decisions:
        write_removed(removed, partitions, read_options, decisions, os.fspath(output))


def removed_counts(counts: CleaningCounts) -> DocumentCounts:
    """Return the documents that a cleaning did not keep, as counts of a block."""
    return DocumentCounts(sum(counts.rejected.values()), counts.rejected, fields=counts.fields)


def _block_of(result: tuple[Chunk, EncodedChunk]) -> tuple[int, int]:
    return result[0].partition, result[0].block


def _report(
    results: Iterator[tuple[Chunk, EncodedChunk]], num_documents: int, report: Callable[[int, int], None]
) -> Iterator[tuple[Chunk, EncodedChunk]]:
    """Yield the same results, and report each after it was used."""
    for chunk, encoded in results:
        yield chunk, encoded
        num_documents += encoded.counts.documents
        report(chunk.bytes_read, num_documents)


def _write_block(results: Iterator[tuple[Chunk, EncodedChunk]], unfinished: UnfinishedCorpus) -> Block:
    """Write the shards of a block as its chunks arrive."""
    writers: dict[str, ShardWriter] = {}
    counts = DocumentCounts()
    with contextlib.ExitStack() as stack:
        for chunk, encoded in results:
            counts = sum_counts([counts, encoded.counts])
            with unfinished.writing():
                for split, packed in encoded.splits.items():
                    if split not in writers:
                        writer = ShardWriter(unfinished.directory, split, chunk.partition, chunk.block)
                        writers[split] = stack.enter_context(writer)
                    writers[split].write(packed)
        with unfinished.writing():
            shards = tuple(writer.close() for writer in writers.values())
    return Block(chunk.partition, chunk.block, chunk.last, shards, counts)


def identity(
    files: Sequence[str],
    sizes: Sequence[int],
    tokenizer: Tokenizer | None,
    settings: PrepareSettings,
    recipe: Recipe | None,
    keep_removed: bool,
    base: Base | None = None,
) -> dict[str, Any]:
    """Return everything that the bytes of shards depend on, by the names that messages use."""
    inputs = hashlib.sha256()
    for path, size in zip(files, sizes, strict=True):
        name = os.path.abspath(path) if os.path.exists(path) else path
        inputs.update(json.dumps([name, size, sources.input_version(path)]).encode())
    reading = settings.read_options._replace(max_unpacked_bytes=0)  # a refused input may be resumed with more
    return {
        "the input": inputs.hexdigest(),
        "the corpus": base and base.manifest["fingerprint"],
        "the tokenizer": tokenizer and tokenizer.sha256,
        "the cleaning": recipe and [recipe.identity(), keep_removed],
        "the settings": [*reading, settings.language, settings.heldout_fraction, settings.deduplicate],
        "the segmenter": description(settings.segmenter),
        "the program": {
            "versions": [sys.version, __version__, *map(metadata.version, LIBRARIES)],
            "format": [manifest.FORMAT_VERSION, corpus.MAX_RECORD, corpus.MAX_SENTENCE, encoding.WINDOW],
            "counts": [encoding.UNKNOWN_READ, encoding.CHANGED_READ],
            "pieces": [documents.MAX_UNSPLIT_BYTES, documents.MAX_PIECE_BYTES],
            "copies": [SPLIT_CHARACTERS, SHINGLE, BANDS, ROWS, SKETCH, THRESHOLD, TOGETHER],
            "chunks": [chunks.PARTITION_BYTES, chunks.CHUNK_BYTES, chunks.CHUNKS_PER_BLOCK],
        },
    }
