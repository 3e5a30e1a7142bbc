"""Compare the time of this checkout with the time of an earlier checkout, on harmless inputs, in interleaved pairs.

    python benchmarks/honest_inputs.py --base CHECKOUT --model MODEL

Measures the CPU seconds of `fill-mask` from start to end, and of reading 49 MiB of text from a .gz and from a .zip.
Prints the geometric mean of the ratios, and its upper bound with 95 % confidence (Student's t, one-sided).
"""

import argparse
import gzip
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import zipfile

import scipy.stats

ROOT = pathlib.Path(__file__).resolve().parents[1]
NUM_BYTES = 49 << 20
READ = """
import sys, time
from bert_jax.readers import read_documents
began = time.process_time()
characters = sum(len(document.text or "") for document in read_documents(sys.argv[1:]))
assert characters > 4e7
print(time.process_time() - began)
"""


def write_texts(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write a generated text as .gz and as .zip."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(20_000)]
    paragraph = "\\n\\n".join(" ".join(rng.choices(words, k=80)) for _ in range(20_000))
    text = (paragraph * (NUM_BYTES // len(paragraph) + 1))[:NUM_BYTES].encode()
    paths = {"reading 49 MiB from .gz": directory / "a.txt.gz", "reading 49 MiB from .zip": directory / "a.zip"}
    with gzip.open(paths["reading 49 MiB from .gz"], "wb", 6) as file:
        file.write(text)
    with zipfile.ZipFile(paths["reading 49 MiB from .zip"], "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", text)
    return paths


def cpu_seconds(checkout: pathlib.Path, words: list[str], prints_seconds: bool) -> float:
    """Return the CPU seconds of a command of Python with the modules of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words]
    with subprocess.Popen(
        command, env=environment, cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as p:
        assert p.stdout is not None
        output = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0, command
    return float(output) if prints_seconds else usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a line for each input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True, type=pathlib.Path, help="checkout of an earlier commit")
    parser.add_argument("--model", required=True, type=pathlib.Path, help="directory made by `bert-jax export`")
    parser.add_argument("--pairs", type=int, default=12, help="number of pairs (default: 12)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fill_mask = ["-m", "bert_jax", "fill-mask", "--model", str(args.model.resolve()), "a [MASK] text"]
        commands = {"start of fill-mask": (fill_mask, False)}
        commands |= {kind: (["-c", READ, str(path)], True) for kind, path in write_texts(pathlib.Path(name)).items()}
        for kind, (words, prints_seconds) in commands.items():
            logs, seconds = [], []
            for index in range(args.pairs + 1):
                order = [ROOT, args.base.resolve()] if index % 2 else [args.base.resolve(), ROOT]
                times = {checkout: cpu_seconds(checkout, words, prints_seconds) for checkout in order}
                if index:  # the first pair fills the caches
                    logs.append(math.log(times[ROOT] / times[args.base.resolve()]))
                    seconds.append(times[ROOT])
            mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
            bound = math.exp(mean + scipy.stats.t.ppf(0.95, len(logs) - 1) * error)
            print(
                f"{kind}: {statistics.median(seconds):.2f} CPU seconds, ratio {math.exp(mean):.3f}, "
                f"upper bound {bound:.3f} ({len(logs)} pairs)",
                flush=True,
            )


if __name__ == "__main__":
    main()
