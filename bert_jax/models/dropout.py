"""Dropout whose mask is a hash of (seed, element index), so that masks take no memory and do not depend on the mesh.

Each row of the first axis gets a key of 64 bits from the seed of the call. The random bits of an element are
`hash(index, key)`, 32 bits. The hash is integer arithmetic on an iota, which XLA fuses into the next operation. The
backward pass recomputes the mask.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.parallel.sharding import first_row_of_shard

SEED_WORDS = 2


def dropout_seeds(rng: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return an array of seeds, each for one call of `dropout`, uint32 `[*shape, 2]`."""
    return jax.random.bits(rng, (*shape, SEED_WORDS), jnp.uint32)


def dropout(x: jax.Array, rate: float, seed: jax.Array | None) -> jax.Array:
    """Zero elements of `x` with probability `rate` and scale the others by `1 / (1 - rate)`.

    The array `x` is floating-point, with at least one axis. The seed is uint32 `[2]`; if the seed is None, `x` is
    returned unchanged.
    """
    if seed is None or rate == 0.0:
        return x
    return _checkpointed_dropout(x, rate, seed)


# Checkpointed, so that the backward pass saves the seed and not the mask.
@functools.partial(jax.checkpoint, static_argnums=(1,), prevent_cse=False)
def _checkpointed_dropout(x: jax.Array, rate: float, seed: jax.Array) -> jax.Array:
    """Apply dropout with a rate above 0."""
    is_kept = random_uint32(seed, x.shape) >= _keep_threshold(rate)
    return jnp.where(is_kept, x * jnp.asarray(1.0 / (1.0 - rate), x.dtype), jnp.zeros((), x.dtype))


def keep_mask(index: jax.Array, first_key: jax.Array, second_key: jax.Array, rate: float) -> jax.Array:
    """Return whether to keep element `index` of the row with these two key words; False has probability `rate`."""
    return _hash_with_keys(index, first_key, second_key) >= _keep_threshold(rate)


def drop_elements(
    x: jax.Array, index: jax.Array, first_key: jax.Array, second_key: jax.Array, rate: float
) -> jax.Array:
    """Return the array with zeros where `keep_mask` is False, and all other elements scaled by `1 / (1 - rate)`.

    The function multiplies by the mask, because the TPU compiler (libtpu 0.0.42) crashes on a select of a softmax in
    bfloat16 models.
    """
    return x * jnp.where(keep_mask(index, first_key, second_key, rate), 1 / (1 - rate), 0.0)


class RowKeys(NamedTuple):
    """The two key words of each row, uint32 `[rows]`."""

    first: jax.Array
    second: jax.Array


def row_keys(seed: jax.Array, num_rows: int) -> RowKeys:
    """Return the two key words of each row of the first axis, each uint32 `[num_rows]`."""
    first = _hash_with_keys(first_row_of_shard(num_rows) + jax.lax.iota(jnp.uint32, num_rows), seed[0], seed[1])
    return RowKeys(first, _hash_with_keys(first, seed[1], seed[0]))


def random_uint32(seed: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return a uint32 array of random numbers, in effect uniform and independent; the seed is uint32 `[2]`.

    The hash is a finalizer like murmur3's, with the multipliers of `lowbias32` by Chris Wellons. The second key
    word enters between the two rounds of the hash, so that rows with similar first words do not share a permuted mask.
    """
    first, second = row_keys(seed, shape[0])
    key_shape = (shape[0],) + (1,) * (len(shape) - 1)
    return _hash_with_keys(_index_in_row(shape), first.reshape(key_shape), second.reshape(key_shape))


def _keep_threshold(rate: float) -> jax.Array:
    """Return the smallest random uint32 with which an element is kept."""
    return jnp.uint32(round(rate * 2**32))


def _index_in_row(shape: tuple[int, ...]) -> jax.Array:
    """Return the index of each element within its row of the first axis, as a uint32 array of `shape`."""
    terms = [
        jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(math.prod(shape[axis + 1 :]))
        for axis in range(1, len(shape))
    ]
    return sum(terms, jnp.zeros(shape, jnp.uint32))


def _hash_with_keys(x: jax.Array, first_key: jax.Array, second_key: jax.Array) -> jax.Array:
    """Return the hashes of a uint32 array under two key words."""
    x = x ^ first_key
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = x + second_key
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
