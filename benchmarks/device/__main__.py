"""Check the numbers of the GPU or TPU at hand against the CPU, then measure its speed, beside torch.

    python -m benchmarks.device [--minutes 9] [--json device_bench.json]

Run it in the checkout, with a Python that has JAX for the accelerator; nothing is downloaded. Parts run in the order of
their value until the time is up; what was left out is named, in the file as well. Steps are compiled, warmed up and
timed over 20 that are dispatched together, the median of 5 such stretches; `ready` is the seconds until then, most of
them compilation, which the next run finds in the cache. torch and transformers are optional.

The exit status is 1 where a part failed or a check did not pass, else 0, also where parts were left out.
"""

import argparse
import datetime
import functools
import importlib.metadata
import os
import pathlib
import platform
import shutil
import sys
import tempfile
import time
from typing import Any

PACKAGES = (
    "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "jax-cuda13-plugin", "jax-cuda12-plugin",
    "nvidia-cudnn-cu13", "nvidia-cudnn-cu12", "libtpu", "torch", "transformers",
)  # fmt: skip
FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # JAX refuses both at once
DRIVER = pathlib.Path("/proc/driver/nvidia/version")


def share_memory(torch_runs: bool) -> None:
    """Leave half of a GPU's memory to torch, where it is to run and the environment does not say otherwise."""
    if torch_runs and not any(os.environ.get(name) for name in FRACTIONS):
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.5"


def use_cpu_as_well() -> None:
    """Have JAX find the CPU beside the platforms that JAX_PLATFORMS names: checks compare with it."""
    import jax

    asked = jax.config.values.get("jax_platforms")
    if asked and "cpu" not in asked.split(","):
        jax.config.update("jax_platforms", f"{asked},cpu")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the installed ones of PACKAGES."""
    import bert_jax

    found = {"python": platform.python_version(), "bert_jax": bert_jax.__version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def described(scale: str, minutes: float) -> dict[str, Any]:
    """Return what a reader of the results has to know of this run and machine."""
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


def main() -> None:
    """Run the parts; exit with their status."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="the run ends then (default: 9)")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("device_bench.json"), help="file to write")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the command on a CPU")
    arguments = parser.parse_args()

    from benchmarks.device.torch_steps import missing_packages

    share_memory(not missing_packages())
    use_cpu_as_well()

    import jax

    from benchmarks.device.parts import SCALES, parts
    from benchmarks.device.report import Report
    from bert_jax.errors import UserError
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.parallel.platform import check_platform

    try:
        check_platform()
    except UserError as error:
        sys.exit(str(error))
    if jax.default_backend() == "cpu" and not arguments.tiny:
        sys.exit("JAX finds no GPU or TPU here; --tiny tries the command on a CPU")
    use_compilation_cache()
    scale = "tiny" if arguments.tiny else "full"
    head = described(scale, arguments.minutes)
    print(f"{head['device']['kind']}, {', '.join(f'{name} {version}' for name, version in head['versions'].items())}\n")
    report = Report(head, arguments.json)
    place = pathlib.Path(tempfile.mkdtemp(prefix="device_bench"))
    clean = functools.partial(shutil.rmtree, place, ignore_errors=True)
    report.end_at(began + 60 * arguments.minutes, clean)
    try:
        status = report.run(parts(SCALES[scale], place))
    finally:
        clean()
    sys.exit(status)


if __name__ == "__main__":
    main()
