"""Smaller vectors beside sentence-transformers and brute force in float64."""

import numpy as np
import pytest
from sentence_transformers import quantize_embeddings

from bert_jax.errors import UserError
from bert_jax.search import smaller_vectors
from bert_jax.search.smaller_vectors import (
    BINARY,
    FLOAT,
    INT8,
    STORED_FORMS,
    VectorForm,
    parse_vector_forms,
    quantize_binary,
    quantize_int8,
    search_stored,
    truncate_vectors,
)


@pytest.fixture(scope="module")
def vectors() -> list[np.ndarray]:
    """Vectors of 20 queries and of 300 documents; a number of the documents never changes."""
    random = np.random.default_rng(0)
    queries, documents = (random.standard_normal((count, 40)).astype(np.float32) for count in (20, 300))
    documents[:, 3] = 0.5
    return [queries, documents]


def test_stored_vectors_equal_the_bytes_of_sentence_transformers(vectors) -> None:
    np.testing.assert_array_equal(quantize_int8(vectors[1]).vectors, quantize_embeddings(vectors[1], "int8"))
    np.testing.assert_array_equal(quantize_binary(vectors[1]).vectors, quantize_embeddings(vectors[1], "ubinary"))


def test_search_in_int8_ranks_by_the_decoded_vectors(vectors) -> None:
    stored = quantize_int8(vectors[1])
    low, high = stored.ranges.astype(np.float64)
    decoded = low + (stored.vectors.astype(np.float64) + 128) * np.where(high > low, (high - low) / 255, 1)
    wanted = np.argsort(-(vectors[0] @ decoded.T), axis=1)[:, :10]
    np.testing.assert_array_equal(search_stored(STORED_FORMS[INT8], vectors[0], stored, 10).indices, wanted)


def test_search_in_bits_rescores_the_nearest_by_signs(vectors) -> None:
    queries, documents = vectors
    found = search_stored(STORED_FORMS[BINARY], queries, quantize_binary(documents), 5)
    distances = ((queries > 0)[:, None] != (documents > 0)[None]).sum(axis=2)
    products = queries.astype(np.float64) @ np.where(documents > 0, 1.0, -1.0).T
    for row in range(len(queries)):
        nearest = np.sort(np.argsort(distances[row], kind="stable")[:20])
        wanted = nearest[np.argsort(-products[row, nearest], kind="stable")[:5]]
        np.testing.assert_array_equal(found.indices[row], wanted)
        np.testing.assert_allclose(found.scores[row], products[row, wanted], rtol=1e-5)


def test_shortened_vectors_have_length_1_again(vectors) -> None:
    wanted = vectors[1][:, :16] / np.linalg.norm(vectors[1][:, :16], axis=1, keepdims=True)
    np.testing.assert_allclose(truncate_vectors(vectors[1], 16, True), wanted, rtol=1e-6)
    np.testing.assert_array_equal(truncate_vectors(vectors[1], 16, False), vectors[1][:, :16])


def test_names_of_forms() -> None:
    assert parse_vector_forms("float, int8,64,32-binary", 64) == [
        VectorForm("float", None, FLOAT),
        VectorForm("int8", None, INT8),
        VectorForm("64", 64, FLOAT),
        VectorForm("32-binary", 32, BINARY),
    ]
    assert parse_vector_forms("", 64) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int9", "--vectors int9: give float, int8, binary, a size such as 64, or both such as 64-int8; did you mean"),
        ("65", "--vectors 65: the vectors of this model have 64 numbers; give a size from 1 to 64"),
        ("0-int8", "--vectors 0-int8: the vectors of this model have 64 numbers"),
        ("64int8", "--vectors 64int8: give float"),
    ],
)
def test_other_forms_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_vector_forms(text, 64)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "converted"),
    [
        ("int8", lambda vectors: quantize_embeddings(vectors, "int8")),
        ("binary", lambda vectors: quantize_embeddings(vectors, "ubinary")),
        ("16", lambda vectors: vectors[:, :16]),
        ("16-int8", lambda vectors: quantize_embeddings(np.ascontiguousarray(vectors[:, :16]), "int8")),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 300, 1 << 14])
def test_a_file_is_converted_in_blocks(vectors, tmp_path, monkeypatch, name, converted, block) -> None:
    monkeypatch.setattr(smaller_vectors, "CONVERTED_BLOCK", block)
    output = tmp_path / "vectors.npy"
    with smaller_vectors.float_vectors_file_to_convert(output, name) as path:
        np.save(path, vectors[1])
        assert all(partial.match(".vectors.npy.????????.partial") for partial in tmp_path.iterdir())
    np.testing.assert_array_equal(np.load(output), converted(vectors[1]))
    if "int8" in name:
        low, high = np.load(tmp_path / "vectors.ranges.npy")
        np.testing.assert_array_equal(low, vectors[1].min(axis=0)[: len(low)])
        np.testing.assert_array_equal(high, vectors[1].max(axis=0)[: len(high)])
