"""Compiler options, and the cache of compiled programs on disk, which makes the start of a resumed run fast."""

import os

import jax

from bert_jax.files import user_cache


def use_compilation_cache() -> None:
    """Store compiled programs in JAX_COMPILATION_CACHE_DIR, or else in a directory of the user's cache."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(user_cache() / "xla"))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def compiler_options(mesh: jax.sharding.Mesh, deterministic: bool = False) -> dict[str, str | bool]:
    """Return the XLA options for the devices of `mesh`; for CPUs they are empty."""
    device = mesh.devices.flat[0]
    if device.platform == "gpu":
        # All products by cuBLAS: XLA then adds two gradients within a product, and chooses no slower kernel in Triton.
        options: dict[str, str | bool] = {"xla_gpu_enable_triton_gemm": False}  # XLA refuses "false"
        # No sums by atomics, cuDNN's gradient in a fixed order, and no choice of kernels by timing them.
        return options | ({"xla_gpu_deterministic_ops": True} if deterministic else {})
    if device.platform != "tpu":
        return {}
    # Gather a whole parameter before its product; gathering in pieces, the default, takes more messages and memory.
    return {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
