"""The documents with the largest scores of each query, by an exact search in blocks with bounded memory."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.inference.vectors import TextVectors
from bert_jax.objectives.vector_scores import Scores, inner_products

QUERY_BLOCK, DOCUMENT_BLOCK = 512, 4_096  # texts whose scores are in memory at once
BLOCK_NUMBERS = 1 << 25  # numbers of a block of documents
GROUP = 16  # documents whose largest score decides whether their scores are compared one by one


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

    For any number of documents, only the scores of QUERY_BLOCK queries with DOCUMENT_BLOCK documents, and document
    vectors of BLOCK_NUMBERS numbers, are in memory.

    Args:
        queries: float32 `[queries, width]`, or vectors of another kind.
        documents: vectors of the same kind; an array may be mapped from a file.
        depth: number of best documents for each query, at most the number of all documents.
        scores: function that compares vectors of queries with vectors of documents.
    """
    depth, rows = min(depth, len(documents)), min(DOCUMENT_BLOCK, len(documents))
    rows = min(rows, max(1, BLOCK_NUMBERS // _slice_vectors(documents, 0, 1).size))
    parts = []
    for start in range(0, len(queries), QUERY_BLOCK):
        of_queries = _slice_vectors(queries, start, QUERY_BLOCK)
        size, of_queries = len(of_queries), _padded_rows(of_queries, min(QUERY_BLOCK, len(queries)))
        shape = (len(of_queries), depth)
        best = _Best(jnp.full(shape, -jnp.inf, jnp.float32), jnp.zeros(shape, jnp.int32))
        for first in range(0, len(documents), rows):
            block = _slice_vectors(documents, first, rows)
            best = _merge_block(scores, best, of_queries, _padded_rows(block, rows), first, len(block))
        parts.append([np.asarray(array)[:size] for array in best])
    best_scores, indices = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return TopDocuments(best_scores, indices.astype(np.int64))


class _Best(NamedTuple):
    """The best scores of each query, and the positions of their documents, int32; both arrays are on the device."""

    scores: jax.Array
    indices: jax.Array


@functools.partial(jax.jit, static_argnums=0)
def _merge_block(
    scores_of: Scores, best: _Best, queries: jax.Array, documents: jax.Array, first: int, size: int
) -> _Best:
    """Return the best documents among `best` and a block of vectors, whose first `size` rows are documents.

    The scores of a block are divided into groups. A document among the best `depth` lies in one of the `depth` groups
    with the largest maxima. So the scores of all other groups are not sorted. Of equal values, `top_k` prefers the
    first value, and earlier documents come first in its input.
    """
    num_queries, depth = best.scores.shape
    scores = scores_of(queries, documents)
    rows = scores.shape[1]
    scores = jnp.where(jnp.arange(rows) < size, scores, -jnp.inf)
    indices = jnp.broadcast_to(jnp.arange(rows, dtype=jnp.int32), scores.shape)
    if 2 * depth * GROUP <= rows and rows % GROUP == 0:
        scores = scores.reshape(num_queries, rows // GROUP, GROUP)
        groups = jnp.sort(jax.lax.top_k(scores.max(axis=2), depth)[1], axis=1)[:, :, None]
        scores = jnp.take_along_axis(scores, groups, axis=1).reshape(num_queries, -1)
        indices = (groups * GROUP + jnp.arange(GROUP)).reshape(num_queries, -1)
    scores = jnp.concatenate([best.scores, scores], axis=1)
    indices = jnp.concatenate([best.indices, first + indices], axis=1)
    scores, columns = jax.lax.top_k(scores, depth)
    return _Best(scores, jnp.take_along_axis(indices, columns, axis=1))


def _slice_vectors(vectors: TextVectors, start: int, size: int) -> np.ndarray:
    """Return the vectors of at most `size` texts, beginning at index `start`; a slice of an array is a view."""
    end = min(start + size, len(vectors))
    return vectors[start:end] if isinstance(vectors, np.ndarray) else vectors[np.arange(start, end)]


def _padded_rows(vectors: np.ndarray, rows: int) -> np.ndarray:
    """Return vectors padded with zeros to `rows` texts, so that all blocks have one shape and one compiled program."""
    missing = rows - len(vectors)
    return np.pad(vectors, [(0, missing)] + [(0, 0)] * (vectors.ndim - 1)) if missing else vectors
