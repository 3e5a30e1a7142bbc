"""Vectors from co-occurrences against counts by loops and a dense singular value decomposition."""

import collections
import math
import pathlib
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy

from bert_jax.cli.main import main
from bert_jax.corpus.cooccurrence import WEIGHTS, cooccurrence_vectors
from bert_jax.corpus.store import RecordArrays, Split, open_corpus
from tests.helpers.generated_corpus import generated_corpus

VOCAB_SIZE, SIZE = 150, 15
RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=1, num_heads=2, mlp_size=32, max_positions=32)
    config.model.update(family="research", positions="rotary", initialization="neighbors", initializer_range=0.1)
    config.data.sentence_pairs = "full_sentences"
    config.corpus_vectors = True
    config.train.update(steps=2, batch_size=8)
    config.train.phases = phases({"seq_len": 32})
    config.optimizer.peak_learning_rate = 0.0
    config.evaluate.update(num_sequences=16, batch_size=8)
    return config
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("cooccurrence") / "text", documents=30, vocab_size=VOCAB_SIZE)


@pytest.fixture(scope="module")
def split(directory: pathlib.Path) -> Split:
    return open_corpus(directory).split("train")


def vectors_by_loops(split: Split, vocab_size: int, size: int) -> np.ndarray:
    """The same vectors up to a rotation, from pairs counted one at a time."""
    columns = []
    for distance, weight in WEIGHTS.items():
        pairs = collections.Counter[tuple[int, int]]()
        for record in range(split.num_records):
            tokens = split.read(np.array([record])).tokens.tolist()
            for place, token in enumerate(tokens):
                if 0 <= place + distance < len(tokens):
                    pairs[token, tokens[place + distance]] += 1
        tokens, contexts = collections.Counter[int](), collections.Counter[int]()
        for (token, context), count in pairs.items():
            tokens[token] += count
            contexts[context] += count
        total = sum(count**0.75 for count in contexts.values())
        block = np.zeros((vocab_size, vocab_size))
        for (token, context), count in pairs.items():
            expected = tokens[token] * contexts[context] ** 0.75 / total
            block[token, context] = weight * max(0.0, math.log((count - 0.5) / expected))
        columns.append(block)
    matrix = np.hstack(columns)
    left, values, _ = np.linalg.svd(matrix)
    vectors = left[:, :size] * np.sqrt(values[:size])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(matrix.any(axis=1, keepdims=True), vectors / np.where(lengths, lengths, 1.0), 0.0)


def test_cosines_equal_the_cosines_of_a_dense_decomposition(split: Split) -> None:
    vectors = cooccurrence_vectors(split, VOCAB_SIZE, SIZE)
    expected = vectors_by_loops(split, VOCAB_SIZE, SIZE)
    assert vectors.dtype == np.float32
    occurs = vectors.any(axis=1)
    assert 0 < occurs.sum() < VOCAB_SIZE
    np.testing.assert_allclose(np.linalg.norm(vectors[occurs], axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


def test_a_sample_of_a_larger_text_is_read(split: Split) -> None:
    whole, sample = (cooccurrence_vectors(split, VOCAB_SIZE, SIZE, limit) for limit in (split.num_tokens, 2_000))
    assert split.num_tokens > 4_000
    assert not np.allclose(whole @ whole.T, sample @ sample.T, atol=0.1)
    np.testing.assert_array_equal(sample, cooccurrence_vectors(split, VOCAB_SIZE, SIZE, 2_000))


def test_a_small_vocabulary_has_fewer_singular_vectors(split: Split) -> None:
    """A matrix of n rows has n singular vectors; the last, which the vectors lack, has the smallest singular value."""
    vectors = cooccurrence_vectors(split, VOCAB_SIZE, VOCAB_SIZE + 50)
    assert vectors.shape == (VOCAB_SIZE, VOCAB_SIZE + 50)
    expected = vectors_by_loops(split, VOCAB_SIZE, VOCAB_SIZE - 1)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


class Records(NamedTuple):
    """The part of a split that the vectors read."""

    records: list[np.ndarray]

    @property
    def tokens_per_record(self) -> np.ndarray:
        return np.array([len(record) for record in self.records])

    def read(self, indices: np.ndarray) -> RecordArrays:
        tokens = np.concatenate([self.records[index] for index in indices])
        return RecordArrays(tokens, np.array([len(tokens)]), np.array([1]))


@pytest.mark.parametrize(
    ("records", "num_vectors"),
    [
        ([[3]], 0),  # no token has a neighbor
        ([[3], [4]], 0),  # neighbors in the text, in two records
        ([[7] * 20], 0),  # the only neighbor is as frequent as by chance
        ([[5, 6] * 40], 2),  # fewer tokens than entries of a vector
    ],
)
def test_tokens_without_neighbors_have_no_vectors(records: list[list[int]], num_vectors: int) -> None:
    vectors = cooccurrence_vectors(Records([np.array(record) for record in records]), VOCAB_SIZE, SIZE)
    assert np.isfinite(vectors).all()
    assert np.count_nonzero(vectors.any(axis=1)) == num_vectors


def test_a_run_starts_with_the_vectors(directory: pathlib.Path, split: Split, tmp_path: pathlib.Path) -> None:
    """The rate is 0; tokens without neighbors, such as [MASK], have random rows."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    command = ["pretrain", f"--config={tmp_path / 'recipe.py'}", f"--config.data.corpus={directory}"]
    tables = {}
    for name in (True, False):
        workdir = tmp_path / str(name)
        assert main([*command, f"--workdir={workdir}", f"--config.corpus_vectors={name}"]) == 0
        assert main(["export", f"--workdir={workdir}", f"--output={workdir / 'model'}"]) == 0
        tensors = safetensors.numpy.load_file(workdir / "model" / "model.safetensors")
        tables[name] = tensors["encoder.embeddings.token"][:VOCAB_SIZE]
    expected = vectors_by_loops(split, VOCAB_SIZE, SIZE)
    occurs = expected.any(axis=1)
    common = (-1.0) ** np.arange(16) / 4
    np.testing.assert_allclose(tables[True] @ common, tables[False] @ common, atol=1e-6)
    vectors = (tables[True] - np.outer(tables[True] @ common, common))[occurs]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(lengths, 0.1 * math.sqrt(0.77 * 16), rtol=1e-5)  # of a normal cut at two deviations
    np.testing.assert_allclose(
        (vectors / lengths) @ (vectors / lengths).T, (expected @ expected.T)[occurs][:, occurs], atol=1e-4
    )
    np.testing.assert_array_equal(tables[True][~occurs], tables[False][~occurs])
