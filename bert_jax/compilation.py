"""Compiled programs kept on disk, so that a resumed run starts at once."""

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
