"""The search for copies: a pass that signs all documents, the decisions, and a file of the removed documents."""

import contextlib
import functools
import json
import os
import pathlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from bert_jax.corpus.build.chunks import Partition, read_chunks
from bert_jax.corpus.build.cleaning.chunk import escape_non_utf8_name
from bert_jax.corpus.build.dedup_decisions import (
    EXACT,
    REMOVED_COPIES,
    Decisions,
    StoredSignatures,
    decide_copies,
    load_decisions,
    number_documents,
    save_decisions,
    searches_near_copies,
)
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.corpus.build.passes import FinishedBlocks, PassProgress, map_blocks
from bert_jax.corpus.build.signatures import ROW, Signatures, compute_document_signatures
from bert_jax.errors import UserError, writing
from bert_jax.readers import ReadOptions, to_document

ROWS, SKETCHES = "rows", "sketches"  # parts of a block
PARTS = (ROWS, SKETCHES)
DECISIONS = "decisions.npz"


def find_copies(
    signed: FinishedBlocks,
    partitions: Sequence[Partition],
    settings: PrepareSettings,
    num_workers: int,
    progress: PassProgress,
    stored: Mapping[str, StoredSignatures] = MappingProxyType({}),
) -> Decisions:
    """Return the decisions about all documents; finished blocks and decisions of a killed search are reused.

    Args:
        signed: blocks of signatures on disk.
        partitions: the whole input.
        settings: how the input is read, and which copies are removed.
        num_workers: as in `map_chunks`.
        progress: progress of the pass.
        stored: maps each corpus to the signatures of its documents. New documents that are exact copies of stored
            documents are removed with any settings.

    Raises:
        UserError: `read_chunks` or `compute_document_signatures` raises it.
    """
    path = signed.directory / DECISIONS
    if all(signed.is_finished(partition.index) for partition in partitions):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
            return load_decisions(path)
    near = searches_near_copies(settings.deduplicate)
    read = functools.partial(read_chunks, tokenizer=None, settings=settings)
    work = functools.partial(compute_chunk_signatures, read_options=settings.read_options, near=near)
    num_documents = 0
    with contextlib.closing(map_blocks(signed, partitions, read, work, num_workers)) as blocks:
        for key, results in blocks:
            signed.create_files_of_block(key, PARTS)
            for chunk, signatures in results:
                signed.append(key, signatures_as_bytes(signatures))
                num_documents += int(signatures.rows["begins"].sum())
                progress.report(chunk.bytes_read, num_documents)
            signed.finish(key, chunk.is_last)
    partition_of_block = [partition for partition, _ in signed.in_order()]
    removes = REMOVED_COPIES[settings.deduplicate] or ((EXACT,) if stored else ())
    decisions = decide_copies(
        load_signatures(signed), partition_of_block, near, stored, settings.heldout_fraction, removes
    )
    with signed.writing():
        save_decisions(decisions, path)
    return decisions


def compute_chunk_signatures(chunk: Chunk, read_options: ReadOptions, near: bool) -> Signatures:
    """Return the signatures of the documents of a chunk."""
    return compute_document_signatures(chunk.documents, read_options, near)


def signatures_as_bytes(signatures: Signatures) -> dict[str, bytes]:
    """Return the content of each part of a block of signatures."""
    return {ROWS: signatures.rows.tobytes(), SKETCHES: signatures.sketches.tobytes()}


def load_signatures(signed: FinishedBlocks) -> list[Signatures]:
    """Return the signatures of all blocks, in the order of the documents, mapped into memory."""
    return [
        Signatures(signed.load_array(key, ROWS, ROW), signed.load_array(key, SKETCHES, "<u4"))
        for key in signed.in_order()
    ]


@contextlib.contextmanager
def removed_documents_file(
    path: str | os.PathLike[str], inputs: Iterable[str], say: Callable[[str], None]
) -> Iterator[pathlib.Path]:
    """Yield the path of a temporary file, and rename the file to `path` when the context ends without an error.

    `say` gets a warning if `path` lies in a directory of `inputs` or matches a glob of `inputs`, since a later
    preparation of the inputs would read the file.

    Raises:
        UserError: `path` exists.
    """
    final = pathlib.Path(path)
    if final.exists():
        raise UserError(f"{final}: exists already; remove it or choose another --keep_removed")
    for item in inputs:
        if _is_read_with(final.resolve(), pathlib.Path(item).resolve()):
            say(f"warning: {final} is in the input {item}; move it before the next command that reads this input")
    partial = final.with_name(f".{final.name}.incomplete")
    with writing(final):
        partial.write_bytes(b"")  # a killed preparation may have left lines in the file
    try:
        yield partial
        os.replace(partial, final)
    finally:
        partial.unlink(missing_ok=True)


def _is_read_with(file: pathlib.Path, item: pathlib.Path) -> bool:
    """Return whether the directory or the glob `item` contains the file; both paths are absolute."""
    paths = (file, *file.parents)
    # Path.match reads `**` as `*`, so the glob becomes several patterns, with 0, 1, 2, ... folders in place of `**/`.
    patterns = {str(item).replace("**/", "*/" * depth) for depth in range(len(paths))}
    return item in paths or any(path.match(pattern) for path in paths for pattern in patterns)


def append_removed_copies(
    path: pathlib.Path,
    partitions: Iterable[Partition],
    options: ReadOptions,
    decisions: Decisions,
    base_corpus: str = "",
) -> None:
    """Read the input again, and append a JSON line {name, reason, repeats, text} for each removed document, in order.

    `repeats` is the name of the kept document that the removed document repeats. A long document has a line for each of
    its pieces.

    Args:
        path: file of JSON lines.
        partitions: the whole input.
        options: as in `readers.read_documents`.
        decisions: decisions about the documents of the input.
        base_corpus: the corpus to which documents are added; `repeats` then names this corpus, since the names of its
            documents are unknown.
    """
    repeated = set(np.unique(decisions.copy_of).tolist())
    names: dict[int, str] = {}
    with writing(path), open(path, "a", encoding="utf-8") as file:
        documents = (raw for partition in partitions for raw in partition.read(partition.files, options))
        for index, raw in number_documents(documents, int(decisions.partitions[0]), len(decisions.copy_of)):
            if index in repeated:
                names[index] = raw.name
            if reason := decisions.removal_reason(index):
                copy_of = int(decisions.copy_of[index])
                stored_document = f"a document of {decisions.corpus_of(copy_of) or base_corpus}"
                line = {
                    "name": escape_non_utf8_name(raw.name),
                    "reason": reason,
                    "repeats": escape_non_utf8_name(names.get(copy_of, stored_document)),
                    "text": to_document(raw, options).text,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
