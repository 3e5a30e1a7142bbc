"""A rule of masking that looks at the tokens: words are drawn by their weights, and a batch stays a function."""

import itertools

import numpy as np
import pytest

from bert_jax.batches.masking import MASKINGS, Masking, Vocabulary, mask_tokens
from bert_jax.config import DataConfig

VOCABULARY = Vocabulary(100, 4, np.arange(100) >= 50)  # ids from 50 on continue a word


@pytest.fixture
def rare(monkeypatch):
    """Rows that prefer high ids below 50: 1 for ids below 20, otherwise 4."""

    def weights(ids, vocabulary):
        return np.where((ids >= 20) & (ids < 50), 4.0, 1.0)

    one = {"max_words": 1, "weights": lambda max_words, config: np.ones(1), "token_weights": weights}
    monkeypatch.setitem(MASKINGS, "rare", Masking(whole_words=False, **one))
    monkeypatch.setitem(MASKINGS, "rare_words", Masking(whole_words=True, **one))


def masked(rows, numbers, masking, probability):
    ids = np.concatenate(rows).astype(np.int32)
    starts = np.cumsum([0, *map(len, rows)])
    maskable = np.ones(len(ids), bool)
    maskable[starts[:-1]] = False  # [CLS]
    config = DataConfig(masking=masking, mask_probability=probability)
    made = mask_tokens(ids, maskable, starts, np.array(numbers), seed=3, config=config, vocabulary=VOCABULARY)
    return [made.positions[(made.positions >= a) & (made.positions < b)] - a for a, b in itertools.pairwise(starts)]


def test_tokens_are_drawn_without_replacement_in_proportion_to_their_weights(rare):
    """Two of four tokens: the probability of each pair is the sum over both orders of successive draws."""
    row, weights = [2, 10, 30, 11, 31], {1: 1.0, 2: 4.0, 3: 1.0, 4: 4.0}
    draws = 20_000
    found = masked([row] * draws, range(draws), "rare", 0.4)
    for pair in itertools.combinations(weights, 2):
        expected = sum(weights[a] / 10 * weights[b] / (10 - weights[a]) for a, b in (pair, pair[::-1]))
        share = np.mean([tuple(positions) == pair for positions in found])
        assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / draws) ** 0.5)


def test_a_word_has_the_largest_weight_of_its_tokens(rare):
    row = [2, 10, 60, 30, 61, 11, 62]  # three words of two tokens; the second has a weight of 4
    found = masked([row] * 6_000, range(6_000), "rare_words", 2 / 7)
    shares = [np.mean([positions[0] == first for positions in found]) for first in (1, 3, 5)]
    assert shares == pytest.approx([1 / 6, 4 / 6, 1 / 6], abs=0.03)
    assert all(len(positions) == 2 for positions in found)


@pytest.mark.parametrize("masking", ["rare", "rare_words"])
def test_the_other_examples_of_a_batch_change_nothing(rare, masking):
    rng = np.random.default_rng(0)
    rows = [[2, *rng.integers(5, 100, rng.integers(5, 30)).tolist()] for _ in range(40)]
    numbers = rng.permutation(1_000)[:40]
    together = masked(rows, numbers, masking, 0.3)
    for row, number, positions in zip(rows, numbers, together, strict=True):
        np.testing.assert_array_equal(masked([row], [number], masking, 0.3)[0], positions)
