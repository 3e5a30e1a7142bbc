"""The platform of a run, the options of its compiler, and the cache of compiled programs.

The user or JAX chooses the platform; a fallback to the CPU despite a plugin is an error.
"""

import contextlib
import importlib.util
import os
import pathlib
import time
import zlib
from collections.abc import Callable

import jax

from bert_jax.errors import UserError
from bert_jax.files import user_cache

# Module of a JAX plugin -> its devices, and the things to check if JAX finds no such device.
PLUGINS = {
    "jax_cuda13_plugin": ("GPUs", "nvidia-smi and its driver, 580 or newer; older drivers need the extra cuda12"),
    "jax_cuda12_plugin": ("GPUs", "nvidia-smi and its driver, 525 or newer"),
    "libtpu": ("TPUs", "that this host has a TPU, which no other process holds"),
}
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"  # first bytes of a frame of zstd
CHECKED = ".checked"  # file whose time of modification is the time of the last check of the compiled programs
SECONDS_OF_WRITING = 60.0  # an entry that is older is not being written
OLDEST_GPU = (8, 0)  # lowest compute capability with fused kernels: Ampere


def use_platform(platform: str | None) -> None:
    """Make JAX compute on 'cpu', 'cuda' or 'tpu'; None: JAX chooses. Call this before any use of a device."""
    if platform:
        jax.config.update("jax_platforms", platform)


def traced_platform() -> str:
    """Return the platform of the current mesh, whose devices may be absent (a dry run): 'cpu', 'gpu' or 'tpu'."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def cpu_has_bfloat16() -> bool:
    """Return whether this machine's CPU has instructions that multiply bfloat16 numbers, as far as Linux tells."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith("flags")), "").split()
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def runs_fused_kernels() -> bool:
    """Return False on GPUs without fused kernels (older than Ampere, or not by NVIDIA), otherwise True."""
    if jax.default_backend() != "gpu":
        return True
    device = jax.local_devices()[0]
    if "cuda" not in device.client.platform_version:
        return False
    return tuple(int(digits) for digits in device.compute_capability.split(".")) >= OLDEST_GPU


def check_platform() -> None:
    """Check that JAX computes on the platform that the user asked for.

    Raises:
        UserError: the chosen platform has no device; or JAX chose the CPU although a plugin for an accelerator is
            installed, and the user chose no platform by --platform or JAX_PLATFORMS.
    """
    asked = jax.config.values.get("jax_platforms")  # the choice by --platform or JAX_PLATFORMS
    try:
        platform = jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # without a visible GPU, an assertion of JAX fails for 'cuda' alone
        reason = str(error).partition("\n")[0] or "JAX finds no such device"
        option = "JAX_PLATFORMS" if asked == os.environ.get("JAX_PLATFORMS") else "--platform"
        raise UserError(f"{option}={asked}: {reason}") from error
    if platform != "cpu" or asked:
        return
    for module, (devices, check) in PLUGINS.items():
        if importlib.util.find_spec(module):
            raise UserError(
                f"{module} for {devices} is installed, but JAX finds none and would train on the CPU\n"
                f"check {check}; or train on the CPU with --platform cpu"
            )


def use_compilation_cache() -> None:
    """Store compiled programs in JAX_COMPILATION_CACHE_DIR, or else in a directory of the user's cache."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(user_cache() / "xla"))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    directory = pathlib.Path(jax.config.values["jax_compilation_cache_dir"])
    if directory.is_dir():
        with contextlib.suppress(OSError):  # the cache may be read-only, or another process may remove the same files
            remove_damaged_programs(directory)


def remove_damaged_programs(directory: pathlib.Path) -> None:
    """Remove compiled programs that a full disk or a kill has left incomplete.

    JAX writes an entry of its cache in place, and never replaces an entry. A damaged entry would make every later
    start compile the program again. Only entries since the last check are read, and no entry of the last minute, which
    another process may be writing.
    """
    stamp, end = directory / CHECKED, time.time() - SECONDS_OF_WRITING
    begin = stamp.stat().st_mtime if stamp.exists() else 0.0
    for path in directory.glob("*-cache"):
        if begin < path.stat().st_mtime <= end and not _is_complete(path.read_bytes()):
            path.unlink()
    stamp.touch()
    os.utime(stamp, (end, end))


def _is_complete(entry: bytes) -> bool:
    """Return whether an entry of JAX's cache can be decompressed; JAX uses zlib if zstandard is not installed."""
    decompress: Callable[[bytes], bytes] = zlib.decompress
    error: type[Exception] = zlib.error
    if entry.startswith(ZSTD_MAGIC):
        if not importlib.util.find_spec("zstandard"):
            return True  # JAX cannot read the entry either
        import zstandard

        decompress, error = zstandard.ZstdDecompressor().decompress, zstandard.ZstdError
    try:
        decompress(entry)
    except error:
        return False
    return True


def compiler_options(mesh: jax.sharding.Mesh, deterministic: bool = False) -> dict[str, str | bool]:
    """Return the XLA options for the devices of `mesh`; for CPUs, there are no options."""
    device = mesh.devices.flat[0]
    if device.platform == "gpu":
        # If cuBLAS computes all products, XLA adds two gradients within a product, and chooses no slower kernel in
        # Triton.
        options: dict[str, str | bool] = {"xla_gpu_enable_triton_gemm": False}  # a bool, since XLA refuses "false"
        # A deterministic program has no sums by atomics, a fixed order of cuDNN's gradient, and no choice of kernels by
        # timing.
        return options | ({"xla_gpu_deterministic_ops": True} if deterministic else {})
    if device.platform != "tpu":
        return {}
    # Gather a whole parameter before its product; gathering in pieces, the default, takes more messages and memory.
    return {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
