"""The search in blocks beside one sort of all scores, with equal scores and with vectors per token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.inference.vectors import SparseVectors
from bert_jax.search import top_documents as search
from bert_jax.search.top_documents import top_documents


def sorted_scores(scores: np.ndarray, depth: int) -> np.ndarray:
    """The positions of the largest scores of each row; of equal scores, the earlier position comes first."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :depth]


@pytest.mark.parametrize(("queries", "documents", "depth"), [(1, 1, 5), (5, 256, 3), (17, 257, 8), (33, 700, 300)])
@pytest.mark.parametrize("are_equal", [False, True])
def test_search_in_blocks_equals_one_sort(
    queries: int, documents: int, depth: int, are_equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        search, "DOCUMENT_BLOCK", 256
    )  # blocks of 256 scores are searched by group for 3 and 8 documents
    monkeypatch.setattr(search, "QUERY_BLOCK", 16)
    random = np.random.default_rng(documents)
    # Vectors of few small integers: most scores are equal to others, and exact in float32.
    vectors = [
        (random.integers(0, 3, (count, 4)) if are_equal else random.standard_normal((count, 8))).astype(np.float32)
        for count in (queries, documents)
    ]
    found = top_documents(vectors[0], vectors[1], depth)
    scores = vectors[0].astype(np.float64) @ vectors[1].T
    wanted = sorted_scores(scores, depth)
    np.testing.assert_array_equal(found.indices, wanted)
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, wanted, axis=1), rtol=1e-5, atol=1e-6)


def max_sim(queries, documents):
    """The sum over the tokens of a query of the largest product with a token of the document (ColBERT)."""
    return jnp.einsum("qsw,dtw->qdst", queries, documents).max(axis=3).sum(axis=2)


def test_a_text_may_have_a_vector_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "DOCUMENT_BLOCK", 64)
    random = np.random.default_rng(0)
    queries, documents = (random.standard_normal((*shape, 4)).astype(np.float32) for shape in ((5, 3), (150, 6)))
    found = top_documents(queries, documents, 10, max_sim)
    scores = np.zeros((5, 150))
    for row, query in enumerate(queries):
        for column, tokens in enumerate(documents):
            scores[row, column] = sum(max(float(token @ other) for other in tokens) for token in query)
    np.testing.assert_array_equal(found.indices, sorted_scores(scores, 10))


def test_sparse_vectors_equal_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK_NUMBERS", 40 * 32)  # blocks of 32 documents
    random = np.random.default_rng(0)
    arrays = [
        (random.random((count, 40)) * (random.random((count, 40)) < 0.2)).astype(np.float32) for count in (9, 100)
    ]
    sparse = [SparseVectors.from_rows(array, 40) for array in arrays]
    wanted = sorted_scores(arrays[0].astype(np.float64) @ arrays[1].T, 5)
    np.testing.assert_array_equal(top_documents(*sparse, 5).indices, wanted)


def test_sparse_vectors_are_indexed_like_an_array() -> None:
    random = np.random.default_rng(1)
    array = (random.random((5, 7)) * (random.random((5, 7)) < 0.4)).astype(np.float32)
    sparse = SparseVectors.from_rows(array, 7)
    for index in (0, 4, -1, -5, np.int64(2)):
        np.testing.assert_array_equal(sparse[index], array[index])
    for index in (5, -6):
        with pytest.raises(IndexError):
            sparse[index]
    indices = np.array([3, -1, 0])
    np.testing.assert_array_equal(sparse[indices], array[indices])
    np.testing.assert_array_equal(np.asarray(sparse), array)
    np.testing.assert_array_equal(list(sparse), array)


@pytest.mark.parametrize("few", [1, 2, 8])
def test_few_groups_are_enough_if_no_more_hold_a_new_document(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of a block have different numbers of new documents, and later documents are better."""
    monkeypatch.setattr(search, "DOCUMENT_BLOCK", 256)
    monkeypatch.setattr(search, "QUERY_BLOCK", 8)
    monkeypatch.setattr(search, "FEW_GROUPS", few)
    search._merge_block.clear_cache()  # its programs keep the number of groups
    random = np.random.default_rng(few)
    documents = random.standard_normal((2_000, 6)).astype(np.float32)
    documents[:, 0] += np.linspace(0, 3, len(documents))
    queries = random.standard_normal((21, 6)).astype(np.float32)
    wanted = sorted_scores(queries.astype(np.float64) @ documents.T, 8)
    np.testing.assert_array_equal(top_documents(queries, documents, 8).indices, wanted)
    search._merge_block.clear_cache()


@pytest.mark.parametrize(("queries", "documents"), [(0, 5), (3, 0), (0, 0)])
def test_no_queries_or_documents_have_no_best_documents(queries: int, documents: int) -> None:
    found = top_documents(np.zeros((queries, 4), np.float32), np.zeros((documents, 4), np.float32), 2)
    assert found.scores.shape == found.indices.shape == (queries, min(documents, 2))


def test_two_zeros_with_signs_are_equal_scores() -> None:
    documents = np.array([[0.0], [-0.0], [0.0], [1.0]], np.float32)
    np.testing.assert_array_equal(top_documents(np.array([[-1.0]], np.float32), documents, 4).indices, [[0, 1, 2, 3]])


def test_few_blocks_of_documents_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of a block take longer than its copy, so without a limit all blocks would be in memory."""
    monkeypatch.setattr(search, "DOCUMENT_BLOCK", 16)
    merge_block, results, waiting = search._merge_block, [], []

    def slow_scores(queries: jax.Array, documents: jax.Array) -> jax.Array:
        squares = jnp.full((300, 300), queries[0, 0])
        squares = jax.lax.fori_loop(0, 20, lambda _, x: jnp.tanh(x @ x), squares)
        return queries @ documents.T + 0 * squares.sum()

    def recorded_merge(*arguments):
        results.append(merge_block(*arguments))
        waiting.append(sum(not result.scores.is_ready() for result in results))
        return results[-1]

    monkeypatch.setattr(search, "_merge_block", recorded_merge)
    random = np.random.default_rng(0)
    queries, documents = (random.standard_normal((count, 4)).astype(np.float32) for count in (2, 320))
    top_documents(queries, documents, 2, slow_scores)
    assert len(waiting) == 20
    assert max(waiting) <= 1
