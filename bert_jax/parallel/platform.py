"""The platform that a run computes on: chosen, or found, and never a CPU beside an accelerator's plugin by accident."""

import importlib.util
import os

import jax

from bert_jax.errors import UserError

# The module of a plugin of JAX -> what it computes on, and what to look at where it finds no device.
PLUGINS = {
    "jax_cuda13_plugin": ("GPUs", "nvidia-smi and its driver, 580 or newer; older drivers need the extra cuda12"),
    "jax_cuda12_plugin": ("GPUs", "nvidia-smi and its driver, 525 or newer"),
    "libtpu": ("TPUs", "that this host has a TPU, which no other process holds"),
}
OLDEST_GPU = (8, 0)  # compute capability of those that run fused kernels: Ampere


def use_platform(platform: str | None) -> None:
    """Have JAX compute on 'cpu', 'cuda' or 'tpu'; None: on what it finds. Call it before anything uses a device."""
    if platform:
        jax.config.update("jax_platforms", platform)


def traced_platform() -> str:
    """Return 'cpu', 'gpu' or 'tpu', as the mesh that is set has it; in a dry run these devices are not there."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def runs_fused_kernels() -> bool:
    """Return False where this process computes on GPUs without fused kernels: older ones, and those not by NVIDIA."""
    if jax.default_backend() != "gpu":
        return True
    device = jax.local_devices()[0]
    if "cuda" not in device.client.platform_version:
        return False
    return tuple(int(number) for number in device.compute_capability.split(".")) >= OLDEST_GPU


def check_platform() -> None:
    """Check that the devices are those that were asked for.

    Raises:
        UserError: the chosen platform has no device; or none was chosen, by --platform or JAX_PLATFORMS, and JAX fell
            back to the CPU although a plugin for an accelerator is installed.
    """
    asked = jax.config.values.get("jax_platforms")  # by --platform or JAX_PLATFORMS
    try:
        platform = jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # without a visible GPU, 'cuda' alone fails JAX's own assertion
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
