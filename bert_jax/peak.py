"""The peak arithmetic speed of a device, the denominator of model FLOPs utilization."""

import statistics
import time

import jax
import jax.numpy as jnp

# bf16 matrix products with fp32 accumulation, dense, FLOP/s a device as JAX counts devices: the vendors' data sheets.
PEAK_FLOPS = {
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}


def peak_flops() -> float:
    """FLOP/s of one present device: from the table, or measured where the kind is not in it (a CPU)."""
    device = jax.devices()[0]
    if device.device_kind in PEAK_FLOPS:
        return PEAK_FLOPS[device.device_kind]
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
