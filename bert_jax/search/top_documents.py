"""The documents with the largest scores of each query, by an exact search in blocks with bounded memory.

A score is a function of two blocks of vectors. Vectors are an array, or a tree of arrays, with an item per text on the
first axis, so that a text may also have a vector per token.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

QUERY_BLOCK, DOCUMENT_BLOCK = 512, 4_096  # texts whose scores are in memory at once
GROUP = 16  # documents whose largest score decides whether their scores are compared one by one

Vectors = Any  # an array or a tree of arrays, each [texts, ...]
ScoreFunction = Callable[[Vectors, Vectors], jax.Array]  # (queries, documents) -> float32 [queries, documents]


class TopDocuments(NamedTuple):
    """The best documents of each query, the best first.

    Attributes:
        scores: float32 `[queries, depth]`.
        indices: int64 `[queries, depth]`, positions of the documents.
    """

    scores: np.ndarray
    indices: np.ndarray


def inner_products(queries: jax.Array, documents: jax.Array) -> jax.Array:
    """Return the inner products of vectors `[queries, width]` and `[documents, width]`."""
    return jnp.matmul(queries, documents.T, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)


def num_texts(vectors: Vectors) -> int:
    """Return the number of texts of vectors."""
    return len(jax.tree.leaves(vectors)[0])


def document_blocks(vectors: Vectors) -> list[Vectors]:
    """Return views of the vectors of DOCUMENT_BLOCK documents each."""
    starts = range(0, num_texts(vectors), DOCUMENT_BLOCK)
    return [jax.tree.map(lambda array: array[start : start + DOCUMENT_BLOCK], vectors) for start in starts]  # noqa: B023


def top_documents(
    queries: Vectors, blocks: Sequence[Vectors], depth: int, score: ScoreFunction = inner_products
) -> TopDocuments:
    """Return the documents with the largest scores; of equal scores, the earlier document comes first.

    Memory holds the scores of QUERY_BLOCK queries and of a block of documents, whatever the number of documents.

    Args:
        queries: vectors of the queries.
        blocks: vectors of the documents, in blocks of equal size except for the last block. A block may be mapped from
            a file.
        depth: documents for each query; at most the number of all documents.
        score: the score of a query and a document.
    """
    rows, depth = num_texts(blocks[0]), min(depth, sum(map(num_texts, blocks)))
    parts = []
    for start in range(0, num_texts(queries), QUERY_BLOCK):
        part = jax.tree.map(lambda array: array[start : start + QUERY_BLOCK], queries)  # noqa: B023
        size = num_texts(part)
        part = _padded(part, min(QUERY_BLOCK, num_texts(queries)))
        best = _Best(
            jnp.full((num_texts(part), depth), -jnp.inf, jnp.float32),
            jnp.zeros((num_texts(part), depth), jnp.int32),
        )
        for index, block in enumerate(blocks):
            best = _merge_block(score, best, part, _padded(block, rows), index * rows, num_texts(block))
        parts.append([np.asarray(array)[:size] for array in best])
    scores, indices = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return TopDocuments(scores, indices.astype(np.int64))


class _Best(NamedTuple):
    """The best scores of each query on the device, and the positions of their documents, int32."""

    scores: jax.Array
    indices: jax.Array


@functools.partial(jax.jit, static_argnums=0)
def _merge_block(
    score: ScoreFunction, best: _Best, queries: Vectors, documents: Vectors, first: int, size: int
) -> _Best:
    """Return the best documents of before and of a block, whose first `size` items are documents.

    A document among the best `depth` lies in one of the `depth` groups with the largest maxima. So the scores of the
    other groups are not sorted. `top_k` prefers the earlier of equal values, and the earlier documents come first.
    """
    num_queries, depth = best.scores.shape
    scores = score(queries, documents)
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


def _padded(vectors: Vectors, rows: int) -> Vectors:
    """Return vectors with zeros for further texts, so that all blocks have one shape and one compiled program."""
    missing = rows - num_texts(vectors)
    if not missing:
        return vectors
    return jax.tree.map(lambda array: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)), vectors)
