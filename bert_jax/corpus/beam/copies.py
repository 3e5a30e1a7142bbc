"""Search for copies with Beam: all workers compute signatures, and a single worker decides about the documents."""

import operator
import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

from bert_jax.corpus.beam.pipeline import beam, read_and_spread_chunks
from bert_jax.corpus.build.append import open_signatures, signature_files_of_kept_documents
from bert_jax.corpus.build.corpus_writer import write_signatures
from bert_jax.corpus.build.dedup_decisions import (
    REMOVED_COPIES,
    decide_copies,
    save_decisions,
    searches_near_copies,
)
from bert_jax.corpus.build.dedup_pass import (
    DECISIONS,
    PARTS,
    compute_chunk_signatures,
    load_signatures,
    signatures_as_bytes,
)
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.corpus.build.passes import BlockKey, FinishedBlocks
from bert_jax.corpus.build.signatures import Signatures
from bert_jax.errors import writing
from bert_jax.readers import ReadOptions, storage


def find_copies_with_beam(
    partitions: beam.PCollection, settings: PrepareSettings, against: Sequence[str], output: str, work_url: str
) -> beam.PCollection:
    """Return a Beam collection with one item: the path of the `Decisions`, and the manifest's parts about copies.

    Args:
        partitions: partitions of the documents.
        settings: how the documents are read and compared.
        against: directories or URLs of other corpora, which a worker opens.
        output: directory or URL of the corpus, to which the signatures of its documents are written.
        work_url: directory or URL for the signatures of all documents, and the decisions.
    """
    near = searches_near_copies(settings.deduplicate)
    return (
        read_and_spread_chunks(partitions, "sign", settings)
        | "sign" >> beam.Map(_keyed_chunk_signatures, settings.read_options, near).with_output_types(tuple[Any, Any])
        | "signatures of a block" >> beam.GroupByKey()
        | "write signatures" >> beam.Map(_upload_signature_block, work_url).with_output_types(tuple[str, Any])
        | "all signatures" >> beam.GroupByKey()
        | "decide" >> beam.Map(_decide_copies_and_upload, settings, against, output, work_url).with_output_types(Any)
    )


def _keyed_chunk_signatures(
    chunk: Chunk, read_options: ReadOptions, near: bool
) -> tuple[BlockKey, tuple[int, Signatures]]:
    return (chunk.partition, chunk.block), (chunk.index, compute_chunk_signatures(chunk, read_options, near))


def _upload_signature_block(
    group: tuple[BlockKey, Iterable[tuple[int, Signatures]]], work_url: str
) -> tuple[str, BlockKey]:
    """Upload the signatures of a block; return the key of the block."""
    key, chunks = group
    with tempfile.TemporaryDirectory() as directory:
        signed = FinishedBlocks(pathlib.Path(directory), lambda: writing(directory))
        signed.create_files_of_block(key, PARTS)
        for _, signatures in sorted(chunks, key=operator.itemgetter(0)):  # chunks arrive in any order
            signed.append(key, signatures_as_bytes(signatures))
        for part in PARTS:
            path = signed.path(key, part)
            storage.upload(path, f"{work_url}/{path.name}")
    return "", key


def _decide_copies_and_upload(
    group: tuple[str, Iterable[BlockKey]],
    settings: PrepareSettings,
    against: Sequence[str],
    output: str,
    work_url: str,
) -> tuple[str, tuple[list[dict[str, str]], dict[str, int]]]:
    """Download all signatures, upload decisions and kept signatures; return the item of `find_copies_with_beam`."""
    keys, near = sorted(group[1]), searches_near_copies(settings.deduplicate)
    stored = {corpus: open_signatures(corpus, near) for corpus in against}
    with tempfile.TemporaryDirectory() as directory:
        signed = FinishedBlocks(pathlib.Path(directory), lambda: writing(directory))
        for path in (signed.path(key, part) for key in keys for part in PARTS):
            storage.download(f"{work_url}/{path.name}", path)
        signed.records.update({key: {} for key in keys})
        signatures = load_signatures(signed)
        decisions = decide_copies(
            signatures,
            [partition for partition, _ in keys],
            near,
            stored,
            settings.heldout_fraction,
            REMOVED_COPIES[settings.deduplicate],
        )
        with writing(directory):
            save_decisions(decisions, signed.directory / DECISIONS)
            files = signature_files_of_kept_documents(signatures, decisions, settings.deduplicate == "near")
            entries = write_signatures(signed.directory, files)
        storage.upload(signed.directory / DECISIONS, f"{work_url}/{DECISIONS}")
        for entry in entries:
            storage.upload(os.path.join(directory, entry["name"]), f"{output}/{entry['name']}")
        return f"{work_url}/{DECISIONS}", (entries, decisions.count_kept_copies())
