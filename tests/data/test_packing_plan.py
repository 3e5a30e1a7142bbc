"""Packing: every example once an epoch, rows that hold, and how full they are against a plain best fit."""

import collections

import numpy as np
import pytest

from bert_jax.data.sequences.packing import examples_of, make_packing, plan


def best_fit_decreasing(lengths: list[int], length: int, most: int) -> list[list[int]]:
    """One example at a time: into the fullest row that has room, else into a new one."""
    rows: list[list[int]] = []
    for size in sorted(lengths, reverse=True):
        fitting = [row for row in rows if len(row) < most and sum(row) + size <= length]
        if fitting:
            max(fitting, key=sum).append(size)
        else:
            rows.append([size])
    return rows


@pytest.mark.parametrize("most", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(8))
def test_a_plan_uses_each_length_once_and_is_as_good_as_best_fit(seed, most):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, [513, 200, 60, 513][seed % 4], 400)
    histogram = dict(zip(*(array.tolist() for array in np.unique(lengths, return_counts=True)), strict=True))
    patterns = plan(histogram, 512, most)
    used: collections.Counter[int] = collections.Counter()
    for pattern, count in patterns:
        assert count > 0
        assert sum(pattern) <= 512
        assert 1 <= len(pattern) <= most
        for size in pattern:
            used[size] += count
    assert used == histogram
    rows, plain = sum(count for _, count in patterns), len(best_fit_decreasing(lengths.tolist(), 512, most))
    assert rows <= plain * 1.01 + 1


def test_every_epoch_has_every_slot_once_and_rows_of_one_source():
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 65, 500)
    source_slot = np.array([0, 120, 120, 500])
    packing = make_packing(lengths, source_slot, 64, 4)
    total = int(packing.rows.sum())
    assert packing.rows[1] == 0
    seen = []
    for epoch in (0, 1, 10**9):
        index, slots = examples_of(packing, 5, np.full(total, epoch), np.arange(total))
        assert np.array_equal(np.sort(slots), np.arange(500))
        assert (np.diff(index) >= 0).all()
        assert (np.bincount(index, lengths[slots], minlength=total) <= 64).all()
        assert np.bincount(index).max() <= 4
        source = np.searchsorted(source_slot[1:], slots, side="right")
        assert all(len(set(source[index == row].tolist())) == 1 for row in range(total))
        assert np.array_equal(
            np.bincount(source[np.flatnonzero(np.diff(index, prepend=-1))], minlength=3), packing.rows
        )
        seen.append(slots)
    assert not np.array_equal(seen[0], seen[1])  # other neighbours in another epoch


def test_rows_do_not_depend_on_what_is_asked_for_with_them():
    packing = make_packing(np.random.default_rng(1).integers(3, 40, 300), np.array([0, 300]), 64, 8)
    total = int(packing.rows.sum())
    epoch, row = np.arange(total) % 3, np.arange(total)
    index, slots = examples_of(packing, 0, epoch, row)
    for one in (0, 7, total - 1):
        _, alone = examples_of(packing, 0, epoch[[one]], row[[one]])
        assert np.array_equal(alone, slots[index == one])


def test_packing_nearly_doubles_the_tokens_of_a_step():
    """Lengths of mean 254 of 512, uniform and with the many full rows of long documents: goal 1.85 times."""
    rng = np.random.default_rng(0)
    for lengths in (
        rng.integers(5, 504, 100_000),
        np.clip(rng.lognormal(5.39, 0.75, 100_000), 8, 512).astype(np.int64),
    ):
        assert abs(lengths.mean() - 254) < 10
        packing = make_packing(lengths, np.array([0, len(lengths)]), 512, 8)
        assert len(lengths) / packing.rows.sum() >= 1.85
