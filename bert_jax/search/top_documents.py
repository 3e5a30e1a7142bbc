"""The documents with the largest scores of each query, by an exact search in blocks with bounded memory."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference.vectors import TextVectors
from bert_jax.objectives.vector_scores import Scores, inner_products

QUERY_BLOCK, DOCUMENT_BLOCK = 512, 4_096  # texts whose scores are in memory at once
BLOCK_NUMBERS = 1 << 25  # numbers of the vectors that are on the device at once, of queries and of documents
GROUP = 16  # documents whose largest score decides whether their scores are compared one by one
FEW_GROUPS = 8  # after the first blocks, the best documents of a block lie in few groups


class TopDocuments(NamedTuple):
    """The best documents of each query, in order, the best document first.

    Attributes:
        scores: float32 `[queries, depth]`.
        indices: int64 `[queries, depth]`, positions of the documents.
    """

    scores: np.ndarray
    indices: np.ndarray


def top_documents(
    queries: TextVectors, documents: TextVectors, depth: int, scores: Scores = inner_products
) -> TopDocuments:
    """Return the documents with the largest scores for each query; if scores are equal, the earlier document is first.

    Memory holds only the scores of QUERY_BLOCK queries with DOCUMENT_BLOCK documents, and only BLOCK_NUMBERS numbers of
    the vectors of queries and of documents. A block of documents is read once for all queries in memory.

    Args:
        queries: float32 `[queries, width]`, or vectors of another kind.
        documents: vectors of the same kind; an array may be mapped from a file.
        depth: number of best documents for each query, at most the number of all documents.
        scores: function that compares vectors of queries with vectors of documents.
    """
    depth, rows = min(depth, len(documents)), min(DOCUMENT_BLOCK, len(documents))
    if not len(queries) or not depth:
        return TopDocuments(np.zeros((len(queries), depth), np.float32), np.zeros((len(queries), depth), np.int64))
    rows = min(rows, max(1, BLOCK_NUMBERS // _slice_vectors(documents, 0, 1).size))
    block_size = min(QUERY_BLOCK, len(queries))
    num_held = block_size * max(1, BLOCK_NUMBERS // _slice_vectors(queries, 0, block_size).size)
    parts = []
    for start in range(0, len(queries), num_held):
        of_queries = _slice_vectors(queries, start, num_held)
        num_queries, num_blocks = len(of_queries), math.ceil(len(of_queries) / block_size)
        of_queries = _padded_rows(of_queries, num_blocks * block_size)
        query_blocks = jnp.asarray(of_queries.reshape(num_blocks, block_size, *of_queries.shape[1:]))
        shape = (num_blocks, block_size, depth)
        best = _Best(jnp.full(shape, -jnp.inf, jnp.float32), jnp.zeros(shape, jnp.int32))
        for first in range(0, len(documents), rows):
            block = _slice_vectors(documents, first, rows)
            jax.block_until_ready(best)  # JAX would otherwise hold many blocks whose computation has not begun
            best = _merge_block(scores, best, query_blocks, _padded_rows(block, rows), first, len(block))
        parts.append([np.asarray(array).reshape(-1, depth)[:num_queries] for array in best])
    best_scores, indices = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return TopDocuments(best_scores, indices.astype(np.int64))


class _Best(NamedTuple):
    """The best scores of each query, and the positions of their documents, int32; both arrays are on the device."""

    scores: jax.Array
    indices: jax.Array


@functools.partial(jax.jit, static_argnums=0)
def _merge_block(
    scores_of: Scores, best: _Best, query_blocks: jax.Array, documents: jax.Array, first: int, size: int
) -> _Best:
    """Return the best documents among `best` and a block of vectors, whose first `size` rows are documents."""

    def merge(best_and_queries: tuple[_Best, jax.Array]) -> _Best:
        best, queries = best_and_queries
        scores = scores_of(queries, documents)
        scores = jnp.where(scores == 0, 0, scores)  # top_k orders -0.0 before 0.0
        scores = jnp.where(jnp.arange(scores.shape[1]) < size, scores, -jnp.inf)
        return _merge_scores(best, scores, first)

    # On a CPU, top_k has one thread. With two blocks at once, XLA multiplies one block while top_k sorts the other.
    return jax.lax.scan(lambda _, pair: (None, merge(pair)), None, (best, query_blocks), unroll=2)[1]


def _merge_scores(best: _Best, scores: jax.Array, first: int) -> _Best:
    """Return the best documents among `best` and a block of documents with `scores`, float32 `[queries, documents]`.

    The scores are divided into groups. A document that belongs to the best documents lies in a group whose maximum is
    larger than the last of the best scores, and in one of the `depth` groups with the largest maxima. The scores of all
    other groups are not sorted.
    """
    (num_queries, depth), rows = best.scores.shape, scores.shape[1]
    if 2 * depth * GROUP > rows or rows % GROUP:
        columns = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), scores.shape)
        return _best_of(best, scores, first + columns)
    scores = scores.reshape(num_queries, rows // GROUP, GROUP)
    maxima = scores.max(axis=2)

    def merge_groups(num_groups: int) -> _Best:
        groups = jnp.sort(jax.lax.top_k(maxima, num_groups)[1], axis=1)[:, :, None]
        scores_of_groups = jnp.take_along_axis(scores, groups, axis=1).reshape(num_queries, -1)
        return _best_of(best, scores_of_groups, first + (groups * GROUP + jnp.arange(GROUP)).reshape(num_queries, -1))

    most_groups = (maxima > best.scores[:, -1:]).sum(axis=1).max()
    few = min(FEW_GROUPS, depth)
    merged: _Best = jax.lax.cond(most_groups <= few, lambda: merge_groups(few), lambda: merge_groups(depth))
    return merged


def _best_of(best: _Best, scores: jax.Array, indices: jax.Array) -> _Best:
    """Return the best documents among `best` and later documents; of equal scores, `top_k` prefers the first."""
    depth = best.scores.shape[1]
    scores = jnp.concatenate([best.scores, scores], axis=1)
    scores, columns = jax.lax.top_k(scores, depth)
    return _Best(scores, jnp.take_along_axis(jnp.concatenate([best.indices, indices], axis=1), columns, axis=1))


def _slice_vectors(vectors: TextVectors, start: int, size: int) -> np.ndarray:
    """Return the vectors of at most `size` texts, beginning at index `start`; a slice of an array is a view."""
    end = min(start + size, len(vectors))
    return vectors[start:end] if isinstance(vectors, np.ndarray) else vectors[np.arange(start, end)]


def _padded_rows(vectors: np.ndarray, rows: int) -> np.ndarray:
    """Return vectors padded with zeros to `rows` texts, so that all blocks have one shape and one compiled program."""
    missing = rows - len(vectors)
    return np.pad(vectors, [(0, missing)] + [(0, 0)] * (vectors.ndim - 1)) if missing else vectors
