"""A check, before the first step, that a compiled program fits in the memory of a device."""

import contextlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from bert_jax.errors import UserError
from bert_jax.parallel.chips import CHIPS, fraction_of_chip

REMAT_SAVES = 3  # rough factor by which recomputation lowers the memory
DEFAULT_GPU_FRACTION = 0.75  # fraction of a GPU's memory that JAX takes by default
MAX_GPU_FRACTION = 0.95  # fraction of a GPU's memory; the rest is enough for CUDA


class Memory(NamedTuple):
    """Bytes that a program needs on one device; `total` is the peak."""

    arguments: int
    temporaries: int
    total: int


class BatchSettings(NamedTuple):
    """The settings that determine the memory of a step; an error message suggests other values for them."""

    batch_size: int  # sequences per step, over all devices
    seq_len: int
    grad_accum_steps: int
    remat: bool
    keys: str = "config.train"  # prefix of the keys batch_size and grad_accum_steps


def program_memory(compiled: jax.stages.Compiled) -> Memory | None:
    """Return the bytes that a program holds on one device, with donated arguments counted once; None if unknown."""
    sizes = compiled.memory_analysis()
    if sizes is None:
        return None
    total = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + sizes.generated_code_size_in_bytes
    total += sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return Memory(sizes.argument_size_in_bytes, sizes.temp_size_in_bytes, total)


def usable_memory_fraction(platform: str) -> float:
    """Return the fraction of a device's memory that JAX takes; on GPUs, environment variables set the fraction."""
    if platform != "gpu" or os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        return 1.0
    names = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    for name in names:
        try:
            if value := os.environ.get(name):
                return float(value)
        except ValueError:
            raise UserError(f"{name}={value}: give a fraction of a GPU's memory, such as 0.9") from None
    return DEFAULT_GPU_FRACTION


def device_capacity(device: jax.Device) -> int | None:
    """Return the bytes that programs can use on a device, from the device or the table of chips; None if unknown.

    The virtual devices of a CPU share the memory that is available now.
    """
    if device.platform == "cpu":
        available = available_host_memory()
        return None if available is None else available // jax.local_device_count()
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        return int(limit)
    chip = CHIPS.get(device.device_kind)
    return int(chip.hbm_bytes * fraction_of_chip(device) * usable_memory_fraction(device.platform)) if chip else None


