"""Random bits as a pure function of counters: what makes a row independent of everything that was read before it.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), used as a
hash: output number `counter` of the generator seeded with `state` is at hand without making those before it.
"""

import enum

import numpy as np
from numpy.typing import ArrayLike

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = 4


class Stream(enum.IntEnum):
    """What random bits are for; two streams share none. The numbers are part of the meaning of a seed: only append."""

    ORDER = 0  # of the slots in an epoch
    OFFSET = 1  # of a document's slots in an epoch
    SHORT = 2  # whether a row's target is short
    TARGET = 3  # of a short row
    SIDE = 4  # of the slot that the window is taken from
    RANDOM_NEXT = 5  # whether the second part comes from another document
    CUT = 6  # between the two parts of a window
    OTHER = 7  # document and slot of a random second part
    OTHER_SIDE = 8  # of that slot
    TRUNCATE_FIRST = 9  # front or back, a bit a token
    TRUNCATE_SECOND = 10
    MASK_POSITION = 11  # which tokens are predicted
    MASK_KIND = 12  # replaced by [MASK], by a random token, or kept
    MASK_TOKEN = 13  # the random token
    MIXTURE = 14  # of the rows of several sources in an epoch
    PACKING = 15  # which examples of a length share a row
    SWAP = 16  # whether two parts change places
    MASK_WORDS = 17  # how many are masked together


def random_bits(seed: ArrayLike, *counters: ArrayLike) -> np.ndarray:
    """64 random bits for each combination of counters.

    Args:
        seed: integer or integer array, taken modulo 2**64.
        *counters: integers or integer arrays that broadcast against each other, such as stream, row, position.

    Returns:
        uint64 of the broadcast shape; never a scalar, at least `[1]`.
    """
    state = _as_uint64(seed)
    for counter in counters:
        state = _splitmix64(state, _as_uint64(counter))
    return state


def uniform(bits: np.ndarray) -> np.ndarray:
    """Random bits uint64 as float64 in [0, 1), on a grid of 2**-53."""
    return (bits >> np.uint64(11)) * 2.0**-53


def integers(bits: np.ndarray, high: ArrayLike) -> np.ndarray:
    """Random bits uint64 as int64 in [0, high); `high` from 1 to 2**53, the bias below high / 2**53."""
    return (uniform(bits) * high).astype(np.int64)


def permute(index: np.ndarray, size: ArrayLike, seed: ArrayLike) -> np.ndarray:
    """Places of `index` in a pseudo-random permutation of range(size), without making the permutation.

    A Feistel network over pairs of digits with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002): the pairs number less than `size` + sqrt(`size`) + 1, so few indices walk.

    Args:
        index: int64 [n], each in [0, size).
        size: at least 1, below 2**52; integers that broadcast to [n].
        seed: likewise; one permutation each.

    Returns:
        int64 [n], each in [0, size).
    """
    place = np.array(index, np.int64)
    size = np.asarray(size, np.int64)
    left_size = np.ceil(np.sqrt(size)).astype(np.int64)
    right_size = -(-size // left_size)
    # The bits of each turn, before those of the digits.
    turns = random_bits(np.broadcast_to(_as_uint64(seed), place.shape), np.arange(2 * _ROUNDS)[:, None])
    walking = np.arange(len(place))
    while walking.size:
        lefts, rights, sizes = ((x[walking] if x.ndim else x) for x in (left_size, right_size, size))
        seeds = turns[:, walking]
        left, right = np.divmod(place[walking], rights)
        for turn in range(_ROUNDS):
            left = (left + integers(random_bits(seeds[2 * turn], right), lefts)) % lefts
            right = (right + integers(random_bits(seeds[2 * turn + 1], left), rights)) % rights
        place[walking] = left * rights + right
        walking = walking[place[walking] >= sizes]
    return place


def _as_uint64(value: ArrayLike) -> np.ndarray:
    if isinstance(value, int):
        value = value % (1 << 64)
    return np.atleast_1d(np.asarray(value)).astype(np.uint64)


def _splitmix64(state: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Output `counter` (from 0) of the SplitMix64 generator seeded with `state`; both uint64, broadcast."""
    bits = (counter + np.uint64(1)) * _GAMMA + state
    spare = bits >> np.uint64(30)
    bits ^= spare
    bits *= np.uint64(0xBF58476D1CE4E5B9)
    bits ^= np.right_shift(bits, np.uint64(27), out=spare)
    bits *= np.uint64(0x94D049BB133111EB)
    bits ^= np.right_shift(bits, np.uint64(31), out=spare)
    return bits
