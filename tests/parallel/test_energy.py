"""Counters of energy: a tree of files such as Linux has for RAPL, and a stand-in for NVML."""

import pathlib
import sys
import time
import types

import pytest

from bert_jax.parallel import energy
from bert_jax.parallel.energy import Counter, Meter, Source


def zone(root: pathlib.Path, number: str, name: str, microjoules: int, limit: int = 1_000_000_000) -> pathlib.Path:
    place = root / f"intel-rapl:{number}"
    place.mkdir(parents=True)
    (place / "name").write_text(f"{name}\n")
    (place / "max_energy_range_uj").write_text(f"{limit}\n")
    (place / "energy_uj").write_text(f"{microjoules}\n")
    return place / "energy_uj"


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "READ_SECONDS", 3600.0)


def test_packages_add_up_and_zones_inside_or_around_them_are_not_counted_again(tmp_path: pathlib.Path) -> None:
    """Two packages, which use 5 and 7 J; cores and memory are zones inside of them, psys is around both."""
    first, second = zone(tmp_path, "0", "package-0", 100_000_000), zone(tmp_path, "1", "package-1", 900_000_000)
    others = [zone(tmp_path, "0:0", "core", 0), zone(tmp_path, "0:1", "dram", 0), zone(tmp_path, "2", "psys", 0)]
    source = energy.find_rapl_counters([], tmp_path)
    assert source.text == "RAPL, 2 CPU packages"
    meter = Meter(source)
    assert meter.joules() == 0
    first.write_text("105000000\n")
    second.write_text("907000000\n")
    for other in others:
        other.write_text("50000000\n")
    assert meter.joules() == pytest.approx(12)
    meter.close()


def test_a_counter_that_begins_again_at_zero_goes_on(tmp_path: pathlib.Path) -> None:
    """From 990 J over the end of the range at 1,000 J to 20 J, twice: 30 J, and 970 J and 30 J more."""
    counter = zone(tmp_path, "0", "package-0", 990_000_000)
    meter, found = Meter(energy.find_rapl_counters([], tmp_path)), []
    for microjoules in (20_000_000, 990_000_000, 20_000_000):
        counter.write_text(f"{microjoules}\n")
        found.append(meter.joules())
    assert found == pytest.approx([30, 1000, 1030])
    meter.close()


def test_a_thread_counts_a_wraparound_between_two_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter begins again between two questions; 8 + 4 J are counted, not 2 J."""
    monkeypatch.setattr(energy, "READ_SECONDS", 0.001)
    values = [0, 8, 2]
    meter = Meter(Source("", (Counter(lambda: values.pop(0) if len(values) > 1 else values[0], 1.0, limit=10),)))
    until = time.monotonic() + 10
    while len(values) > 1 and time.monotonic() < until:
        time.sleep(0.001)
    meter.close()
    assert meter.joules() == pytest.approx(12)


def test_no_counter_or_one_without_permission_is_said(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert energy.find_rapl_counters([], tmp_path) == Source(f"{tmp_path} has no counter of a CPU (intel-rapl)")
    zone(tmp_path, "0", "package-0", 0)
    locked = zone(tmp_path, "1", "package-1", 0)
    read_text = pathlib.Path.read_text

    def refusing(path: pathlib.Path) -> str:  # a test may run as root, which reads every file
        if path == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path)

    monkeypatch.setattr(pathlib.Path, "read_text", refusing)
    source = energy.find_rapl_counters([], tmp_path)
    assert source == Source(f"the counters of the CPU cannot be read ([Errno 13] Permission denied: '{locked}')")
    meter = Meter(source)
    assert meter.joules() is None


def test_a_counter_that_disappears_ends_the_measuring(tmp_path: pathlib.Path) -> None:
    counter = zone(tmp_path, "0", "package-0", 0)
    meter = Meter(energy.find_rapl_counters([], tmp_path))
    assert meter.joules() == 0
    counter.unlink()
    assert meter.joules() is None
    zone_again = counter.parent / "energy_uj"
    zone_again.write_text("7\n")
    assert meter.joules() is None
    meter.close()


class NVMLError(Exception):
    """Of the stand-in."""


def stand_in(millijoules: dict[str, int]) -> types.ModuleType:
    """A module pynvml of a machine with GPUs by UUID, of which the number -1 has no counter."""
    module, uuids = types.ModuleType("pynvml"), list(millijoules)

    def consumption(uuid: str) -> int:
        if millijoules[uuid] < 0:
            raise NVMLError("Not Supported")
        return millijoules[uuid]

    functions = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: len(uuids),
        "nvmlDeviceGetHandleByIndex": lambda index: uuids[index],
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuids[uuids.index(uuid)],
        "nvmlDeviceGetTotalEnergyConsumption": consumption,
    }
    vars(module).update(functions, NVMLError=NVMLError)
    return module


@pytest.mark.parametrize(
    ("visible", "joules"), [(None, 3.0), ("2,0", 5.0), ("GPU-c", 4.0), ("1", 2.0)], ids=["all", "some", "uuid", "one"]
)
def test_gpus_are_those_that_the_run_sees(visible: str | None, joules: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three GPUs use 1, 2 and 4 J; the run has two of them, or one."""
    used = {"GPU-a": 5_000, "GPU-b": 5_000, "GPU-c": 5_000}
    monkeypatch.setitem(sys.modules, "pynvml", stand_in(used))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    count = 2 if visible is None else len(visible.split(","))
    source = energy.find_nvml_counters([types.SimpleNamespace(local_hardware_id=number) for number in range(count)])
    assert source.text == f"NVML, {count} GPU{'s' if count > 1 else ''}"
    meter = Meter(source)
    used.update({"GPU-a": 6_000, "GPU-b": 7_000, "GPU-c": 9_000})
    assert meter.joules() == pytest.approx(joules)
    meter.close()


def test_a_gpu_without_a_counter_and_a_missing_package_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices = [types.SimpleNamespace(local_hardware_id=0)]
    monkeypatch.setitem(sys.modules, "pynvml", stand_in({"GPU-a": -1}))
    assert energy.find_nvml_counters(devices) == Source("the counters of the GPU cannot be read (Not Supported)")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy.find_nvml_counters(devices) == Source("the counters of the GPU need the package nvidia-ml-py")
