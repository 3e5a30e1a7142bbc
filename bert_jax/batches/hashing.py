"""Random bits as a pure function of counters, so that a sequence does not depend on the sequences read before it.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), used as a
hash. Output number `counter` of the generator with seed `state` is computed without the outputs before it.
"""

import enum

import numpy as np
from numpy.typing import ArrayLike

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 4


class Stream(enum.IntEnum):
    """Purposes of random bits; two streams have no bits in common.

    Add new members only at the end: if the number of a member changes, a seed gives other data.
    """

    ORDER = 0  # order of the items of a source in an epoch
    OFFSET = 1  # where the slots of a document begin in an epoch
    SHORT = 2  # whether the target length of an example is short
    TARGET = 3  # the short target length
    SIDE = 4  # from which side of the slot the first text is gathered
    RANDOM_NEXT = 5  # whether the second text comes from another document
    CUT = 6  # where a window is cut into two texts
    OTHER = 7  # document and slot from which a random second text comes
    OTHER_SIDE = 8  # from which side of its slot a random second text is gathered
    TRUNCATE_FIRST = 9  # removal of a token from the front or the back of the first text, one bit per token
    TRUNCATE_SECOND = 10  # removal of a token from the front or the back of the second text
    MASK_POSITION = 11  # which tokens of an example are predicted
    MASK_KIND = 12  # whether a predicted token becomes [MASK], becomes a random token, or stays
    MASK_TOKEN = 13  # the random token that replaces a predicted token
    MIXTURE = 14  # order of the sequences of several sources in an epoch
    PACKING = 15  # which examples of one length share a sequence
    SWAP = 16  # whether the two texts of a pair change places
    MASK_WORDS = 17  # number of words masked together
    TEXT_PAIR_ORDER = 18  # order of the records that give pairs of texts
    TEXT_PAIR = 19  # the two texts of a pair for sentence vectors
    NEGATIVES = 20  # documents drawn as negatives of a pair


def random_bits(seed: ArrayLike, *counters: ArrayLike) -> np.ndarray:
    """Return 64 random bits for each combination of counters.

    Args:
        seed: integer or integer array, reduced modulo 2**64.
        *counters: integers or integer arrays that broadcast against each other, such as stream, example, position.

    Returns:
        uint64 of the broadcast shape, with at least one dimension.
    """
    state = _as_uint64(seed)
    for counter in counters:
        state = _splitmix64(state, _as_uint64(counter))
    return state


def uniform_floats(bits: np.ndarray) -> np.ndarray:
    """Convert uint64 random bits to float64 multiples of 2**-53 in [0, 1)."""
    return (bits >> np.uint64(11)) * 2.0**-53


def uniform_integers(bits: np.ndarray, high: ArrayLike) -> np.ndarray:
    """Convert uint64 random bits to int64 in [0, high), for `high` from 1 to 2**53; the bias is below high / 2**53."""
    return (uniform_floats(bits) * high).astype(np.int64)


def permuted_indices(index: np.ndarray, size: ArrayLike, seed: ArrayLike) -> np.ndarray:
    """Return the images of `index` under a pseudo-random permutation of range(size); no permutation is stored.

    The method is a Feistel network over pairs of digits with cycle walking (Black and Rogaway, "Ciphers with arbitrary
    finite domains", 2002). There are fewer than `size` + sqrt(`size`) + 1 pairs, so few indices need cycle walking.

    Args:
        index: int64 [n], each in [0, size).
        size: integers that broadcast to [n], at least 1 and below 2**52.
        seed: integers that broadcast to [n]; each seed gives another permutation.

    Returns:
        int64 [n], each in [0, size).
    """
    image = np.array(index, np.int64)
    size = np.asarray(size, np.int64)
    left_size = np.ceil(np.sqrt(size)).astype(np.int64)
    right_size = -(-size // left_size)
    # Each half-round has separate random bits; the loop below combines the bits with a digit of the index.
    rounds = random_bits(np.broadcast_to(_as_uint64(seed), image.shape), np.arange(2 * _ROUNDS)[:, None])
    walking = np.arange(len(image))
    while walking.size:
        lefts, rights, sizes = ((x[walking] if x.ndim else x) for x in (left_size, right_size, size))
        seeds = rounds[:, walking]
        left, right = np.divmod(image[walking], rights)
        for round_ in range(_ROUNDS):
            left = (left + uniform_integers(random_bits(seeds[2 * round_], right), lefts)) % lefts
            right = (right + uniform_integers(random_bits(seeds[2 * round_ + 1], left), rights)) % rights
        image[walking] = left * rights + right
        walking = walking[image[walking] >= sizes]
    return image


def _as_uint64(integers: ArrayLike) -> np.ndarray:
    """Return integers modulo 2**64 as a uint64 array of at least one dimension."""
    if isinstance(integers, int):
        integers = integers % (1 << 64)
    return np.atleast_1d(np.asarray(integers)).astype(np.uint64)


def _splitmix64(state: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Return output number `counter` (from 0) of SplitMix64 with seed `state`; the two uint64 arrays broadcast."""
    bits = (counter + np.uint64(1)) * _GAMMA + state
    spare = bits >> np.uint64(30)
    bits ^= spare
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= np.right_shift(bits, np.uint64(27), out=spare)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= np.right_shift(bits, np.uint64(31), out=spare)
    return bits
