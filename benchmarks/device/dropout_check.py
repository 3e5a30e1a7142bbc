"""Check dropout: the dropped elements equal the CPU's, have the right fraction, and neighbors are independent."""

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
BATCH, HEADS, LENGTH = 32, 4, 64  # a head also has LENGTH features


def of_layers() -> jax.Array:
    """Return a bool array of the elements that the dropout of layers keeps."""
    return jax.jit(lambda x: dropout(x, RATE, jnp.array([3, 9], jnp.uint32)) != 0)(jnp.ones(SHAPE))


def of_attention(kernel: str, dtype: str) -> jax.Array:
    """Return which probabilities a kernel keeps, as a bool array; scores are equal, and values are unit vectors."""
    zeros = jnp.zeros((BATCH, LENGTH, HEADS * LENGTH), dtype)
    values = jnp.tile(jnp.eye(LENGTH, dtype=dtype), (BATCH, 1, HEADS))
    keys = jnp.stack(row_keys(jnp.array([3, 9], jnp.uint32), BATCH * HEADS), -1).reshape(BATCH, HEADS, 2)
    mask = jnp.ones((BATCH, LENGTH), jnp.int32)
    inputs = AttentionInputs(q=zeros, k=zeros, v=values, mask=mask, segments=None, dropout_keys=keys)
    return jax.jit(lambda inputs: KERNELS[kernel].attend(inputs, RATE) != 0)(inputs)


def statistics(name: str, is_kept: np.ndarray, expected: np.ndarray) -> Iterator[Result]:
    """Yield the fraction of elements unlike the CPU's, and deviations from independent draws (in units of sigma)."""
    centered = is_kept.astype(np.float64) - (1 - RATE)
    variance = RATE * (1 - RATE)
    fraction = abs(centered.sum()) / math.sqrt(is_kept.size * variance)
    products = centered[..., 1:] * centered[..., :-1]
    neighbors = abs(products.sum()) / (math.sqrt(products.size) * variance)
    yield Result(f"dropout of {name}: elements unlike the CPU's", float((is_kept != expected).mean()), 0.0)
    yield Result(f"dropout of {name}: fraction, in sigmas", fraction, SIGMAS)
    yield Result(f"dropout of {name}: neighbors, in sigmas", neighbors, SIGMAS)


def check_dropout() -> Iterator[Result]:
    """Yield the statistics of the dropout of layers, and of each attention kernel with dropout."""
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
