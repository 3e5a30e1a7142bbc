"""The peak arithmetic speed of a device, the denominator of model FLOPs utilization."""

import statistics
import time

import jax
import jax.numpy as jnp

from bert_jax.chips import CHIPS


def peak_flops() -> float:
    """FLOP/s of one present device: from the table, or measured where the kind is not in it (a CPU)."""
    device = jax.devices()[0]
    if chip := CHIPS.get(device.device_kind):
        return chip.flops
    # The virtual devices of a CPU share its cores; a GPU is measured alone.
    return measured_flops() / (jax.local_device_count() if device.platform == "cpu" else 1)


def measured_flops() -> float:
    """FLOP/s of a float32 matrix product of 1,024 x 1,024, the median of 7 after a first; the whole host where CPU."""
    size = 1024
    x = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a).lower(x).compile()
    jax.block_until_ready(product(x))
    times = []
    for _ in range(7):
        began = time.perf_counter()
        jax.block_until_ready(product(x))
        times.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(times)
