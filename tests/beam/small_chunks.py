"""Chunks of a few KB in every process that imports this: a small corpus has many partitions, blocks and shards."""

from bert_jax.corpus.build import chunks
from bert_jax.readers import pieces

chunks.PARTITION_BYTES = 30_000
chunks.CHUNK_BYTES = 2_000
chunks.CHUNKS_PER_BLOCK = 3
pieces.MAX_UNSPLIT_BYTES, pieces.MAX_PIECE_BYTES = 50_000, 10_000
_read_chunks = chunks.read_chunks


def small_chunks(*arguments):
    """`chunks.read_chunks`; a worker process that is sent this function imports this file first."""
    return _read_chunks(*arguments)
