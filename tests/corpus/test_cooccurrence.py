"""Vectors from co-occurrences against counts by loops and a dense singular value decomposition."""

import collections
import functools
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse

from bert_jax.api import pretrain
from bert_jax.cli.main import main
from bert_jax.config import PretrainConfig, read_config, with_vocab_size
from bert_jax.console import Console
from bert_jax.corpus.cooccurrence import (
    WEIGHTS,
    bilinear_factors,
    cooccurrence_vectors,
    count_cooccurrences,
)
from bert_jax.corpus.mixture import open_mixture
from bert_jax.corpus.store import ReadableSplit, RecordArrays, Split, open_corpus
from bert_jax.errors import UserError
from bert_jax.objectives import make_objective
from bert_jax.pretraining.corpus_weights import (
    HeadKernels,
    predicting_kernels,
    random_weights_with_corpus_vectors,
    vector_directions,
)
from bert_jax.training.step import random_params
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


def vectors_of(split: ReadableSplit, size: int, max_tokens: int = 1_000_000) -> np.ndarray:
    return cooccurrence_vectors(count_cooccurrences(split, VOCAB_SIZE, max_tokens=max_tokens), size)


def information_by_loops(
    split: ReadableSplit, vocab_size: int, distance: int, passes: tuple[float, ...] = (1.0,)
) -> np.ndarray:
    """PPMI of tokens and contexts, from pairs counted one at a time; half a pair less for each source with the pair."""
    totals, discounted, tokens, contexts = (collections.Counter() for _ in range(4))
    borders = split.first_record[split.source_documents]
    for begin, end, weight in zip(borders[:-1], borders[1:], passes, strict=True):
        pairs = collections.Counter[tuple[int, int]]()
        for record in range(begin, end):
            read = split.read(np.array([record])).tokens.tolist()
            for place, token in enumerate(read):
                if 0 <= place + distance < len(read):
                    pairs[token, read[place + distance]] += 1
        for pair, count in pairs.items():
            totals[pair] += weight * count
            discounted[pair] += weight * (count - 0.5)
    for (token, context), count in totals.items():
        tokens[token] += count
        contexts[context] += count
    total = sum(count**0.75 for count in contexts.values())
    information = np.zeros((vocab_size, vocab_size))
    for (token, context), count in discounted.items():
        if count:
            expected = tokens[token] * contexts[context] ** 0.75 / total
            information[token, context] = max(0.0, math.log(count / expected))
    return information


def vectors_by_loops(split: Split, vocab_size: int, size: int) -> np.ndarray:
    """The same vectors up to a rotation, from a dense decomposition."""
    matrix = np.hstack([weight * information_by_loops(split, vocab_size, d) for d, weight in WEIGHTS.items()])
    left, values, _ = np.linalg.svd(matrix)
    vectors = left[:, :size] * np.sqrt(values[:size])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.where(matrix.any(axis=1, keepdims=True), vectors / np.where(lengths, lengths, 1.0), 0.0)


def nearest_form(information: np.ndarray, vectors: np.ndarray, rank: int) -> np.ndarray:
    """The matrix of `vectors @ A @ vectors.T`, where A is the least-squares fit, cut to `rank` singular values."""
    form, *_ = np.linalg.lstsq(np.kron(vectors, vectors), information.ravel(), rcond=None)
    left, values, right = np.linalg.svd(form.reshape(2 * vectors.shape[1:]))
    return vectors @ (left[:, :rank] * values[:rank]) @ right[:rank] @ vectors.T


