"""Energy that the devices of a run have used, from the hardware counters RAPL (CPUs) and NVML (NVIDIA GPUs).

To add a platform, add a row to COUNTERS. Both counters include the energy of other programs on the device.
"""

import functools
import math
import os
import pathlib
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax

POWERCAP = pathlib.Path("/sys/class/powercap")
READ_SECONDS = (
    10.0  # seconds between two reads of a counter; at full power, a RAPL counter begins again at 0 after a few minutes
)


class Counter(NamedTuple):
    """An energy counter in units of `unit` joules, which wraps to 0 after `limit`; `read` raises on a failure."""

    read: Callable[[], int]
    unit: float
    limit: float = math.inf


class Source(NamedTuple):
    """The counters of all devices of a run, and a text that names the hardware or the reason for a lack of counters."""

    text: str
    counters: tuple[Counter, ...] = ()


def find_energy_counters() -> Source:
    """Return the counters of JAX's devices, each read once; return no counters if a device has no counter."""
    if jax.process_count() > 1:
        return Source("a run of several processes is not measured")
    devices = jax.local_devices()
    find = COUNTERS.get(devices[0].platform)
    return find(devices) if find else Source(f"{devices[0].device_kind} has no counter that is read here")


def find_rapl_counters(devices: Iterable[Any], root: pathlib.Path = POWERCAP) -> Source:
    """Return the RAPL counters of this host's CPU packages, which include cores and caches.

    Only zones with the name "package" are counted: the zone "psys" includes the packages, and a package includes its
    inner zones. The Linux kernel's Documentation/power/powercap/powercap.rst describes the zones.
    """
    try:
        zones = [zone for zone in root.glob("intel-rapl:*") if re.fullmatch(r"intel-rapl:\d+", zone.name)]
        packages = [zone for zone in sorted(zones) if (zone / "name").read_text().startswith("package-")]
        if not packages:
            return Source(f"{root} has no counter of a CPU (intel-rapl)")
        counters = tuple(
            Counter(
                functools.partial(_read_whole_number, zone / "energy_uj"),
                1e-6,
                _read_whole_number(zone / "max_energy_range_uj"),
            )
            for zone in packages
        )
        for counter in counters:
            counter.read()
    except (OSError, ValueError) as error:
        return Source(f"the counters of the CPU cannot be read ({error})")
    return Source(f"RAPL, {len(counters)} CPU {'package' if len(counters) == 1 else 'packages'}", counters)


def _read_whole_number(path: pathlib.Path) -> int:
    return int(path.read_text())


def find_nvml_counters(devices: Iterable[Any]) -> Source:
    """Return the NVML counters of JAX's GPUs, Volta or newer, which count the energy of the GPU with its memory.

    A device's `local_hardware_id` is its index in the list CUDA_VISIBLE_DEVICES, whose items are numbers or UUIDs.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if visible == [""]:
            visible = [str(index) for index in range(pynvml.nvmlDeviceGetCount())]
        counters = []
        for device in devices:
            name = visible[device.local_hardware_id].strip()
            handle_of = pynvml.nvmlDeviceGetHandleByIndex if name.isdecimal() else pynvml.nvmlDeviceGetHandleByUUID
            handle = handle_of(int(name) if name.isdecimal() else name)
            counters.append(Counter(functools.partial(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle), unit=1e-3))
            counters[-1].read()
    except ImportError:
        return Source("the counters of the GPU need the package nvidia-ml-py")
    except (pynvml.NVMLError, IndexError) as error:
        return Source(f"the counters of the GPU cannot be read ({error})")
    return Source(f"NVML, {len(counters)} {'GPU' if len(counters) == 1 else 'GPUs'}", tuple(counters))


class Meter:
    """Energy since this meter was made; a thread reads each counter often enough to notice every wrap to 0."""

    def __init__(self, source: Source) -> None:
        self._counters, self._lock, self._closed = source.counters, threading.Lock(), threading.Event()
        self._total: float | None = 0.0 if source.counters else None
        self._last: list[int] = []
        self._add_energy_since_last_read()
        if self._total is not None:
            threading.Thread(target=self._read_periodically, name="energy", daemon=True).start()

    def joules(self) -> float | None:
        """Return the joules of all counters together; None without counters, or after a counter failed."""
        self._add_energy_since_last_read()
        return self._total

    def close(self) -> None:
        """End the thread that reads the counters."""
        self._closed.set()

    def _read_periodically(self) -> None:
        while not self._closed.wait(READ_SECONDS):
            self._add_energy_since_last_read()

    def _add_energy_since_last_read(self) -> None:
        with self._lock:
            if self._total is None:
                return
            try:
                now = [counter.read() for counter in self._counters]
            except (
                Exception
            ):  # NVML, which may be missing, has exceptions of its own; the run continues without a measurement
                self._total = None
                return
            for counter, old, new in zip(self._counters, self._last or now, now, strict=True):
                self._total += counter.unit * (new - old + (counter.limit if new < old else 0))
            self._last = now


# Platform of a JAX device -> its counters.
COUNTERS: dict[str, Callable[[Iterable[Any]], Source]] = {"cpu": find_rapl_counters, "gpu": find_nvml_counters}