def available_host_memory(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """Return the bytes that this process can still allocate within its cgroup on Linux; None on other systems."""
    try:
        text = (root / "proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    limits = [int(match[1]) * 1024] if match else []
    with contextlib.suppress(OSError, ValueError):  # the limit of a container; "max" means no limit
        cgroup = root / "sys/fs/cgroup"
        limit = int((cgroup / "memory.max").read_text())
        cached = re.search(r"^file (\d+)", (cgroup / "memory.stat").read_text(), re.MULTILINE)
        limits.append(limit - int((cgroup / "memory.current").read_text()) + int(cached[1] if cached else 0))
    return min(limits, default=None)


def used_memory_bytes() -> int | None:
    """Return the peak bytes used on the fullest device of this process; on a CPU, the bytes that the process holds now.

    Return None if the number cannot be read.
    """
    peaks = [(device.memory_stats() or {}).get("peak_bytes_in_use") for device in jax.local_devices()]
    if known := [int(peak) for peak in peaks if peak is not None]:
        return max(known)
    try:
        pages = pathlib.Path("/proc/self/statm").read_text(encoding="ascii").split()[1]  # resident pages
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def check_memory(compiled: jax.stages.Compiled, mesh: jax.sharding.Mesh, settings: BatchSettings) -> None:
    """Check that a compiled step fits on the devices of this process, where its arguments are already allocated.

    Raises:
        UserError: the program needs more memory than the device has; the message suggests other settings.
    """
    device = mesh.local_devices[0]
    needed, capacity = program_memory(compiled), device_capacity(device)
    if needed is None or capacity is None:
        return
    if device.platform == "cpu":
        capacity += needed.arguments  # the available memory no longer includes the arguments
    if needed.total > capacity:
        taken = usable_memory_fraction(device.platform)
        changes = overrides_to_fit_memory(
            needed, capacity, mesh, settings, parameter_bytes=needed.arguments // 3, usable_fraction=taken
        )
        raise UserError(_too_large_message(settings, needed.total, capacity, changes))


def out_of_memory_as_user_error(settings: BatchSettings) -> contextlib.AbstractContextManager[None]:
    """Turn XLA's RESOURCE_EXHAUSTED in the compilation or the run of a training step into a UserError."""
    return _memory_errors_as_user_error(lambda needed: _too_large_message(settings, needed, None, ()))


def out_of_memory_in_evaluation_as_user_error() -> contextlib.AbstractContextManager[None]:
    """Turn XLA's RESOURCE_EXHAUSTED in an evaluation step into a UserError."""

    def explain(needed: int | None) -> str:
        size = "more memory than a device has" if needed is None else f"{needed / 2**30:.1f} GiB more per device"
        return f"a step of the evaluation needs {size}; set a smaller config.evaluate.batch_size"

    return _memory_errors_as_user_error(explain)


@contextlib.contextmanager
def _memory_errors_as_user_error(explain: Callable[[int | None], str]) -> Iterator[None]:
    """Turn errors about memory into a UserError; `explain(needed bytes or None)` returns its message."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(explain(bytes_in_memory_error(error))) from error


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error of XLA reports a lack of memory."""
    return "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def bytes_in_memory_error(error: Exception) -> int | None:
    """Return the needed bytes that an error of the compiler states; None if the error states no number."""
    match = re.search(
        r"(?:Used |temporaries \(|[Oo]ut of memory (?:while trying to allocate|allocating) )([\d.]+)([KMGT]?)",
        str(error),
    )
    if not match:
        return None
    digits, unit = match[1].rstrip("."), match[2]
    return int(float(digits) * 1024 ** " KMGT".index(unit or " "))


def overrides_to_fit_memory(
    memory: Memory,
    capacity: int,
    mesh: jax.sharding.Mesh,
    settings: BatchSettings,
    parameter_bytes: int,
    usable_fraction: float = 1.0,
) -> tuple[str, ...]:
    """Return overrides with which the step should fit in memory, by estimates; at most one override of each kind.

    Temporary memory is proportional to the sequences of a micro-batch. The memory of arguments is inversely
    proportional to the number of shards. `parameter_bytes` is the size of the parameters on one device; accumulated
    gradients have an equal size. `usable_fraction` is `capacity` as a fraction of the device's memory.
    """
    changes = []
    if usable_fraction < MAX_GPU_FRACTION and memory.total <= capacity / usable_fraction * MAX_GPU_FRACTION:
        variable = f"XLA_CLIENT_MEM_FRACTION={MAX_GPU_FRACTION}"
        changes.append(f"{variable} in the environment (JAX takes {usable_fraction:.0%} of a GPU's memory)")
    if not settings.remat and memory.total <= REMAT_SAVES * capacity:
        changes.append("--config.compute.remat=True (recompute each block: a third more FLOPs)")
    shards = mesh.shape["data"] * mesh.shape["fsdp"]
    sequences = settings.batch_size // (shards * settings.grad_accum_steps)
    gradients = parameter_bytes if settings.grad_accum_steps == 1 else 0
    for times in _divisors_above_1(sequences):
        if memory.arguments + gradients + memory.temporaries / times <= capacity:
            changes.append(
                f"--{settings.keys}.grad_accum_steps={settings.grad_accum_steps * times} "
                f"({sequences // times} sequences per device at a time instead of {sequences})"
            )
            break
    for times in _divisors_above_1(mesh.shape["data"]):
        if memory.arguments / times + memory.temporaries <= capacity:
            changes.append(
                f"--config.mesh.data={mesh.shape['data'] // times} "
                f"--config.mesh.fsdp={mesh.shape['fsdp'] * times} (shard parameters and optimizer state)"
            )
            break
    return tuple(changes)


def _divisors_above_1(total: int) -> list[int]:
    return [times for times in range(2, total + 1) if total % times == 0]


def _too_large_message(
    settings: BatchSettings, needed: int | None, capacity: int | None, changes: tuple[str, ...]
) -> str:
    """Return the message for a step that needs more memory than a device has, with `changes` as advice."""
    size = "more memory than a device has" if needed is None else f"{needed / 2**30:.1f} GiB of memory per device"
    available = "" if capacity is None else f", and {capacity / 2**30:.1f} GiB are available"
    smaller = f"a smaller {settings.keys}.batch_size or model, or shorter sequences"
    larger = f"a larger {settings.keys}.grad_accum_steps (now {settings.grad_accum_steps})"
    remat = () if settings.remat else ("--config.compute.remat=True",)
    fixes = (*changes, smaller) if changes or capacity is not None else (larger, *remat, smaller)
    return (
        f"a step of {settings.batch_size:,} sequences of {settings.seq_len:,} tokens needs {size}{available}\n"
        f"use {', or '.join(fixes)}; `bert-jax compile` with the same arguments shows the memory of each phase"
    )
