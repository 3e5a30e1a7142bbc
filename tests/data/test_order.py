"""Orders of rows: permutations of each epoch, exact shares of several sources, and nothing that depends on the past."""

import numpy as np
import pytest
from scipy import stats

from bert_jax.data.sequences.order import locate, make_order


def test_each_epoch_of_one_source_has_every_place_once():
    order = make_order(np.array([97]))
    epoch, place = locate(order, 3, np.arange(3 * 97))
    assert np.array_equal(epoch, np.repeat([0, 1, 2], 97))
    orders = place.reshape(3, 97)
    assert all(np.array_equal(np.sort(one), np.arange(97)) for one in orders)
    assert not np.array_equal(orders[0], orders[1])


def test_without_weights_an_epoch_of_several_sources_has_every_place_once():
    order = make_order(np.array([50, 1, 200]))
    epoch, place = locate(order, 3, np.arange(2 * 251))
    assert np.array_equal(epoch, np.repeat([0, 1], 251))
    assert np.array_equal(np.sort(place[:251]), np.arange(251))
    assert (np.diff(place[:251]) != 1).mean() > 0.9  # mixed, not one after the other


@pytest.mark.parametrize(("weights", "smoothing"), [((1, 2, 1), 1.0), ((), 0.7), ((), 0.0), ((0.2, 0, 5), 1.0)])
def test_shares_of_sources(weights, smoothing):
    sizes = np.array([1000, 100, 10])
    order = make_order(sizes, weights, smoothing)
    wanted = np.array(weights) if weights else sizes**smoothing
    expected = np.rint(sizes.sum() * wanted / wanted.sum())
    assert order.rows.tolist() == expected.tolist()
    _, place = locate(order, 0, np.arange(5 * order.per_epoch))
    source = np.searchsorted([1000, 1100], place, side="right")
    for epoch in source.reshape(5, -1):
        assert np.bincount(epoch, minlength=3).tolist() == expected.tolist()


def test_a_source_goes_through_epochs_of_its_own():
    """Whatever its share, a source gives each of its places once before any for the second time."""
    order = make_order(np.array([40, 7]), (1, 3))
    epoch, place = locate(order, 1, np.arange(20 * order.per_epoch))
    for first, size in ((0, 40), (40, 7)):
        own = (place >= first) & (place < first + size)
        whole = epoch[own].max()
        for one in range(whole):
            assert sorted((place[own][epoch[own] == one] - first).tolist()) == list(range(size))


def test_a_source_with_places_gets_a_row_and_an_empty_one_none():
    order = make_order(np.array([10_000, 1, 0]), (), 1e-9 + 0.999)
    assert order.rows[1] == 1
    assert order.rows[2] == 0
    _, place = locate(order, 0, np.arange(order.per_epoch))
    assert place.max() == 10_000


def test_neighbours_are_uniform():
    """The place of a row says nothing of the next row's."""
    order = make_order(np.array([1000]))
    _, place = locate(order, 0, np.arange(100_000))
    table = np.histogram2d(place[:-1:2] // 100, place[1::2] // 100, bins=10)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_far_rows_cost_nothing():
    order = make_order(np.array([5, 9]), (1, 1))
    one = locate(order, 0, np.array([10**15, 10**15 + 1]))
    other = locate(order, 0, np.array([10**15 + 1]))
    assert one[1][1] == other[1][0]
    assert one[0][1] == other[0][0]
