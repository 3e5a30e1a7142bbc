"""Masks: shares, uniformity and labels over 100,000 rows; what is never masked; how many."""

import numpy as np
import pytest
from scipy import stats

from bert_jax.config import DataConfig
from bert_jax.data.masking import Masked, mask_tokens, max_predictions

ALPHA = 1e-4  # of each statistical test; the seeds are fixed, so a pass stays one
LENGTH, VOCAB, MASK = 32, 1000, 3
SPECIALS = 4


def plain_rows(rows: np.ndarray, length: int = LENGTH) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows [CLS] a.. [SEP] b.. [SEP] padded, of 5 to `length` tokens: ids, maskable, lengths."""
    random = np.random.default_rng(0)
    lengths = random.integers(5, length + 1, len(rows))
    column = np.arange(length)
    input_ids = random.integers(SPECIALS, VOCAB, [len(rows), length], dtype=np.int32)
    special = (column == 0) | (column == lengths[:, None] // 2) | (column == lengths[:, None] - 1)
    input_ids[special] = 2
    padding = column >= lengths[:, None]
    input_ids[padding] = 0
    return input_ids, ~special & ~padding, lengths


def mask(input_ids, maskable, lengths, rows, seed=0, **config) -> Masked:
    return mask_tokens(
        input_ids, maskable, lengths, rows, seed=seed, config=DataConfig(**config), vocab_size=VOCAB, mask_id=MASK
    )


@pytest.fixture(scope="module")
def many() -> tuple[np.ndarray, np.ndarray, np.ndarray, Masked]:
    rows = np.arange(100_000)
    input_ids, maskable, lengths = plain_rows(rows)
    before = input_ids.copy()
    masked = mask(input_ids, maskable, lengths, rows)
    assert np.array_equal(input_ids, before)
    return input_ids, maskable, lengths, masked


def test_counts(many):
    _, _, lengths, masked = many
    used = masked.weights.sum(axis=1)
    # round() of Python rounds halves to even, as the original's does.
    assert used.tolist() == [max(1, round(0.15 * length)) for length in lengths.tolist()]
    assert set(np.unique(masked.weights)) == {0, 1}
    assert masked.positions.shape[1] == max_predictions(LENGTH, 0.15) == 5
    assert max_predictions(128, 0.15) == 20
    assert max_predictions(512, 0.15) == 77
    share = used.sum() / lengths.sum()
    assert abs(share - 0.15) < 0.005


def test_dtypes(many):
    masked = many[-1]
    assert [array.dtype for array in masked] == [np.int32, np.int32, np.int32, np.float32]
    assert all(array.flags.c_contiguous for array in masked)


def test_positions_ascend_without_repeats_and_unused_ones_are_zero(many):
    masked = many[-1]
    used = masked.weights > 0
    assert (np.diff(used.astype(int), axis=1) <= 0).all()
    both = used[:, 1:]
    assert (np.diff(masked.positions, axis=1)[both] > 0).all()
    assert not masked.positions[~used].any()
    assert not masked.labels[~used].any()


def test_only_maskable_tokens_are_predicted_and_labels_restore_the_row(many):
    input_ids, maskable, _, masked = many
    row, prediction = np.nonzero(masked.weights)
    position = masked.positions[row, prediction]
    assert maskable[row, position].all()
    restored = masked.input_ids.copy()
    restored[row, position] = masked.labels[row, prediction]
    assert np.array_equal(restored, input_ids)


def test_shares_of_replacements(many):
    _, _, _, masked = many
    row, prediction = np.nonzero(masked.weights)
    now = masked.input_ids[row, masked.positions[row, prediction]]
    label = masked.labels[row, prediction]
    kept, hidden = int((now == label).sum()), int((now == MASK).sum())
    other = len(now) - kept - hidden
    # A random token is the token itself, or [MASK], once in VOCAB times.
    expected = np.array([0.8 + 0.1 / VOCAB, 0.1 + 0.1 / VOCAB, 0.1 * (1 - 2 / VOCAB)]) * len(now)
    assert stats.chisquare([hidden, kept, other], expected).pvalue > ALPHA
    # Random tokens are uniform over the whole vocabulary, specials included.
    random = now[(now != label) & (now != MASK)]
    counts = np.delete(np.bincount(random, minlength=VOCAB), MASK)
    assert counts.min() > 0
    assert stats.chisquare(counts[:3], counts[:3].sum() * np.ones(3) / 3).pvalue > ALPHA
    bins = np.add.reduceat(counts[3:996].reshape(-1), np.arange(0, 993, 83))
    assert stats.chisquare(bins).pvalue > ALPHA


def test_every_maskable_position_is_equally_likely():
    rows = np.arange(100_000)
    length = 20
    input_ids = np.full([len(rows), length], 9, np.int32)
    maskable = np.ones_like(input_ids, bool)
    maskable[:, [0, 7, 19]] = False
    masked = mask(input_ids, maskable, np.full(len(rows), length), rows)
    counts = np.bincount(masked.positions.reshape(-1), minlength=length)[maskable[0]]
    # Three of 17 without replacement: the variance is that of a multinomial times (1 - 2/16).
    assert stats.chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum() / (1 - 2 / 16), 16) > ALPHA
    pairs = np.zeros([length, length])
    np.add.at(pairs, (masked.positions[:, 0], masked.positions[:, 2]), 1)
    assert (pairs[np.triu_indices(length, 2)] > 0).sum() >= 17 * 16 / 2 - 17 - 3  # neighbours have none between them


def test_a_row_number_or_seed_of_its_own_gives_other_masks():
    rows = np.arange(1000)
    input_ids, maskable, lengths = plain_rows(rows)
    first = mask(input_ids, maskable, lengths, rows)
    assert not np.array_equal(first.positions, mask(input_ids, maskable, lengths, rows + 1000).positions)
    assert not np.array_equal(first.positions, mask(input_ids, maskable, lengths, rows, seed=1).positions)
    order = np.random.default_rng(1).permutation(1000)
    shuffled = mask(input_ids[order], maskable[order], lengths[order], rows[order])
    assert all(np.array_equal(a[order], b) for a, b in zip(first, shuffled, strict=True))


def test_shares_can_be_set():
    rows = np.arange(1000)
    input_ids, maskable, lengths = plain_rows(rows)
    shares = {"mask_token_share": 1.0, "random_token_share": 0.0}
    masked = mask(input_ids, maskable, lengths, rows, mask_probability=1.0, **shares)
    assert np.array_equal(masked.input_ids == MASK, maskable)
    untouched = mask(input_ids, maskable, lengths, rows, mask_token_share=0.0, random_token_share=0.0)
    assert np.array_equal(untouched.input_ids, input_ids)
    assert untouched.weights.any()
