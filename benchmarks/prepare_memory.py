"""Measure the peak memory of `prepare` for files, for twice as many files, and for one line as long as all files.

    python benchmarks/prepare_memory.py --input python-docs --vocab vocab.txt

A new process prepares each input. The memory of this process and its workers is sampled: resident memory, which counts
a shared page in each process, and proportional memory, which counts a shared page once. Goals: all processes together
take less than 1,000 MB, and twice the text takes at most 2.1 times the time.
"""

import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

MEGABYTE = 1_000_000
SAMPLE_SECONDS = 0.1
CASES = ("files", "twice the files", "one line")
COMMAND = [sys.executable, "-m", "bert_jax", "prepare"]


def main() -> None:
    """Prepare each input, and print time and memory."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--input", nargs="+", required=True, help="text, as for `prepare`, repeated as needed")
    arguments.add_argument("--vocab", required=True, help="a tokenizer directory or vocab.txt")
    arguments.add_argument("--megabytes", type=int, default=1000, help="of text (default: 1000)")
    arguments.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that encode")
    arguments.add_argument("--cases", nargs="+", default=[*CASES], choices=CASES, help="to measure (default: all)")
    args = arguments.parse_args()
    writers = {
        "files": lambda folder: write_files(folder, args.input, args.megabytes),
        "twice the files": lambda folder: write_files(folder, args.input, 2 * args.megabytes),
        "one line": lambda folder: write_line(folder, args.input, args.megabytes),
    }
    seconds = {}
    for name in args.cases:
        with tempfile.TemporaryDirectory() as directory:
            texts = pathlib.Path(directory) / "texts"
            texts.mkdir()
            writers[name](texts)
            size = sum(path.stat().st_size for path in texts.iterdir())
            command = [*COMMAND, "--input", str(texts), "--tokenizer", args.vocab, "--heldout_fraction", "0"]
            command += ["--output", f"{directory}/corpus", "--workers", str(args.workers)]
            seconds[name], total, once, each = watch(command)
            print(
                f"{name:<16} {size / MEGABYTE:7,.0f} MB of text, {seconds[name]:6.1f} s, "
                f"{size / MEGABYTE / seconds[name]:5.2f} MB/s, peak {total / MEGABYTE:5,.0f} MB in all processes, "
                f"shared pages once {once / MEGABYTE:,.0f} MB, "
                f"{', '.join(f'{peak / MEGABYTE:,.0f}' for peak in each)} in each",
                flush=True,
            )
    if {"files", "twice the files"} <= seconds.keys():
        print(f"twice the text takes {seconds['twice the files'] / seconds['files']:.2f} times the time")


def texts_of(inputs: list[str], megabytes: int) -> Iterator[str]:
    """Yield the texts of the inputs, repeated until they have the given number of megabytes."""
    from bert_jax.readers import read_documents

    left = megabytes * MEGABYTE
    for _ in itertools.count():
        for document in read_documents(inputs):
            if left <= 0:
                return
            if not document.rejected:
                data = document.text.encode()[:left]
                left -= len(data)
                yield data.decode(errors="ignore")


def write_files(folder: pathlib.Path, inputs: list[str], megabytes: int) -> None:
    """Write a file for each text."""
    for number, text in enumerate(texts_of(inputs, megabytes)):
        (folder / f"{number:06}.txt").write_text(text, encoding="utf-8")


def write_line(folder: pathlib.Path, inputs: list[str], megabytes: int) -> None:
    """Write all texts as one line."""
    with open(folder / "line.txt", "w", encoding="utf-8") as file:
        for text in texts_of(inputs, megabytes):
            file.write(" ".join(text.split()) + " ")


def watch(command: list[str]) -> tuple[float, int, int, list[int]]:
    """Run a command; return its seconds, two peaks of the memory of its processes, and the peak of each process.

    The first peak of all processes counts a shared page in each process, and the second peak counts a shared page once.
    The peaks of the single processes are sorted, the largest first.
    """
    start = time.monotonic()
    most = once = 0
    each = dict[int, int]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            by_process = {pid: memory(pid) for pid in family(process.pid)}
            most = max(most, sum(resident for resident, _ in by_process.values()))
            once = max(once, sum(proportional for _, proportional in by_process.values()))
            each |= {pid: max(resident, each.get(pid, 0)) for pid, (resident, _) in by_process.items()}
            time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return time.monotonic() - start, most, once, sorted(each.values(), reverse=True)


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(found for child in children for found in family(int(child)))]


def memory(pid: int) -> tuple[int, int]:
    """Return resident and proportional bytes (a page of n processes counts as 1/n); 0 for a process that has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    kilobytes = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return 1024 * kilobytes["Rss"], 1024 * kilobytes["Pss"]


if __name__ == "__main__":
    main()
