"""Random bits against published vectors, and their statistics."""

import numpy as np
import pytest
from scipy import stats

from bert_jax.batches.hashing import Stream, permuted_indices, random_bits, uniform_floats, uniform_integers

ALPHA = 1e-4  # of each statistical test; the seeds are fixed, so a pass stays one


def test_splitmix64_published_outputs():
    # Seeds 1234567 (Rosetta Code, "Pseudo-random numbers/Splitmix64") and 0 (the Java and C reference outputs).
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_bits(1234567, np.arange(4)).tolist() == published
    assert random_bits(0, np.arange(2)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


def test_counters_broadcast_and_nest():
    examples, positions = np.arange(5)[:, None], np.arange(7)
    bits = random_bits(3, Stream.MASK_KIND, examples, positions)
    assert bits.shape == (5, 7)
    assert bits.dtype == np.uint64
    assert bits[4, 6] == random_bits(3, Stream.MASK_KIND, 4, 6)[0]
    assert np.array_equal(bits, random_bits(random_bits(3, Stream.MASK_KIND, examples), positions))
    assert len(np.unique(bits)) == bits.size


def test_seed_is_taken_modulo_2_to_64():
    assert random_bits(-1, 0)[0] == random_bits(2**64 - 1, 0)[0]
    assert random_bits(-1, 0)[0] == random_bits(np.int64(-1), 0)[0]


def test_uniform_and_integers_are_uniform():
    bits = random_bits(11, Stream.CUT, np.arange(200_000))
    assert stats.kstest(uniform_floats(bits), "uniform").pvalue > ALPHA
    for high in (2, 3, 7, 100, 1000):
        drawn = uniform_integers(bits, high)
        assert drawn.min() == 0
        assert drawn.max() == high - 1
        assert stats.chisquare(np.bincount(drawn, minlength=high)).pvalue > ALPHA


def test_integers_take_an_array_of_bounds_and_stay_below_them():
    highest = np.full(60, 2**64 - 1, np.uint64)
    bounds = np.concatenate([2 ** np.arange(54)[:30], 3 ** np.arange(30)])
    assert np.array_equal(uniform_integers(highest, bounds), bounds - 1)


def test_every_bit_is_fair_and_neighbors_are_independent():
    count = 1 << 16
    bits = np.unpackbits(random_bits(5, 0, np.arange(count)).view(np.uint8)).reshape(count, 64).astype(np.float64)
    limit = stats.norm.isf(ALPHA / 2 / 64**2)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < limit * 0.5 / count**0.5
    assert np.abs(np.corrcoef(bits[:-1].T, bits[1:].T)[:64, 64:]).max() < limit / count**0.5


def test_streams_and_seeds_are_independent():
    count = 1 << 16
    draws = [uniform_floats(random_bits(0, stream, np.arange(count))) for stream in Stream]
    draws += [uniform_floats(random_bits(seed, Stream.ORDER, np.arange(count))) for seed in (1, 2, 3)]
    correlation = np.corrcoef(draws) - np.eye(len(draws))
    assert np.abs(correlation).max() < stats.norm.isf(ALPHA / len(draws) ** 2) / count**0.5


@pytest.mark.parametrize("size", [*range(1, 70), 100, 127, 128, 129, 1000, 4095, 4097, 99_991])
def test_permute_is_a_bijection(size):
    for seed in (0, 1, 2**63):
        assert np.array_equal(np.sort(permuted_indices(np.arange(size), size, seed)), np.arange(size))


def test_permute_takes_a_seed_for_each_index():
    index = np.arange(50)
    seeds = random_bits(0, index % 3)
    whole = [permuted_indices(index, 50, seeds[k]) for k in range(3)]
    assert np.array_equal(permuted_indices(index, 50, seeds), np.choose(index % 3, whole))


def test_permute_of_a_large_range():
    size = 10**12 + 39
    images = permuted_indices(np.arange(10_000), size, 0)
    assert len(np.unique(images)) == 10_000
    assert stats.kstest(images / size, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("size", [2, 3, 5, 6, 10])
def test_permute_is_uniform_over_seeds(size):
    seeds = random_bits(9, np.arange(20_000))
    images = np.stack([permuted_indices(np.full(len(seeds), index), size, seeds) for index in range(size)])
    for row in images:
        assert stats.chisquare(np.bincount(row, minlength=size)).pvalue > ALPHA
    # Whether neighbors swap order: a network of too few rounds would keep it.
    assert stats.binomtest(int((images[0] < images[1]).sum()), len(seeds)).pvalue > ALPHA
