"""Find installed packages without importing them: an import takes seconds, and some imports occupy the device."""

import importlib.metadata
import importlib.util
import pathlib
import platform
import runpy
from collections.abc import Iterable

CORE = ("absl", "flax", "jax", "jaxlib", "ml_collections", "numpy", "optax")  # packages that every part needs
TORCH = ("torch", "transformers")
REPORTED = (
    "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "jax-cuda13-plugin", "jax-cuda12-plugin",
    "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "libtpu", "torch", "transformers",
)  # fmt: skip


def missing(modules: Iterable[str]) -> list[str]:
    """Return the names of the packages that are not installed."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def torch_uses_cuda() -> bool:
    """Return whether torch and transformers are installed, and torch was built for CUDA."""
    spec = None if missing(TORCH) else importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return bool(runpy.run_path(str(pathlib.Path(spec.origin).with_name("version.py"))).get("cuda"))


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the installed packages of REPORTED."""
    import bert_jax

    by_name = {"python": platform.python_version(), "bert_jax": bert_jax.__version__}
    for name in REPORTED:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return by_name
