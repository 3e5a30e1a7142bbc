"""The benchmark of a device starts on a machine without torch and transformers."""

import pathlib
import subprocess
import sys

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1] / "benchmarks"
BLOCKED = """
import runpy, sys
sys.modules |= {"torch": None, "transformers": None}
sys.argv = ["device_speed.py", "--help"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_it_starts_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], cwd=BENCHMARKS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