def test_cosines_equal_the_cosines_of_a_dense_decomposition(split: Split) -> None:
    vectors = vectors_of(split, SIZE)
    expected = vectors_by_loops(split, VOCAB_SIZE, SIZE)
    assert vectors.dtype == np.float32
    occurs = vectors.any(axis=1)
    assert 0 < occurs.sum() < VOCAB_SIZE
    np.testing.assert_allclose(np.linalg.norm(vectors[occurs], axis=1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


def test_a_sample_of_a_larger_text_is_read(split: Split) -> None:
    whole, sample = (vectors_of(split, SIZE, limit) for limit in (split.num_tokens, 2_000))
    assert split.num_tokens > 4_000
    assert not np.allclose(whole @ whole.T, sample @ sample.T, atol=0.1)
    np.testing.assert_array_equal(sample, vectors_of(split, SIZE, 2_000))


def test_a_small_vocabulary_has_fewer_singular_vectors(split: Split) -> None:
    """A matrix of n rows has n singular vectors; the last, which the vectors lack, has the smallest singular value."""
    vectors = vectors_of(split, VOCAB_SIZE + 50)
    assert vectors.shape == (VOCAB_SIZE, VOCAB_SIZE + 50)
    expected = vectors_by_loops(split, VOCAB_SIZE, VOCAB_SIZE - 1)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)


class Records(NamedTuple):
    """The part of a split that the vectors read."""

    records: list[np.ndarray]
    source_documents: np.ndarray

    @property
    def tokens_per_record(self) -> np.ndarray:
        return np.array([len(record) for record in self.records])

    @property
    def first_record(self) -> np.ndarray:
        return np.arange(len(self.records) + 1)

    def read(self, indices: np.ndarray) -> RecordArrays:
        tokens = np.concatenate([self.records[index] for index in indices])
        return RecordArrays(tokens, np.array([len(tokens)]), np.array([1]))


def records_of(*sources: Iterable[Sequence[int]]) -> Records:
    """Each record is a document."""
    sources = [[np.array(record) for record in source] for source in sources]
    return Records([record for source in sources for record in source], np.cumsum([0, *map(len, sources)]))


def test_sources_count_as_often_as_they_are_read() -> None:
    random = np.random.default_rng(0)
    text = records_of(
        random.integers(0, 20, (30, 10)), random.integers(10, 30, (12, 10)), random.integers(0, 5, (9, 10))
    )
    passes = (1.0, 2.5, 0.0)
    counted = count_cooccurrences(text, 30, np.array(passes), max_distance=3)
    assert sorted(counted.information) == [-3, -2, -1, 1, 2, 3]
    for distance, information in counted.information.items():
        expected = information_by_loops(text, 30, distance, passes)
        np.testing.assert_allclose(information.toarray(), expected, atol=1e-12)
    counts = sum(
        weight * np.bincount(np.concatenate([record[:-1], record[1:]]), minlength=30)
        for record, weight in zip(text.records, [1.0] * 30 + [2.5] * 12 + [0.0] * 9, strict=True)
    )
    np.testing.assert_allclose(counted.frequencies, counts / counts.sum(), atol=1e-12)


@pytest.mark.parametrize("size", [SIZE, 63])
@pytest.mark.parametrize(
    "records",
    [
        [[2 * n, 2 * n + 1] for n in range(40)],
        [range(5, 11)] * 10,
        [range(10 * n, 10 * n + 5) for n in range(9)] * 3,
        np.random.default_rng(1).integers(0, 30, (20, 20)),
    ],
    ids=["pairs", "one sentence", "groups without common tokens", "fewer tokens than entries"],
)
def test_few_singular_vectors_give_the_same_vectors_again(records: Iterable[Sequence[int]], size: int) -> None:
    """Singular values that are equal or 0 leave the singular vectors open."""
    vectors, again = (vectors_of(records_of(records), size) for _ in range(2))
    np.testing.assert_array_equal(vectors, again)
    lengths = np.linalg.norm(vectors, axis=1)
    assert (lengths > 0).sum() >= min(size, 6)
    np.testing.assert_allclose(lengths[lengths > 0], 1.0, rtol=1e-6)


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
    vectors = vectors_of(records_of(records), SIZE)
    assert np.isfinite(vectors).all()
    assert np.count_nonzero(vectors.any(axis=1)) == num_vectors


def test_vectors_without_entries() -> None:
    """A token table of one feature leaves no feature beside the common vector; a vocabulary may have one token."""
    assert vectors_of(records_of([[5, 6] * 40]), 0).shape == (VOCAB_SIZE, 0)
    one_token = count_cooccurrences(records_of([[0] * 20]), 1, max_tokens=1_000)
    assert not cooccurrence_vectors(one_token, SIZE).any()


def test_a_token_that_the_singular_vectors_do_not_explain_has_no_vector() -> None:
    """A pair that is half of the text is no surprise, so its singular values are the smallest."""
    text = records_of([range(20)] * 10 + [[30, 31]] * 100)
    matrix = np.hstack([weight * information_by_loops(text, VOCAB_SIZE, d) for d, weight in WEIGHTS.items()])
    left, values, _ = np.linalg.svd(matrix)
    explained = np.linalg.norm(left[:, :10] * values[:10], axis=1)
    assert matrix[30:32].any(axis=1).all()
    np.testing.assert_allclose(explained[30:32], 0.0, atol=1e-9)
    vectors = vectors_of(text, 10)
    assert not vectors[30:32].any()
    assert vectors[:20].any(axis=1).sum() >= 10


def test_a_mixture_counts_as_it_is_read(
    directory: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus with the weight 0 is not read; an epoch has as many sequences as both corpora."""
    other = generated_corpus(tmp_path / "text", documents=30, vocab_size=VOCAB_SIZE)
    (tmp_path / "recipe.py").write_text(RECIPE)

    def count(*arguments: object) -> None:
        raise UserError(f"passes {arguments[4]}")

    monkeypatch.setattr("bert_jax.pretraining.pretrain.random_weights_with_corpus_vectors", count)
    config = read_config(
        PretrainConfig,
        str(tmp_path / "recipe.py"),
        [f"--config.data.corpus={directory},{other}", "--config.data.weights=0,1"],
    )
    with pytest.raises(UserError, match=r"passes \[0\. 2\.\]"):
        pretrain(config, tmp_path / "run", console=Console(silent=True))


def test_the_bilinear_form_is_the_least_squares_fit() -> None:
    random = np.random.default_rng(0)
    vectors, information = random.normal(size=(20, 4)).astype(np.float32), random.normal(size=(20, 20))
    for rank in (2, 4):
        contexts, tokens = (factor[:rank] for factor in bilinear_factors(scipy.sparse.csr_matrix(information), vectors))
        form = (vectors @ tokens.T) @ (contexts @ vectors.T)
        np.testing.assert_allclose(form, nearest_form(information, vectors, rank), atol=1e-6)


WIDTH, HEAD_DIM, OUTPUT = 12, 4, 0.3


@pytest.mark.parametrize("offsets", [[-1, 1], [-1, 1, -1], [-1] * 3])
def test_neighbor_heads_predict_tokens(offsets: list[int]) -> None:
    """Heads with one offset share an approximation, of rank 11 at most here; the last of four heads stays random."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(30, WIDTH - 1)).astype(np.float32)
    information = {offset: random.normal(size=(30, 30)) for offset in (-1, 1)}
    frequencies = random.dirichlet(np.ones(30))
    kernels = HeadKernels(*random.normal(size=(2, 2, WIDTH, 4 * HEAD_DIM)).astype(np.float32))
    kernels = kernels._replace(output=kernels.output.swapaxes(1, 2).copy())
    sparse = {offset: scipy.sparse.csr_matrix(x) for offset, x in information.items()}
    value, output = predicting_kernels(kernels, HEAD_DIM, offsets, sparse, frequencies, vectors, OUTPUT)
    rows = vectors @ vector_directions(WIDTH).T  # of a token table
    for offset in set(offsets):
        heads = [head for head, attended in enumerate(offsets) if attended == offset]
        outputs = sum(
            rows @ value[0][:, head * HEAD_DIM :][:, :HEAD_DIM] @ output[0][head * HEAD_DIM :][:HEAD_DIM]
            for head in heads
        )
        expected = nearest_form(information[offset], vectors, min(len(heads) * HEAD_DIM, WIDTH - 1))
        ratio = np.linalg.norm(rows @ outputs.T) / np.linalg.norm(expected)
        np.testing.assert_allclose(rows @ outputs.T, ratio * expected, atol=1e-4)
        # Rows of a table whose entries have the root mean square 1 are longer by the root of the width.
        np.testing.assert_allclose(math.sqrt(frequencies @ np.mean(WIDTH * outputs**2, axis=1)), OUTPUT, rtol=1e-5)
    others = slice(len(offsets) * HEAD_DIM, None)
    np.testing.assert_array_equal(value[0][:, others], kernels.value[0][:, others])
    np.testing.assert_array_equal(output[0][others], kernels.output[0][others])
    np.testing.assert_array_equal(value[1], kernels.value[1])
    np.testing.assert_array_equal(output[1], kernels.output[1])


@pytest.mark.parametrize(
    ("fields", "fraction"),
    [
        ({}, 0.6),  # of the embeddings after their norm, whose root mean square is 1
        ({"norm_position": "pre", "embedding_norm": False}, 0.6 * 0.1 * math.sqrt(1.77)),  # of tokens and common vector
        ({"initialization": "matches"}, 0.6),
    ],
    ids=str,
)
def test_outputs_of_neighbor_heads_have_a_fraction_of_the_size_of_embeddings(
    directory: pathlib.Path, tmp_path: pathlib.Path, fields: dict, fraction: float
) -> None:
    """The matching head, the last head, keeps its random maps."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    size = {"hidden_size": 64, "num_token_types": 2}
    options = [f"--config.model.{name}={value}" for name, value in (size | fields).items()]
    config = read_config(PretrainConfig, str(tmp_path / "recipe.py"), [f"--config.data.corpus={directory}", *options])
    corpus = open_mixture(str(directory))
    config = with_vocab_size(config, corpus.vocab_size)
    objective = make_objective(config)
    split = corpus.split("train")
    params = random_weights_with_corpus_vectors(config.seed, objective, config.model, split, np.ones(1), Console())
    random = jax.jit(functools.partial(random_params, config.seed, objective))()
    frequencies = count_cooccurrences(split, VOCAB_SIZE).frequencies
    rows = math.sqrt(64) * vectors_of(split, 63) @ vector_directions(64).T
    value, output = (
        [tree["encoder"]["layers"]["attention"][name]["kernel"][0] for tree in (params, random)]
        for name in ("value", "output")
    )
    outputs = rows @ value[0][:, :32] @ output[0][:32]
    assert math.sqrt(frequencies @ np.mean(outputs**2, axis=1)) == pytest.approx(fraction, rel=1e-4)
    is_random = np.array_equal(value[0][:, 32:], value[1][:, 32:]) and np.array_equal(output[0][32:], output[1][32:])
    assert is_random == (fields.get("initialization") == "matches")


def check_heads(
    split: Split, rows: np.ndarray, value: np.ndarray, output: np.ndarray, distances: tuple[int, int]
) -> None:
    """Each of two heads predicts the token whose context is at the distance; `rows` are of tokens with vectors."""
    expected = vectors_by_loops(split, VOCAB_SIZE, SIZE)
    occurs = expected.any(axis=1)
    for head, distance in enumerate(distances):
        features = slice(8 * head, 8 * head + 8)
        scores = rows @ (rows @ value[:, features] @ output[features]).T  # of tokens, by context
        form = nearest_form(information_by_loops(split, VOCAB_SIZE, distance), expected, 8)[occurs][:, occurs]
        np.testing.assert_allclose(scores / np.linalg.norm(scores), form / np.linalg.norm(form), atol=1e-4)


def test_heads_of_a_causal_model_predict_the_next_token(
    directory: pathlib.Path, split: Split, tmp_path: pathlib.Path
) -> None:
    """The heads attend to the tokens 1 and 2 before a token; the token after it is 2 and 3 from them."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    options = [f"--config.data.corpus={directory}", "--config.model.causal=True", "--config.objective=left_to_right"]
    config = with_vocab_size(read_config(PretrainConfig, str(tmp_path / "recipe.py"), options), VOCAB_SIZE)
    objective = make_objective(config)
    params = random_weights_with_corpus_vectors(config.seed, objective, config.model, split, np.ones(1), Console())
    expected = vectors_by_loops(split, VOCAB_SIZE, SIZE)
    occurs = expected.any(axis=1)
    rows = vectors_of(split, SIZE)[occurs] @ vector_directions(16).T
    attention = params["encoder"]["layers"]["attention"]
    value, output = (attention[name]["kernel"][0] for name in ("value", "output"))
    check_heads(split, rows, value, output, (-2, -3))


def test_a_run_starts_with_the_vectors(
    directory: pathlib.Path, split: Split, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is 0; tokens without neighbors, such as [MASK], have random rows. No step leaves the plateau."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    command = ["pretrain", f"--config={tmp_path / 'recipe.py'}", f"--config.data.corpus={directory}"]
    tensors = {}
    for name in (True, False):
        workdir = tmp_path / str(name)
        assert main([*command, f"--workdir={workdir}", f"--config.corpus_vectors={name}"]) == 0
        assert ("plateau" in capsys.readouterr().err) == (not name)
        assert main(["export", f"--workdir={workdir}", f"--output={workdir / 'model'}"]) == 0
        tensors[name] = safetensors.numpy.load_file(workdir / "model" / "model.safetensors")
    tables = {name: tensors[name]["encoder.embeddings.token"][:VOCAB_SIZE] for name in tensors}
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
    value, output = (tensors[True][f"encoder.layers.0.attention.{name}.weight"].T for name in ("value", "output"))
    check_heads(split, vectors, value, output, (-1, 1))
    # Each token with a neighbor has two pairs, except the first and the last token of a record, which have one.
    counts = np.zeros(VOCAB_SIZE)
    for record in range(split.num_records):
        tokens = split.read(np.array([record])).tokens
        np.add.at(counts, np.concatenate([tokens[:-1], tokens[1:]]), 1)
    bias = tensors[True]["masked_token.bias"][:VOCAB_SIZE]
    log_frequencies = np.log(counts / counts.sum() + 1e-6)
    np.testing.assert_allclose(bias, log_frequencies - log_frequencies.mean(), atol=1e-5)
