"""Files -> partitions -> chunks: how the work of a preparation is divided.

The division is the same in every run, for any number of workers: a partition is read by one process, a chunk is encoded
at once, and the chunks of a block go to the same shards.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.corpus.build.normal_form import choose_split
from bert_jax.corpus.build.normal_form import split_hash
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.encoding import has_tokens
from bert_jax.readers import RawDocument
from bert_jax.readers import ReadOptions
from bert_jax.readers import read_raw_documents
from bert_jax.readers import to_document
from bert_jax.tokenizer import Tokenizer

PARTITION_BYTES = 512 << 20  # of input on disk
CHUNK_BYTES = 1 << 20  # of documents, with their overhead
DOCUMENT_BYTES = 64  # overhead of a document
CHUNKS_PER_BLOCK = 512  # a killed preparation loses at most one block


class Partition(NamedTuple):
    """Consecutive inputs that one process reads."""

    number: int
    files: tuple[str, ...]
    bytes_before: int  # of the inputs in the partitions before it
    read: Callable[[Sequence[str], ReadOptions], Iterator[RawDocument]] = read_raw_documents


def plan_partitions(files: Sequence[str], sizes: Sequence[int]) -> tuple[Partition, ...]:
    """Group the inputs: consecutive whole files of at most `PARTITION_BYTES` together, a larger file alone."""
    partitions: list[Partition] = []
    own: list[str] = []
    before = size = 0
    for path, bytes_ in zip(files, sizes, strict=True):
        if own and size + bytes_ > PARTITION_BYTES:
            partitions.append(Partition(len(partitions), tuple(own), before))
            own, before, size = [], before + size, 0
        own.append(path)
        size += bytes_
    return (*partitions, Partition(len(partitions), tuple(own), before))


def read_chunks(
    partition: Partition, tokenizer: Tokenizer | None, settings: PrepareSettings, decisions: Decisions | None = None
) -> Iterator[Chunk]:
    """Yield the chunks of a partition, in order, at least one; cheap, and in bounded memory.

    With decisions, removed documents are rejected ones without text, and the others have their `split_hashes`. Without
    a tokenizer, the chunks cannot be encoded.

    Raises:
        UserError: as `sources.read_raw_documents`.
    """
    number = size = 0
    documents: list[RawDocument] = []
    hashes: list[int] = []
    split, begun = "", False  # of the current document in pieces
    at_start = (split, begun)

    def chunk(last: bool) -> Chunk:
        bytes_read = partition.bytes_before + documents[-1].bytes_read if documents else partition.bytes_before
        block = number // CHUNKS_PER_BLOCK
        return Chunk(partition.number, number, block, last, documents, bytes_read, *at_start, hashes)

    found = partition.read(partition.files, settings.read_options)
    for raw, own_hash in decisions.apply(partition.number, found) if decisions else ((raw, None) for raw in found):
        if size >= CHUNK_BYTES:
            yield chunk(last=False)
            number, size, documents, hashes, at_start = number + 1, 0, [], [], (split, begun)
        documents.append(raw)
        size += len(raw.data) + DOCUMENT_BYTES
        if own_hash is not None:
            hashes.append(own_hash)
        if tokenizer is None:
            continue
        if raw.piece == 0 and not raw.last:
            text = to_document(raw, settings.read_options).text
            split = choose_split(split_hash(text) if own_hash is None else own_hash, settings.heldout_fraction)
            begun = has_tokens(text, True, tokenizer, settings)
        elif raw.piece and not begun:
            begun = has_tokens(to_document(raw, settings.read_options).text, False, tokenizer, settings)
    yield chunk(last=True)
