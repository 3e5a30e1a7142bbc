"""Peak figures of accelerators from the vendors' data sheets, and a measurement for CPUs.

To add a chip, add a row to CHIPS.
"""

import dataclasses
import functools
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """Peak figures of a chip; None if the vendor publishes no figure."""

    name: str
    flops: float  # peak FLOP/s of bfloat16 matrix products with float32 accumulation, dense
    hbm_bytes: int  # memory that a program can use
    hbm_bandwidth: float  # bytes/s
    interconnect: float  # bytes/s sent over all links (half of the bidirectional figure)
    watts: float | None = None
    cores: int = 1  # number of cores; a JAX device is the whole chip or one of its cores
    source: str


def _gib_to_bytes(num_gib: float) -> int:
    return int(num_gib * 2**30)


# hbm_bytes of TPUs: the limit of the compiler in libtpu 0.0.42 ("exceeds available HBM"), below the advertised size.
# Watts of TPU v4 are the mean of Jouppi et al. 2023, table 4 (90 to 192 W); Google publishes none for later TPUs.
# Watts of NVIDIA's GPUs are the power limits of the SXM modules, or of the card if there is no SXM module.
_V4 = Chip(
    name="TPU v4",
    flops=275e12,
    hbm_bytes=_gib_to_bytes(30.5),
    hbm_bandwidth=1.2e12,
    interconnect=300e9,
    watts=170.0,
    cores=2,
    source="docs.cloud.google.com/tpu/docs/v4; Jouppi et al. 2023",
)
_V5E = Chip(
    name="TPU v5e",
    flops=197e12,
    hbm_bytes=_gib_to_bytes(15.75),
    hbm_bandwidth=819e9,
    interconnect=200e9,
    source="docs.cloud.google.com/tpu/docs/v5e",
)
_V5P = Chip(
    name="TPU v5p",
    flops=459e12,
    hbm_bytes=_gib_to_bytes(95.74),
    hbm_bandwidth=2.765e12,
    interconnect=600e9,
    cores=2,
    source="docs.cloud.google.com/tpu/docs/v5p",
)
_V6E = Chip(
    name="TPU v6e",
    flops=918e12,
    hbm_bytes=_gib_to_bytes(31.25),
    hbm_bandwidth=1.638e12,
    interconnect=400e9,
    source="docs.cloud.google.com/tpu/docs/v6e",
)
_TPU7X = Chip(
    name="TPU7x",
    flops=2307e12,
    hbm_bytes=_gib_to_bytes(189.5),
    hbm_bandwidth=7.38e12,
    interconnect=600e9,
    cores=2,
    source="docs.cloud.google.com/tpu/docs/tpu7x",
)
_A100 = Chip(
    name="NVIDIA A100 80 GB",
    flops=312e12,
    hbm_bytes=_gib_to_bytes(80),
    hbm_bandwidth=2.039e12,
    interconnect=300e9,
    watts=400.0,
    source="NVIDIA A100 data sheet, SXM",
)

# Value of jax.Device.device_kind -> chip.
CHIPS = {
    "TPU v4": _V4,
    "TPU v5 lite": _V5E,
    "TPU v5e": _V5E,
    "TPU v5": _V5P,
    "TPU v5p": _V5P,
    "TPU v6 lite": _V6E,
    "TPU v6e": _V6E,
    "TPU7x": _TPU7X,
    "NVIDIA A100-SXM4-40GB": dataclasses.replace(
        _A100, name="NVIDIA A100 40 GB", hbm_bytes=_gib_to_bytes(40), hbm_bandwidth=1.555e12
    ),
    "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA H100 80GB HBM3": Chip(
        name="NVIDIA H100",
        flops=989e12,
        hbm_bytes=_gib_to_bytes(80),
        hbm_bandwidth=3.35e12,
        interconnect=450e9,
        watts=700.0,
        source="NVIDIA H100 data sheet, SXM",
    ),
    "NVIDIA H200": Chip(
        name="NVIDIA H200",
        flops=989e12,
        hbm_bytes=int(141e9),
        hbm_bandwidth=4.8e12,
        interconnect=450e9,
        watts=700.0,
        source="NVIDIA H200 data sheet",
    ),
    "NVIDIA B200": Chip(
        name="NVIDIA B200",
        flops=2.25e15,
        hbm_bytes=int(180e9),
        hbm_bandwidth=7.7e12,
        interconnect=900e9,
        watts=1000.0,
        source="NVIDIA HGX B200 data sheet, an eighth",
    ),
    # The interconnect of the L40S is PCIe 4.0 x16, because the L40S has no NVLink.
    "NVIDIA L40S": Chip(
        name="NVIDIA L40S",
        flops=362e12,
        hbm_bytes=int(48e9),
        hbm_bandwidth=864e9,
        interconnect=32e9,
        watts=350.0,
        source="NVIDIA L40S data sheet",
    ),
}


def fraction_of_chip(device: Any) -> float:
    """Return the fraction of a chip that a JAX device is: 1, or less if each core of the chip is a device."""
    chip = CHIPS.get(device.device_kind)
    return getattr(device, "num_cores", chip.cores) / chip.cores if chip and chip.cores > 1 else 1.0


def peak_flops() -> float | None:
    """Return the peak FLOP/s of a device of this machine, from the table or, on a CPU, measured; None if unknown.

    Accelerators that are missing in the table are not measured, since a float32 product does not show the speed of
    their bfloat16 units.
    """
    device = jax.devices()[0]
    if chip := CHIPS.get(device.device_kind):
        return chip.flops * fraction_of_chip(device)
    # The virtual devices of a CPU share its cores.
    return measure_matmul_flops() / jax.local_device_count() if device.platform == "cpu" else None


@functools.cache  # a process that trains several models measures once
def measure_matmul_flops() -> float:
    """Return the FLOP/s of a float32 product of two 1,024 x 1,024 matrices: median of 7 after one warmup.

    On a CPU, the result is the speed of the whole host.
    """
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
