"""Elements that dropout drops: equal to the CPU's, in the right fraction, neighbors independent of each other."""

import functools
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device.attention_check import kernels_here
from benchmarks.device.report import Result
from bert_jax.models.attention import KERNELS, AttentionInputs
from bert_jax.models.dropout import dropout, row_keys

RATE, SIGMAS = 0.1, 5.0
SHAPE = (64, 128, 256)
BATCH, HEADS, LENGTH = 32, 4, 64  # LENGTH features per head as well


def of_layers() -> jax.Array:
    """Return the elements that the dropout of layers keeps, bool."""
    return jax.jit(lambda x: dropout(x, RATE, jnp.array([3, 9], jnp.uint32)) != 0)(jnp.ones(SHAPE))


def of_attention(kernel: str, dtype: str) -> jax.Array:
    """Return the probabilities that a kernel keeps, bool: with equal scores and unit vectors as values."""
    zeros = jnp.zeros((BATCH, LENGTH, HEADS * LENGTH), dtype)
    values = jnp.tile(jnp.eye(LENGTH, dtype=dtype), (BATCH, 1, HEADS))
    keys = jnp.stack(row_keys(jnp.array([3, 9], jnp.uint32), BATCH * HEADS), -1).reshape(BATCH, HEADS, 2)
    mask = jnp.ones((BATCH, LENGTH), jnp.int32)
    inputs = AttentionInputs(q=zeros, k=zeros, v=values, mask=mask, segments=None, dropout_keys=keys)
    return jax.jit(lambda inputs: KERNELS[kernel].attend(inputs, RATE) != 0)(inputs)


def statistics(name: str, is_kept: np.ndarray, expected: np.ndarray) -> Iterator[Result]:
    """Yield the fraction that differs from the CPU, and deviations from independent draws, in standard deviations."""
    centered = is_kept.astype(np.float64) - (1 - RATE)
    variance = RATE * (1 - RATE)
    fraction = abs(centered.sum()) / math.sqrt(is_kept.size * variance)
    products = centered[..., 1:] * centered[..., :-1]
    neighbors = abs(products.sum()) / (math.sqrt(products.size) * variance)
    yield Result(f"dropout of {name}: elements unlike the CPU's", float((is_kept != expected).mean()), 0.0)
    yield Result(f"dropout of {name}: fraction, in sigmas", fraction, SIGMAS)
    yield Result(f"dropout of {name}: neighbors, in sigmas", neighbors, SIGMAS)


def check_dropout() -> Iterator[Result]:
    """Yield the statistics of layers, and of each kernel with dropout."""
    cpu = jax.devices("cpu")[0]
    ways: list[tuple[str, Callable[[], jax.Array], Callable[[], jax.Array]]] = [("layers", of_layers, of_layers)]
    for kernel, dtypes in kernels_here().items():
        if KERNELS[kernel].dropout:
            mine = functools.partial(of_attention, kernel, dtypes[-1])
            ways.append((f"attention by {kernel}", mine, functools.partial(of_attention, "xla", "float32")))
    for name, of_device, of_cpu in ways:
        with jax.default_device(cpu):
            expected = jax.device_get(of_cpu())
        yield from statistics(name, jax.device_get(of_device()), expected)
