"""Order of sequences: a permutation per epoch, exact fractions of several sources, no dependence on earlier reads."""

import numpy as np
import pytest
from scipy import stats

from bert_jax.batches.order import epochs_and_items_of_sequences, plan_sequences_per_source


def test_each_epoch_of_one_source_has_every_item_once():
    order = plan_sequences_per_source(np.array([97]))
    epoch, item = epochs_and_items_of_sequences(order, 3, np.arange(3 * 97))
    assert np.array_equal(epoch, np.repeat([0, 1, 2], 97))
    orders = item.reshape(3, 97)
    assert all(np.array_equal(np.sort(one), np.arange(97)) for one in orders)
    assert not np.array_equal(orders[0], orders[1])


def test_without_weights_an_epoch_of_several_sources_has_every_item_once():
    order = plan_sequences_per_source(np.array([50, 1, 200]))
    epoch, item = epochs_and_items_of_sequences(order, 3, np.arange(2 * 251))
    assert np.array_equal(epoch, np.repeat([0, 1], 251))
    assert np.array_equal(np.sort(item[:251]), np.arange(251))
    assert (np.diff(item[:251]) != 1).mean() > 0.9  # mixed, not one after the other


@pytest.mark.parametrize(("weights", "smoothing"), [((1, 2, 1), 1.0), (None, 0.7), (None, 0.0), ((0.2, 0, 5), 1.0)])
def test_fractions_of_sources(weights, smoothing):
    sizes = np.array([1000, 100, 10])
    order = plan_sequences_per_source(sizes, weights, smoothing)
    wanted = np.array(weights) if weights else sizes**smoothing
    expected = np.rint(sizes.sum() * wanted / wanted.sum())
    assert order.num_sequences.tolist() == expected.tolist()
    _, item = epochs_and_items_of_sequences(order, 0, np.arange(5 * order.num_per_epoch))
    source = np.searchsorted([1000, 1100], item, side="right")
    for epoch in source.reshape(5, -1):
        assert np.bincount(epoch, minlength=3).tolist() == expected.tolist()


@pytest.mark.parametrize("weights", [(1, 1, 1, 1), (5, 1, 0, 3), (0, 0, 1, 1)])
def test_no_source_is_read_more_often_than_its_limit(weights):
    sizes, limit = np.array([1000, 400, 20, 3]), 4
    order = plan_sequences_per_source(sizes, weights, max_epochs=limit)
    found, wanted = order.num_sequences, np.array(weights) / sum(weights)
    at_limit = found == limit * sizes
    assert (found <= limit * sizes).all()
    assert at_limit[3]
    # The rest keep their proportions, and the epoch its size, unless all are at their limits.
    rest = ~at_limit & (wanted > 0)
    free = sizes.sum() - found[~rest].sum()
    assert found[rest].tolist() == np.rint(free * wanted[rest] / wanted[rest].sum()).tolist()
    assert found.sum() == (92 if not rest.any() else pytest.approx(sizes.sum(), abs=1))
    unlimited = plan_sequences_per_source(sizes, weights)
    assert (
        plan_sequences_per_source(sizes, weights, max_epochs=10**9).num_sequences.tolist()
        == unlimited.num_sequences.tolist()
    )


def test_an_order_that_begins_later_repeats_nothing():
    """Its sources begin new epochs, and give each of their items once before any for the second time."""
    sizes = np.array([40, 7])
    before, order = plan_sequences_per_source(sizes, (9, 1)), plan_sequences_per_source(sizes, (1, 3))
    order = order._replace(first_sequence=100)
    old = epochs_and_items_of_sequences(before, 1, np.arange(100))
    epoch, item = epochs_and_items_of_sequences(order, 1, np.arange(100, 100 + 20 * order.num_per_epoch))
    assert not set(zip(*map(list, old), strict=True)) & set(zip(epoch.tolist(), item.tolist(), strict=True))
    for first, size in ((0, 40), (40, 7)):
        own = (item >= first) & (item < first + size)
        assert epoch[own].min() == 100
        for one in range(100, epoch[own].max()):
            assert sorted((item[own][epoch[own] == one] - first).tolist()) == list(range(size))
    later = epochs_and_items_of_sequences(order, 1, np.arange(150, 160))
    np.testing.assert_array_equal(later.item, item[50:60])


def test_a_source_goes_through_epochs_of_its_own():
    """Whatever its weight, a source gives each of its items once before any for the second time."""
    order = plan_sequences_per_source(np.array([40, 7]), (1, 3))
    epoch, item = epochs_and_items_of_sequences(order, 1, np.arange(20 * order.num_per_epoch))
    for first, size in ((0, 40), (40, 7)):
        own = (item >= first) & (item < first + size)
        whole = epoch[own].max()
        for one in range(whole):
            assert sorted((item[own][epoch[own] == one] - first).tolist()) == list(range(size))


def test_a_source_with_items_gets_a_sequence_and_an_empty_source_gets_none():
    order = plan_sequences_per_source(np.array([10_000, 1, 0]), None, 1e-9 + 0.999)
    assert order.num_sequences[1] == 1
    assert order.num_sequences[2] == 0
    _, item = epochs_and_items_of_sequences(order, 0, np.arange(order.num_per_epoch))
    assert item.max() == 10_000


def test_neighbors_are_uniform():
    """The item of a sequence says nothing about the item of the next."""
    order = plan_sequences_per_source(np.array([1000]))
    _, item = epochs_and_items_of_sequences(order, 0, np.arange(100_000))
    table = np.histogram2d(item[:-1:2] // 100, item[1::2] // 100, bins=10)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_far_sequences_cost_nothing():
    order = plan_sequences_per_source(np.array([5, 9]), (1, 1))
    one = epochs_and_items_of_sequences(order, 0, np.array([10**15, 10**15 + 1]))
    other = epochs_and_items_of_sequences(order, 0, np.array([10**15 + 1]))
    assert one[1][1] == other[1][0]
    assert one[0][1] == other[0][0]
