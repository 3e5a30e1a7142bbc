"""Masks that look at the tokens: words are drawn by their weights or their rarity, and a batch stays a function."""

import itertools

import numpy as np
import pytest

from bert_jax.batches.masking import MASKINGS, Masking, Vocabulary, mask_tokens
from bert_jax.batches.pipeline import make_sequences
from bert_jax.config import DataConfig
from tests.helpers.memory_corpus import FIRST_TOKEN, MemorySplit, random_documents

VOCABULARY = Vocabulary(100, 4, np.arange(100) >= 50)  # ids from 50 on continue a word


@pytest.fixture
def rare(monkeypatch):
    """Rows that prefer high ids below 50: 1 for ids below 20, otherwise 4."""

    def weights(ids, vocabulary):
        return np.where((ids >= 20) & (ids < 50), 4.0, 1.0)

    one = {"max_words": 1, "weights": lambda max_words, config: np.ones(1), "token_weights": weights}
    monkeypatch.setitem(MASKINGS, "rare", Masking(whole_words=False, **one))
    monkeypatch.setitem(MASKINGS, "rare_words", Masking(whole_words=True, **one))


def masked(rows, numbers, masking, probability, rarity=None):
    ids = np.concatenate(rows).astype(np.int32)
    starts = np.cumsum([0, *map(len, rows)])
    maskable = np.ones(len(ids), bool)
    maskable[starts[:-1]] = False  # [CLS]
    config = DataConfig(masking=masking, mask_probability=probability)
    made = mask_tokens(
        ids, maskable, starts, np.array(numbers), seed=3, config=config, vocabulary=VOCABULARY, rarity=rarity
    )
    return [made.positions[(made.positions >= a) & (made.positions < b)] - a for a, b in itertools.pairwise(starts)]


@pytest.mark.parametrize(
    ("masking", "rarity", "weights"),
    [
        ("rare", None, {1: 1.0, 2: 4.0, 3: 1.0, 4: 4.0}),
        ("token", {10: 0.5, 31: 3.0}, {1: 0.5, 2: 1.0, 3: 1.0, 4: 3.0}),
        ("rare", {10: 0.5, 31: 3.0}, {1: 0.5, 2: 4.0, 3: 1.0, 4: 12.0}),
    ],
)
def test_tokens_are_drawn_without_replacement_in_proportion_to_their_weights(rare, masking, rarity, weights):
    """Two of four tokens: the probability of each pair is the sum over both orders of successive draws."""
    row, total = [2, 10, 30, 11, 31], sum(weights.values())
    by_id = None if rarity is None else np.array([rarity.get(token, 1.0) for token in range(100)])
    draws = 20_000
    found = masked([row] * draws, range(draws), masking, 0.4, by_id)
    for pair in itertools.combinations(weights, 2):
        expected = sum(weights[a] / total * weights[b] / (total - weights[a]) for a, b in (pair, pair[::-1]))
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


class _RepeatedTokens(MemorySplit):
    """A corpus of few token ids, of which some are more frequent; two sources, whose frequencies differ."""

    def read(self, records):
        arrays = super().read(records)
        digit, is_first = arrays.tokens % 10, self.document_of(arrays.tokens) < self.source_documents[1]
        return arrays._replace(tokens=FIRST_TOKEN + np.where(is_first, digit**2 // 10, 5 + digit // 4))


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_frequencies_are_counted_in_the_text_that_an_epoch_reads(power):
    """The only mask of a sequence falls on token i with probability w(i) / sum(w), w = frequency ** -power."""
    split = _RepeatedTokens(random_documents(1, 60, (1, 40), (1, 20)), sources=(40, 20))
    config = DataConfig(sentence_pairs="none", mask_probability=0.05, rarity_power=power, weights=(1.0, 3.0))
    sequences = make_sequences(split, split.symbols(), 16, 0, config)
    counts = np.zeros(split.vocab_size)
    for source, (begin, end) in enumerate(itertools.pairwise(split.source_documents)):
        for record in range(split.first_record[begin], split.first_record[end]):
            for token in split.read(np.array([record])).tokens:
                counts[token] += sequences.num_per_source[source] / sequences.num_items[source]
    weight_of = (counts + np.count_nonzero(counts) / len(counts)) ** -power
    batch = sequences.batch(np.arange(20_000))
    assert (batch["masked_weights"].sum(axis=1) == 1).all()
    labels = batch["masked_labels"][:, 0]
    ids = batch["input_ids"].copy()
    ids[np.arange(len(ids)), batch["masked_positions"][:, 0]] = labels
    weights = np.where(ids >= FIRST_TOKEN, weight_of[ids], 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    for token in np.flatnonzero(counts):
        probabilities = (weights * (ids == token)).sum(axis=1)
        deviation = (probabilities * (1 - probabilities)).sum() ** 0.5
        assert abs((labels == token).sum() - probabilities.sum()) < 4 * deviation, token
