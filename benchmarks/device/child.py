"""Process that uses the device and runs the waiting parts.

    python -m benchmarks.device.child SCALE JSON DIRECTORY MINUTES     # __main__.py starts it

The process ends early if a failed part has made the device unusable; a new process then runs the remaining parts.
"""

import datetime
import os
import pathlib
import platform
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.device.packages import versions
from benchmarks.device.report import HEADER, Part, Report, Result, reason_to_leave_out

DRIVER = pathlib.Path("/proc/driver/nvidia/version")


def use_cpu_as_well() -> None:
    """Add the CPU to the platforms that JAX_PLATFORMS names: the checks compare the device with the CPU."""
    import jax

    asked = jax.config.values.get("jax_platforms")
    if asked and "cpu" not in asked.split(","):
        jax.config.update("jax_platforms", f"{asked},cpu")


def described(scale: str, minutes: float) -> dict[str, Any]:
    """Return a description of this run and machine, for the reader of the results."""
    import jax

    device = jax.devices()[0]
    driver = {"driver": DRIVER.read_text().partition("\n")[0].strip()} if DRIVER.exists() else {}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": {"kind": device.device_kind, "platform": device.platform, "count": jax.device_count(), **driver},
        "host": {"cpus": os.cpu_count(), "machine": platform.machine()},
        "versions": versions(),
        "scale": scale,
        "minutes": minutes,
    }


def device_computes() -> bool:
    """Return whether the device can still compute; an illegal memory access makes the device unusable."""
    import jax
    import jax.numpy as jnp

    try:
        jax.block_until_ready(jnp.arange(8) + 1)
    except Exception:  # any exception means that the device does not compute
        traceback.print_exc()
        return False
    return True


def run_parts(report: Report, parts: Iterable[Part], computes: Callable[[], bool]) -> None:
    """Run the waiting parts while the device computes; a part that fails does not stop the others."""
    for part in parts:
        if part.name not in report.waiting:
            continue
        report.begin(part.name)
        failed = False
        try:
            for result in part.run():
                report.add(result)
        except Exception as error:  # any kind of error, so that the other parts run
            if reason := reason_to_leave_out(error):
                report.left_out[part.name] = reason
            else:
                failed = True
                traceback.print_exc()
                text = str(error).strip().partition("\n")[0]
                report.add(Result(part.name, fault=f"{type(error).__name__}: {text[:200]}"))
        report.end()
        if failed and not computes():
            return


def main(scale: str, report_path: pathlib.Path, directory: pathlib.Path, minutes: float) -> None:
    """Run the parts that are waiting in the report at `report_path`, or all parts if there is no report."""
    use_cpu_as_well()

    import jax

    from benchmarks.device.parts import SCALES, parts
    from bert_jax.errors import UserError
    from bert_jax.parallel.platform import check_platform, use_compilation_cache

    try:
        check_platform()
    except UserError as error:
        sys.exit(str(error))
    if jax.default_backend() == "cpu" and scale != "tiny":
        sys.exit("JAX finds no GPU or TPU here; --tiny tries the command on a CPU")
    use_compilation_cache()
    rows = parts(SCALES[scale], directory)
    if report_path.exists():
        report = Report.read(report_path)
    else:
        report = Report(described(scale, minutes), report_path, [part.name for part in rows])
        packages = ", ".join(f"{name} {version}" for name, version in report.head["versions"].items())
        print(f"{report.head['device']['kind']}, {packages}\n\n{HEADER}", flush=True)
    run_parts(report, rows, device_computes)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), float(sys.argv[4]))
