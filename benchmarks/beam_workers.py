"""Prepare a text with Apache Beam on 1, 2 and 4 worker processes; compare bytes, time, and memory of each worker.

    .venv-beam/bin/python benchmarks/beam_workers.py --tokenizer TOKENIZER [--megabytes 20]

Needs `pip install '.[beam,storage]'`. The text is generated. After the measurements, `prepare` runs with 4 workers once
more, and a worker is killed in the middle. After the loss of the worker, the command must end with a message, and the
next start must make the same corpus; otherwise the exit status is 1.
"""

import argparse
import hashlib
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

NUM_FILES = 40
MAX_SECONDS = 900
PAGE = os.sysconf("SC_PAGE_SIZE")


class Ended(NamedTuple):
    """End of a command: status, messages, times, and the highest resident bytes of each of its processes."""

    status: int
    text: str
    seconds: float
    cpu_seconds: float  # of all of its processes
    memory: list[int]


def write_texts(directory: pathlib.Path, megabytes: float) -> None:
    """Write generated texts, in which no document is a copy of another document."""
    directory.mkdir()
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(20_000)]
    size = int(megabytes * 1e6 / NUM_FILES)
    for index in range(NUM_FILES):
        with open(directory / f"{index:03}.txt", "w") as file:
            while file.tell() < size:
                sentences = [" ".join(rng.choices(words, k=12)).capitalize() + "." for _ in range(20)]
                file.write(" ".join(sentences) + "\n\n")


def descendants(pid: int) -> list[int]:
    """Return the child processes of a process, and all of their descendants."""
    parents: dict[int, list[int]] = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    children = parents.get(pid, [])
    return children + [below for child in children for below in descendants(child)]


def is_worker(pid: int) -> bool:
    """Return whether a process is a worker of Beam."""
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"python" in words[0] and any(b"sdk_worker_main" in word for word in words)


def run(words: list[str], watch: Callable[[list[int]], None] = lambda workers: None) -> Ended:
    """Run a command; `watch` is called with its workers, several times a second."""
    memory: dict[int, int] = {}
    began, used_before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True) as process:
            while process.poll() is None:
                if time.monotonic() - began > MAX_SECONDS:
                    os.killpg(process.pid, signal.SIGKILL)
                below = descendants(process.pid)
                workers = [pid for pid in below if is_worker(pid)]
                for pid in [process.pid, *workers]:
                    try:
                        resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
                    except OSError:
                        continue
                    memory[pid] = max(memory.get(pid, 0), resident)
                watch(workers)
                time.sleep(0.2)
        log.seek(0)
        text = log.read()
    main, *rest = memory.values()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = used.ru_utime + used.ru_stime - used_before.ru_utime - used_before.ru_stime
    return Ended(process.returncode, text, time.monotonic() - began, cpu_seconds, [main, *sorted(rest, reverse=True)])


def times_of(ended: Ended) -> str:
    """Return the seconds and the CPU seconds of a command as cells of a table."""
    return f"{ended.seconds:.0f} | {ended.cpu_seconds:.0f}"


def digests(directory: pathlib.Path) -> dict[str, str]:
    """Return the digest of each file of a corpus."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def main() -> int:
    """Print a row for each number of workers, and the end of the command with a killed worker."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="directory of a tokenizer")
    parser.add_argument("--megabytes", type=float, default=20.0, help="size of the text (default: 20)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="numbers of workers")
    args = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        write_texts(scratch / "texts", args.megabytes)
        prepare = [sys.executable, "-m", "bert_jax", "prepare", "--input", str(scratch / "texts")]
        prepare += ["--tokenizer", args.tokenizer, "--output"]
        local = run([*prepare, str(scratch / "local"), "--workers=1"])
        assert local.status == 0, local.text
        expected = digests(scratch / "local")
        print("| workers | seconds | CPU seconds | memory of the command | memory of each worker | bytes |")
        print("| --- " * 6 + "|")
        print(
            f"| local runner | {local.seconds:.0f} | {local.cpu_seconds:.0f} | {local.memory[0] / 1e6:.0f} MB | | |",
            flush=True,
        )

        def words(workers: int, output: str) -> list[str]:
            options = f"--runner=FnApiRunner --direct_running_mode=multi_processing --direct_num_workers={workers}"
            return [*prepare, str(scratch / output), "--runner=beam", f"--beam_options={options}"]

        for workers in args.workers:
            ended = run(words(workers, f"beam{workers}"))
            same = ended.status == 0 and digests(scratch / f"beam{workers}") == expected
            failures += not same
            memory = ", ".join(f"{size / 1e6:.0f} MB" for size in ended.memory[1:])
            print(
                f"| {workers} | {times_of(ended)} | {ended.memory[0] / 1e6:.0f} MB | {memory} | "
                f"{'equal' if same else f'different (status {ended.status})'} |",
                flush=True,
            )
            if ended.status:
                print(ended.text[-2000:])

        killed: list[int] = []

        def kill_one(workers: list[int]) -> None:
            if not killed and len(workers) == 4 and any((scratch / "killed" / "unfinished").rglob("*")):
                os.kill(workers[0], signal.SIGKILL)
                killed.append(workers[0])

        ended = run(words(4, "killed"), kill_one)
        print(f"\na worker killed: {bool(killed)}, status {ended.status} after {ended.seconds:.0f} s:")
        print(ended.text[-1500:])
        failures += not killed or ended.status not in (1, 2) or "Traceback" in ended.text
        shutil.rmtree(scratch / "killed", ignore_errors=True)
        ended = run(words(4, "killed"))
        same = ended.status == 0 and digests(scratch / "killed") == expected
        print(f"the next start: {'equal' if same else 'different'}")
        failures += not same
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
