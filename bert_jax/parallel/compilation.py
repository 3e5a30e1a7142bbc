"""What the compiler is told, and its programs kept on disk, so that a resumed run starts at once."""

import os
import pathlib

import jax


def use_compilation_cache() -> None:
    """Keep compiled programs in JAX_COMPILATION_CACHE_DIR, or in bert_jax's own folder of the user's cache."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(cache / "bert_jax" / "xla"))
    if not os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


# Of 128 MiB of vector memory three quarters for the inside of fusions (the default is an eighth): the compiler then
# copies fewer whole arrays into it ahead of their use (docs/decisions.md).
MUCH_VECTOR_MEMORY = ("TPU v5 lite", "TPU v5e", "TPU v6 lite", "TPU v6e")


def compiler_options(mesh: jax.sharding.Mesh) -> dict[str, str]:
    """Options for the devices of `mesh`; none but for TPUs."""
    device = mesh.devices.flat[0]
    if device.platform != "tpu":
        return {}
    # Gather a parameter whole before its product; in pieces, which is the default, takes more messages and memory.
    options = {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}
    if device.device_kind in MUCH_VECTOR_MEMORY:
        options["xla_tpu_scoped_vmem_limit_kib"] = str(96 * 1024)
    return options
