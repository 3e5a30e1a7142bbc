"""Peak figures of accelerators: the vendors' data sheets as a table, and a measurement for devices not in it."""

import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Chip(NamedTuple):
    """One chip. A figure that its vendor does not publish is None."""

    name: str
    flops: float  # peak FLOP/s of bfloat16 matrix products with float32 grad_accum_steps, dense
    hbm_bytes: int  # what a program can use of the memory
    hbm_bandwidth: float  # bytes/s
    interconnect: float  # bytes/s that leave the chip over all its links (half of what is sold as bidirectional)
    watts: float | None
    cores: int  # a device of JAX is a chip, or one of this many cores of it
    source: str


def _usable(gibibytes: float) -> int:
    return int(gibibytes * 2**30)


# hbm_bytes of TPUs: what the compiler of libtpu 0.0.42 allows a program ("exceeds available HBM"), less than is sold.
# Watts: TPU v4 the mean of Jouppi et al. 2023, table 4 (90 to 192 W); Google publishes none of the later ones.
# NVIDIA's are the limits of the SXM modules.
_V4 = Chip(
    "TPU v4", 275e12, _usable(30.5), 1.2e12, 300e9, 170.0, 2, "docs.cloud.google.com/tpu/docs/v4; Jouppi et al. 2023"
)
_V5E = Chip("TPU v5e", 197e12, _usable(15.75), 819e9, 200e9, None, 1, "docs.cloud.google.com/tpu/docs/v5e")
_V5P = Chip("TPU v5p", 459e12, _usable(95.74), 2.765e12, 600e9, None, 2, "docs.cloud.google.com/tpu/docs/v5p")
_V6E = Chip("TPU v6e", 918e12, _usable(31.25), 1.638e12, 400e9, None, 1, "docs.cloud.google.com/tpu/docs/v6e")
_A100 = Chip("NVIDIA A100 80 GB", 312e12, _usable(80), 2.039e12, 300e9, 400.0, 1, "NVIDIA A100 data sheet, SXM")

# By jax.Device.device_kind.
CHIPS = {
    "TPU v4": _V4,
    "TPU v5 lite": _V5E,
    "TPU v5e": _V5E,
    "TPU v5": _V5P,
    "TPU v5p": _V5P,
    "TPU v6 lite": _V6E,
    "TPU v6e": _V6E,
    "NVIDIA A100-SXM4-40GB": _A100._replace(name="NVIDIA A100 40 GB", hbm_bytes=_usable(40), hbm_bandwidth=1.555e12),
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA H100 80GB HBM3": Chip(
        "NVIDIA H100", 989e12, _usable(80), 3.35e12, 450e9, 700.0, 1, "NVIDIA H100 data sheet, SXM"
    ),
    "NVIDIA H200": Chip(
        "NVIDIA H200", 989e12, _usable(141e9 / 2**30), 4.8e12, 450e9, 700.0, 1, "NVIDIA H200 data sheet"
    ),
}


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
