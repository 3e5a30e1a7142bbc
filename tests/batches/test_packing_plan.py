"""Packing: every example once per epoch, sequences that fit, as full as a plain best fit makes them."""

import collections

import numpy as np
import pytest

from bert_jax.batches.packing import pack_lengths_into_patterns, plan_packing, slots_of_packed_sequences


def best_fit_decreasing(lengths: list[int], seq_len: int, max_examples: int) -> list[list[int]]:
    """Put one example at a time into the fullest sequence that has room, else into a new one."""
    sequences: list[list[int]] = []
    for size in sorted(lengths, reverse=True):
        fitting = [each for each in sequences if len(each) < max_examples and sum(each) + size <= seq_len]
        if fitting:
            max(fitting, key=sum).append(size)
        else:
            sequences.append([size])
    return sequences


@pytest.mark.parametrize("max_examples", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(8))
def test_a_plan_uses_each_length_once_and_is_as_good_as_best_fit(seed, max_examples):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, [513, 200, 60, 513][seed % 4], 400)
    histogram = dict(zip(*(array.tolist() for array in np.unique(lengths, return_counts=True)), strict=True))
    patterns = pack_lengths_into_patterns(histogram, 512, max_examples)
    used: collections.Counter[int] = collections.Counter()
    for pattern, count in patterns:
        assert count > 0
        assert sum(pattern) <= 512
        assert 1 <= len(pattern) <= max_examples
        for size in pattern:
            used[size] += count
    assert used == histogram
    number, plain = sum(count for _, count in patterns), len(best_fit_decreasing(lengths.tolist(), 512, max_examples))
    assert number <= plain * 1.01 + 1


def test_every_epoch_has_every_slot_once_and_no_sequence_mixes_sources():
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 65, 500)
    source_slot = np.array([0, 120, 120, 500])
    packing = plan_packing(lengths, source_slot, 64, 4)
    total = int(packing.num_sequences.sum())
    assert packing.num_sequences[1] == 0
    seen = []
    for epoch in (0, 1, 10**9):
        row, slots = slots_of_packed_sequences(packing, 5, np.full(total, epoch), np.arange(total))
        assert np.array_equal(np.sort(slots), np.arange(500))
        assert (np.diff(row) >= 0).all()
        assert (np.bincount(row, lengths[slots], minlength=total) <= 64).all()
        assert np.bincount(row).max() <= 4
        source = np.searchsorted(source_slot[1:], slots, side="right")
        assert all(len(set(source[row == each].tolist())) == 1 for each in range(total))
        assert np.array_equal(
            np.bincount(source[np.flatnonzero(np.diff(row, prepend=-1))], minlength=3), packing.num_sequences
        )
        seen.append(slots)
    assert not np.array_equal(seen[0], seen[1])  # other neighbors in another epoch


def test_a_sequence_does_not_depend_on_the_others_of_a_request():
    packing = plan_packing(np.random.default_rng(1).integers(3, 40, 300), np.array([0, 300]), 64, 8)
    total = int(packing.num_sequences.sum())
    epoch, sequence = np.arange(total) % 3, np.arange(total)
    row, slots = slots_of_packed_sequences(packing, 0, epoch, sequence)
    for one in (0, 7, total - 1):
        _, alone = slots_of_packed_sequences(packing, 0, epoch[[one]], sequence[[one]])
        assert np.array_equal(alone, slots[row == one])


def test_packing_nearly_doubles_the_tokens_of_a_step():
    """Lengths of mean 254 of 512, uniform and with many full sequences, as of long documents: goal 1.85 times."""
    rng = np.random.default_rng(0)
    for lengths in (
        rng.integers(5, 504, 100_000),
        np.clip(rng.lognormal(5.39, 0.75, 100_000), 8, 512).astype(np.int64),
    ):
        assert abs(lengths.mean() - 254) < 10
        packing = plan_packing(lengths, np.array([0, len(lengths)]), 512, 8)
        assert len(lengths) / packing.num_sequences.sum() >= 1.85
