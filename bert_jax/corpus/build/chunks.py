"""Files -> partitions -> chunks: the division of the work of a preparation.

The division does not depend on the number of workers: one process reads a partition, one call encodes a chunk, and the
chunks of a block go to the same shards.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings, has_tokens
from bert_jax.corpus.build.signatures import choose_split, split_hash
from bert_jax.readers import RawDocument, ReadOptions, read_raw_documents, to_document
from bert_jax.tokenizer import Tokenizer

PARTITION_BYTES = 512 << 20  # maximum size of a partition: bytes of input files on disk
CHUNK_BYTES = 1 << 20  # size of a chunk: bytes of its documents, plus DOCUMENT_BYTES for each document
DOCUMENT_BYTES = 64  # bytes that a document adds to the size of a chunk, in addition to its text
CHUNKS_PER_BLOCK = 512  # number of chunks in a block; a killed preparation loses at most one block


@dataclasses.dataclass(frozen=True)
class Partition:
    """Consecutive input files that a single process reads."""

    index: int
    files: tuple[str, ...]
    bytes_before: int  # bytes of input in all earlier partitions
    read: Callable[[Sequence[str], ReadOptions], Iterator[RawDocument]] = read_raw_documents


def plan_partitions(files: Sequence[str], sizes: Sequence[int]) -> tuple[Partition, ...]:
    """Group consecutive files into partitions of at most `PARTITION_BYTES`; a larger file is a separate partition."""
    partitions: list[Partition] = []
    group: list[str] = []
    bytes_before = group_bytes = 0
    for path, num_bytes in zip(files, sizes, strict=True):
        if group and group_bytes + num_bytes > PARTITION_BYTES:
            partitions.append(Partition(len(partitions), tuple(group), bytes_before))
            group, bytes_before, group_bytes = [], bytes_before + group_bytes, 0
        group.append(path)
        group_bytes += num_bytes
    return (*partitions, Partition(len(partitions), tuple(group), bytes_before))


def read_chunks(
    partition: Partition, tokenizer: Tokenizer | None, settings: PrepareSettings, decisions: Decisions | None = None
) -> Iterator[Chunk]:
    """Yield the chunks of a partition in order, in bounded memory; a partition has at least one chunk.

    If decisions are given, a removed document is marked as rejected and has no text, and the chunk has the
    `split_hashes` of the kept documents. Chunks that are read without a tokenizer cannot be encoded.

    Raises:
        UserError: `readers.read_raw_documents` raises it.
    """
    index = size = 0
    documents: list[RawDocument] = []
    split_hashes: list[int] = []
    split, has_records = "", False  # state of the long document whose pieces are being read
    at_start = (split, has_records)

    def make_chunk(is_last: bool) -> Chunk:
        return Chunk(
            partition=partition.index,
            index=index,
            block=index // CHUNKS_PER_BLOCK,
            is_last=is_last,
            documents=documents,
            bytes_read=partition.bytes_before + (documents[-1].bytes_read if documents else 0),
            split=at_start[0],
            has_records=at_start[1],
            split_hashes=split_hashes,
        )

    raw_documents = partition.read(partition.files, settings.read_options)
    hashed = decisions.apply(partition.index, raw_documents) if decisions else ((raw, None) for raw in raw_documents)
    for raw, decided_hash in hashed:
        if size >= CHUNK_BYTES:
            yield make_chunk(is_last=False)
            index, size = index + 1, 0
            documents, split_hashes = [], []
            at_start = split, has_records
        documents.append(raw)
        size += len(raw.data) + DOCUMENT_BYTES
        if decided_hash is not None:
            split_hashes.append(decided_hash)
        if tokenizer is None or (raw.last and not raw.piece):
            continue
        # The chunk of a later piece needs the split of the document, and whether the document has records already.
        text = to_document(raw, settings.read_options).text if raw.piece == 0 or not has_records else ""
        if raw.piece == 0:
            document_hash = split_hash(text) if decided_hash is None else decided_hash
            split = choose_split(document_hash, settings.heldout_fraction)
            has_records = has_tokens(text, True, tokenizer, settings)
        elif not has_records:
            has_records = has_tokens(text, False, tokenizer, settings)
    yield make_chunk(is_last=True)
