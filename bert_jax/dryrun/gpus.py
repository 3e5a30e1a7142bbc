"""Compile-only NVIDIA GPUs of one host: XLA's CUDA compiler needs only a description of a GPU, no real GPU.

To add a GPU, add a row to GPUS, and a row with its peak figures to `bert_jax/parallel/chips.py`.
"""

import importlib.util
import os
from typing import Any, NamedTuple

from bert_jax.errors import UserError

INSTALL = "in an environment of its own, pip install 'jax[cuda13-local]' nvidia-cudnn-cu13"
MAX_GPUS = 8  # maximum number of GPUs of one host


class Gpu(NamedTuple):
    """The properties of a GPU that XLA's compiler needs, from NVIDIA's guides; for the SXM module if one exists."""

    device_kind: str  # value of jax.Device.device_kind
    capability: tuple[int, int]
    processors: int  # streaming multiprocessors
    lanes: int  # float32 units of a multiprocessor
    threads: int  # resident threads of a multiprocessor
    shared_kib: int  # shared memory of a multiprocessor in KiB; a thread block can use all of it except 1 KiB
    l2_mib: int
    gigahertz: float  # boost clock


GPUS = {
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 2048, 164, 40, 1.41),
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 128, 2048, 228, 50, 1.98),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 128, 2048, 228, 50, 1.98),
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 128, 2048, 228, 126, 1.965),
    "l40s": Gpu("NVIDIA L40S", (8, 9), 142, 128, 1536, 100, 96, 2.52),
}


def compile_only_gpus(name: str, chip: str, count: int) -> list[Any]:
    """Return `count` compile-only GPUs; raise UserError if the compiler is missing.

    Call this function before JAX is imported: unless JAX_PLATFORMS is set, the function keeps JAX on the CPU.
    """
    if not any(importlib.util.find_spec(f"jax_cuda{cuda}_plugin") for cuda in (12, 13)):
        raise UserError(f"--topology={name} needs the CUDA compiler: {INSTALL}")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # The plugin of JAX 0.12 otherwise wants libraries, such as cuFFT, that only a run on a GPU needs.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    from jax.experimental.topologies import get_topology_desc

    # The topology is the number of hosts, of processes of a host, and of devices of a process.
    options = {"topology": f"1x1x{count}", "target_config": xla_target_config_text(GPUS[chip])}
    return list(get_topology_desc(platform="cuda", **options).devices)


def xla_target_config_text(gpu: Gpu) -> str:
    """Return XLA's description of a GPU, which is the text of a `GpuTargetConfigProto`."""
    from bert_jax.parallel.chips import CHIPS

    chip = CHIPS[gpu.device_kind]
    major, minor = gpu.capability
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: {gpu.threads}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: {2**16 - 1}
  block_dim_limit_z: {2**16 - 1}
  core_count: {gpu.processors}
  fpus_per_core: {gpu.lanes}
  registers_per_core_limit: {2**16}
  registers_per_block_limit: {2**16}
  shared_memory_per_block: {48 * 2**10}
  shared_memory_per_block_optin: {(gpu.shared_kib - 1) * 2**10}
  shared_memory_per_core: {gpu.shared_kib * 2**10}
  l2_cache_size: {gpu.l2_mib * 2**20}
  clock_rate_ghz: {gpu.gigahertz}
  device_memory_size: {chip.hbm_bytes}
  memory_bandwidth: {int(chip.hbm_bandwidth)}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 }}
runtime_version {{ major: 13 }}
device_description_str: "{gpu.device_kind}"
"""
