"""Check the results of the local GPU or TPU against the CPU, then measure the speed of bert_jax and of torch on it.

    python -m benchmarks.device [--minutes 9] [--json device_bench.json]

Run the command in the checkout, with a Python that has JAX for the accelerator; nothing is downloaded. The most
important parts run first, until the time is up; the output and the JSON file name the parts that did not run. If a part
crashes, only this part fails: a new process runs the rest. Steps are compiled and warmed up. Then 20 steps are
dispatched together, five times; the figure is the median of these five durations. `ready` is the seconds before the
first timed step. Most of `ready` is compilation, which the next run finds in the cache. torch and transformers are
optional, and so are packages that only some parts need.

The exit status is 1 if a part failed, a check did not pass, or there is no GPU or TPU. The exit status is 2 if JAX or
another package that all parts need is not installed. Otherwise the exit status is 0, even if parts were left out.
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
    """Leave half of the GPU's memory to torch if torch uses the GPU, unless the environment sets the fraction."""
    if torch_runs and not any(os.environ.get(name) for name in FRACTIONS):
        os.environ["XLA_CLIENT_MEM_FRACTION"] = "0.5"


def main() -> None:
    """Run the parts under supervision; exit with the resulting status."""
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
    if arguments.json.exists():  # so that the child reads only results of this run
        arguments.json.replace(arguments.json.with_suffix(".previous.json"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit by `sys.exit` also ends the child
    with tempfile.TemporaryDirectory(prefix="device_bench", ignore_cleanup_errors=True) as directory:
        words = ["tiny" if arguments.tiny else "full", str(arguments.json), directory, str(arguments.minutes)]
        command = [sys.executable, "-m", "benchmarks.device.child", *words]
        status = supervise(command, arguments.json, began + 60 * arguments.minutes)
    sys.exit(status)


if __name__ == "__main__":
    main()
