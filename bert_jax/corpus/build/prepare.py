"""Documents -> corpus on this machine: on all cores, in bounded memory, resumable after a kill."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from bert_jax.corpus.build.append import (
    open_signatures,
    read_existing_corpus,
    read_stored_signatures,
    signature_files_of_kept_documents,
)
from bert_jax.corpus.build.chunks import read_chunks
from bert_jax.corpus.build.cleaning.chunk import sum_cleaning_counts
from bert_jax.corpus.build.cleaning.recipe import read_recipe_if_given
from bert_jax.corpus.build.cleaning.stage import append_removed_documents, clean_documents, num_cleaning_passes
from bert_jax.corpus.build.corpus_writer import ShardInfo, ShardWriter, assemble_corpus_from_shards, token_dtype
from bert_jax.corpus.build.dedup_decisions import REMOVED_COPIES, searches_copies, searches_near_copies
from bert_jax.corpus.build.dedup_pass import append_removed_copies, find_copies, load_signatures, removed_documents_file
from bert_jax.corpus.build.encoding import Chunk, DocumentCounts, EncodedChunk, encode_chunk, sum_document_counts
from bert_jax.corpus.build.passes import BlockKey, PassProgress, ShowProgress, map_blocks
from bert_jax.corpus.build.plan import (
    PrepareOptions,
    make_settings,
    plan_inputs,
    preparation_identity,
    resolve_num_workers,
)
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.corpus.build.summary import (
    TooManyRejectedUserError,
    check_rejected_fraction,
    format_summary,
    summarize_corpus,
)
from bert_jax.errors import UserError, check_not_input
from bert_jax.files import Paths, list_paths, local_path
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import load_tokenizer, save_tokenizer

__all__ = ["format_summary", "prepare"]


def prepare(
    inputs: Paths,
    tokenizer_directory: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    *,
    clean: str | os.PathLike[str] | None = None,
    evaluation_files: Paths | None = None,
    append: bool = False,
    keep_sketches: bool = False,
    keep_removed: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: ShowProgress | None = None,
    say: Callable[[str], None] = lambda line: None,
    **options: Unpack[PrepareOptions],
) -> dict[str, Any]:
    """Make a corpus from text, or add documents to a corpus; the bytes do not depend on the number of workers.

    A killed preparation leaves `.NAME.incomplete` beside the output if a block of `chunks.CHUNKS_PER_BLOCK` chunks was
    finished; the same call resumes from there and produces the same bytes. If an input (name, size, time or etag), a
    setting, the tokenizer or a version has changed, the preparation starts over.

    Args:
        inputs: files, directories and globs; a single path is one input.
        read_options: options for reading the files.
        tokenizer_directory: argument of `load_tokenizer`; the tokenizer is saved in the corpus; None: the tokenizer of
            the corpus that documents are added to.
        output: directory of the corpus.
        clean, evaluation_files: arguments of `cleaning.recipe.read_recipe`; the rules of the recipe change or remove
            documents before all other steps.
        append: add documents to the corpus `output`, with the tokenizer and the options of the corpus. New documents
            that are exact copies of documents of the corpus are removed; near copies are also removed if the corpus was
            prepared with `deduplicate='near'`. The files of the corpus stay unchanged; readers see the old corpus until
            the manifest is replaced at the end.
        keep_sketches: with `deduplicate='split'`, keep the sketches that `deduplicate='near'` keeps. A later append
            then puts a near copy of a document into the split of the document.
        keep_removed: JSON lines file for the documents that `clean` and `deduplicate` removed. With `deduplicate`, the
            input is read once more to write the removed documents.
        workers: number of processes that encode; None: one per core; 1: only this process.
        progress: called with (bytes of input read, all bytes of input, documents done). If the preparation searches for
            copies, it reads the input once more.
        say: function that prints a line; called when the preparation resumes, starts over, or keeps finished blocks.
        options: see `PrepareOptions`.

    Returns:
        The manifest. `manifest['documents']` has {in, stored, rejected: {reason: n}}, where in = stored + the sum of
        rejected; `manifest['warnings']` has lines to show; with `clean`, `manifest['cleaning']` has the rules and
        {changed: {rule: n}}. If `append` found no new document, return the old manifest with an additional entry
        'unchanged': the counts {in, rejected} of the documents that were read.

    Raises:
        UserError: bad input, tokenizer or output; no training document; too many rejected documents; `append` with
            options that contradict the corpus.
    """
    # Plan: read recipe, settings, tokenizer and inputs, and the signatures of documents that a corpus already has.
    inputs, output = list_paths(inputs), local_path(output)
    check_not_input(output, inputs)
    recipe = read_recipe_if_given(clean, evaluation_files)
    existing = read_existing_corpus(output, tokenizer_directory, options, recipe) if append else None
    if existing:
        recipe, tokenizer = existing.recipe, existing.tokenizer
        settings = make_settings(read_options, {**options, **existing.settings}, None)
    else:
        settings = make_settings(read_options, options, recipe)
        if tokenizer_directory is None:
            raise UserError("no tokenizer: give --tokenizer DIR, made by `bert-jax tokenizer`")
        tokenizer = load_tokenizer(tokenizer_directory)
    num_workers = resolve_num_workers(workers)
    planned = plan_inputs(inputs, read_options, say)
    base = existing.base if existing else None
    removes_copies = append or bool(REMOVED_COPIES[settings.deduplicate])
    finds_copies = append or searches_copies(settings.deduplicate, settings.heldout_fraction)
    near = settings.deduplicate == "near"
    keep_sketches = near or (keep_sketches and searches_near_copies(settings.deduplicate))
    stored = {"": read_stored_signatures(base.directory, base.manifest)} if base else {}
    against = {corpus: open_signatures(corpus, near) for corpus in (recipe.against if recipe else ())}
    if keep_removed is not None and not removes_copies and recipe is None:
        raise UserError("--keep_removed: these options remove nothing; add --deduplicate exact or near, or --clean")
    identity = preparation_identity(planned, tokenizer, settings, recipe, against, keep_removed is not None, base)
    pass_progress = PassProgress(
        progress, planned.num_bytes, 1 + finds_copies + (num_cleaning_passes(recipe) if recipe else 0)
    )

    with (
        removed_documents_file(keep_removed, inputs, say)
        if keep_removed is not None
        else contextlib.nullcontext() as removed,
        UnfinishedCorpus(output, identity, say, base) as unfinished,
    ):
        # Clean the documents, find copies, encode the remaining documents.
        partitions, num_bytes = planned.partitions, planned.num_bytes
        cleaned = decisions = None
        if recipe:
            cleaned = clean_documents(
                unfinished.cleaned, unfinished.lines, partitions, recipe, settings, num_workers, pass_progress
            )
            partitions, num_bytes = cleaned.partitions, cleaned.num_bytes
        if finds_copies:
            pass_progress.begin_pass(num_bytes)
            decisions = find_copies(
                unfinished.signed, partitions, settings, num_workers, pass_progress, stored | against
            )
        pass_progress.begin_pass(num_bytes)
        read = functools.partial(read_chunks, tokenizer=tokenizer, settings=settings, decisions=decisions)
        work = functools.partial(encode_chunk, tokenizer=tokenizer, settings=settings)
        with contextlib.closing(map_blocks(unfinished.encoded, partitions, read, work, num_workers)) as blocks:
            for key, results in blocks:
                _write_encoded_block(key, results, unfinished, pass_progress)

        # Sum the counts; with `append`, add the counts of the corpus.
        records = unfinished.encoded.records.values()
        shards = [ShardInfo(**shard) for record in records for shard in record["shards"]]
        removed_counts = [cleaned.counts.counts_of_removed_documents()] if cleaned else []
        counts = sum_document_counts([*removed_counts, *(DocumentCounts(**record["counts"]) for record in records)])
        adds_nothing = existing is not None and not shards
        all_shards, all_counts, cleaning_counts = shards, counts, [cleaned.counts] if cleaned else []
        if existing:
            check_rejected_fraction(counts.rejected, counts.documents, counts.fields, settings)
            settings = dataclasses.replace(settings, max_rejected_fraction=1)  # the new documents are already checked
            all_shards = [*existing.split_totals(), *shards]
            all_counts = sum_document_counts([existing.document_counts(), counts])
            cleaning_counts += [existing.cleaning_counts()] if cleaned else []
        try:
            summary = {} if adds_nothing else summarize_corpus(tokenizer, settings, all_shards, all_counts)
        except UserError as error:
            if not isinstance(error, TooManyRejectedUserError):  # a repeated call would fail again
                unfinished.discard()
            raise
        if decisions and not adds_nothing:
            copies = decisions.count_kept_copies()
            summary["copies"] = existing.copies_with_new(copies) if existing else copies
        if recipe:
            summary["cleaning"] = {**recipe.for_manifest(), **sum_cleaning_counts(cleaning_counts).for_manifest()}
        if removed and cleaned:
            append_removed_documents(removed, cleaned.removed)
        if removed and decisions and removes_copies:
            append_removed_copies(removed, partitions, read_options, decisions, os.fspath(output))
        if existing and adds_nothing:
            unfinished.discard()
            return {
                **existing.base.manifest,
                "unchanged": {"in": counts.documents, "rejected": dict(counts.rejected)},
            }

        # Assemble the corpus, and rename it.
        signatures = (
            signature_files_of_kept_documents(load_signatures(unfinished.signed), decisions, keep_sketches)
            if decisions
            else None
        )
        with unfinished.publishing() as directory:
            directory.mkdir()
            if not base:
                save_tokenizer(tokenizer, directory / "tokenizer")
            dtype = token_dtype(tokenizer.vocab_size)
            return assemble_corpus_from_shards(
                unfinished.encoded.directory, directory, shards, dtype, summary, signatures, base
            )


def _write_encoded_block(
    key: BlockKey,
    results: Iterator[tuple[Chunk, EncodedChunk]],
    unfinished: UnfinishedCorpus,
    progress: PassProgress,
) -> None:
    """Write the shards of a block as its encoded chunks arrive, and record the block as finished."""
    encoded = unfinished.encoded
    num_before = sum(record["counts"]["documents"] for record in encoded.records.values())
    writers: dict[str, ShardWriter] = {}
    counts = DocumentCounts()
    with contextlib.ExitStack() as stack:
        for chunk, result in results:
            counts = sum_document_counts([counts, result.counts])
            with unfinished.writing():
                for split, packed in result.splits.items():
                    if split not in writers:
                        writers[split] = stack.enter_context(ShardWriter(encoded.directory, split, *key))
                    writers[split].write(packed)
            progress.report(chunk.bytes_read, num_before + counts.documents)
        with unfinished.writing():
            shards = [writer.close() for writer in writers.values()]
    digests = {shard.name: shard.sha256 for shard in shards} | {shard.rows_name: shard.rows_sha256 for shard in shards}
    encoded.finish(key, chunk.is_last, digests, shards=[vars(shard) for shard in shards], counts=vars(counts))
