"""Check the numbers of the GPU or TPU at hand against the CPU, then measure its speed, beside torch.

    python -m benchmarks.device [--minutes 9] [--json device_bench.json]

Run it in the checkout, with a Python that has JAX for the accelerator; nothing is downloaded. Parts run in the order of
their value until the time is up; the other parts are named, in the file as well. A part that crashes fails alone: a
new process runs the rest. Steps are compiled, warmed up and timed over 20 that are dispatched together, the median of 5
such stretches; `ready` is the seconds until then, most of them compilation, which the next run finds in the cache.
torch and transformers are optional, as are packages that only some parts need.

The exit status is 1 where a part failed, a check did not pass or there is no GPU or TPU, 2 where JAX or another package
that all parts need is not installed, else 0, also where parts were left out.
"""

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

from benchmarks.device.packages import CORE, missing, torch_uses_cuda
from benchmarks.device.supervise import supervise

FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # JAX refuses both at once


def share_memory(torch_runs: bool) -> None:
    """Leave half of a GPU's memory to torch, where it uses the GPU and the environment does not say otherwise."""
    if torch_runs and not any(os.environ.get(name) for name in FRACTIONS):
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.5"


def main() -> None:
    """Run the parts; exit with their status."""
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="the run ends then (default: 9)")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("device_bench.json"), help="file to write")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the command on a CPU")
    arguments = parser.parse_args()

    if lacking := missing(CORE):
        print(f"not installed: {', '.join(lacking)}", file=sys.stderr)
        sys.exit(2)
    share_memory(torch_uses_cuda())
    if arguments.json.exists():  # a file that is there is this run's
        arguments.json.replace(arguments.json.with_suffix(".previous.json"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the child ends as well
    with tempfile.TemporaryDirectory(prefix="device_bench", ignore_cleanup_errors=True) as directory:
        words = ["tiny" if arguments.tiny else "full", str(arguments.json), directory, str(arguments.minutes)]
        command = [sys.executable, "-m", "benchmarks.device.child", *words]
        status = supervise(command, arguments.json, began + 60 * arguments.minutes)
    sys.exit(status)


if __name__ == "__main__":
    main()
