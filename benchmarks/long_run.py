"""Measure goodput, memory and open files of a pretraining that is killed and restarted every few minutes.

    python benchmarks/long_run.py --corpus CORPUS --minutes 5 --hours 1 [--config small_cpu] [--config.KEY=VALUE ...]

The processes are killed by SIGKILL. When the hours are over, the run is stopped by SIGTERM, unless it has finished its
last step before. With --workdir, the model of the run is kept.

A life is the time from a start of the command to the end of its process. The goodput of a life is the number of useful
steps, which the next life does not repeat, divided by the number of possible steps. The number of possible steps is the
length of the life multiplied by the speed between its first and its last step, with evaluations and saves. Prints the
goodput and, from its parts (restart and lost work), an estimate for a failure every 5 minutes. OUTPUT.csv has a sample
of the process every 5 s, and OUTPUT.png has the curves.
"""

import argparse
import csv
import itertools
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

SAMPLE_SECONDS = 5.0
STEP, RESUMED = re.compile(r"step ([\d,]+)/"), re.compile(r"resuming at step ([\d,]+) ")
COLUMNS = ("hours", "life", "seconds", "step", "rss_mb", "open_files", "threads", "metrics_kb")


class Life(NamedTuple):
    """The life of a process between two kills: its duration in seconds, its first step, and the time of each step in
    seconds after the start of the process."""

    seconds: float
    began_at: int
    steps: tuple[tuple[float, int], ...]

    @property
    def restart(self) -> float:
        """Seconds from the start to the first step, without the time of that step."""
        return self.steps[0][0] - self.step_seconds

    @property
    def step_seconds(self) -> float:
        """Seconds per step between the first and the last step."""
        (begin, first), (end, last) = self.steps[0], self.steps[-1]
        return (end - begin) / (last - first)

    def lost(self, resumed_at: int) -> float:
        """Seconds of work that the next life, which resumes at step `resumed_at`, repeats."""
        return self.seconds - self.restart - (resumed_at - self.began_at) * self.step_seconds

    def goodput(self, resumed_at: int) -> float:
        """Fraction of the time of this life that was spent on steps which the next life does not repeat."""
        return (resumed_at - self.began_at) * self.step_seconds / self.seconds


def live(
    command: Sequence[str], seconds: float, signum: signal.Signals, sample: "Samples"
) -> tuple[Life, int | None, list[str]]:
    """Run the command, send the signal after `seconds`; return life, exit status (None: it was killed) and output."""
    began, resumed, steps, said = time.monotonic(), 0, list[tuple[float, int]](), list[str]()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    timer = threading.Timer(seconds, lambda: process.send_signal(signum))
    timer.start()
    stop = threading.Event()
    sampler = threading.Thread(target=sample.watch, args=(process.pid, began, steps, stop))
    sampler.start()
    for line in process.stderr:
        said.append(line)
        if match := RESUMED.match(line):
            resumed = int(match[1].replace(",", ""))
        if match := STEP.match(line):
            steps.append((time.monotonic() - began, int(match[1].replace(",", ""))))
    stop.set()
    status = process.wait()
    timer.cancel()
    sampler.join()
    return Life(time.monotonic() - began, resumed, tuple(steps)), status if status != -signum else None, said


class Samples:
    """Samples of the process, rows of COLUMNS, written as they are taken."""

    def __init__(self, path: pathlib.Path, metrics: pathlib.Path) -> None:
        self.rows = list[tuple[float, ...]]()
        self._began, self._life, self._metrics = time.monotonic(), 0, metrics
        self._file = open(path, "w", newline="")  # noqa: SIM115 (open for the whole run)
        self._writer = csv.writer(self._file)
        self._writer.writerow(COLUMNS)

    def watch(self, pid: int, began: float, steps: list[tuple[float, int]], stop: threading.Event) -> None:
        """Sample a process until it ends."""
        self._life += 1
        process = pathlib.Path("/proc", str(pid))
        while not stop.wait(SAMPLE_SECONDS):
            try:
                status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
                files = len(list((process / "fd").iterdir()))
                rss, threads = int(status["VmRSS"].split()[0]) / 1000, int(status["Threads"])
            except (OSError, KeyError):  # the process has ended
                continue
            now, step = time.monotonic(), steps[-1][1] if steps else 0
            size = self._metrics.stat().st_size / 1000 if self._metrics.exists() else 0.0
            row = ((now - self._began) / 3600, self._life, now - began, step, rss, files, threads, size)
            self.rows.append(row)
            self._writer.writerow([f"{value:.6g}" for value in row])
            self._file.flush()


def flatness(rows: Sequence[tuple[float, ...]], column: str, after: float) -> str:
    """Return how much a column changes from the first to the last third of its rows.

    Only the rows after the first `after` seconds of a life are used.
    """
    values = [row[COLUMNS.index(column)] for row in rows if row[COLUMNS.index("seconds")] > after]
    third = len(values) // 3
    if not third:
        return f"{column}: too few samples"
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    return f"{column}: median {first:,.0f} in the first third, {last:,.0f} in the last; maximum {max(values):,.0f}"


def draw(rows: Sequence[tuple[float, ...]], path: pathlib.Path) -> None:
    """Draw the memory, the open files and the finished steps over the hours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(8, 6), layout="constrained")
    names = {"rss_mb": "resident memory, MB", "open_files": "open files", "step": "step"}
    for axis, (column, label) in zip(axes, names.items(), strict=True):
        at = COLUMNS.index(column)
        axis.plot([row[0] for row in rows], [row[at] for row in rows], ".", markersize=2)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("hours")
    figure.savefig(path, dpi=110)


def report(lives: Sequence[Life], minutes: float) -> None:
    """Print a line for each part of the goodput, over all lives except the last life."""
    pairs = [(life, after.began_at) for life, after in itertools.pairwise(lives)]
    restart = statistics.mean(life.restart for life, _ in pairs)
    lost = statistics.mean(life.lost(resumed_at) for life, resumed_at in pairs)
    goodput = sum(life.goodput(at) * life.seconds for life, at in pairs) / sum(life.seconds for life, _ in pairs)
    print(f"kills: {len(pairs)}, {minutes:g} minutes apart; steps: {pairs[-1][1] - lives[0].began_at:,}")
    print(f"step: {statistics.median(life.step_seconds for life, _ in pairs):.3f} s, with evaluations and saves")
    print(f"restart: {restart:.1f} s on average, {max(life.restart for life, _ in pairs):.1f} s at most")
    print(f"lost work: {lost:.1f} s on average, {max(life.lost(at) for life, at in pairs):.1f} s at most")
    print(f"goodput measured: {goodput:.1%} at a kill every {minutes:g} minutes")
    print(f"goodput by the formula 1 - (restart + lost work) / 5 minutes: {1 - (restart + lost) / 300:.1%}")


def main() -> int:
    """Run lives until the time is up. The last life ends with SIGTERM; then `verify` checks the work directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="made by `bert-jax prepare`")
    parser.add_argument("--config", default="small_cpu", help="a recipe")
    parser.add_argument("--minutes", type=float, default=5.0, help="between two kills, 10 %% more or less (default: 5)")
    parser.add_argument("--hours", type=float, default=1.0, help="of all lives together (default: 1)")
    parser.add_argument("--workdir", help="work directory to keep (default: a temporary directory)")
    parser.add_argument("--output", default="long_run", help="beginning of the names of the two files")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    args, overrides = parser.parse_known_args()
    rng, lives = random.Random(args.seed), list[Life]()
    with tempfile.TemporaryDirectory() as directory:
        workdir = pathlib.Path(args.workdir or pathlib.Path(directory, "run"))
        samples = Samples(pathlib.Path(f"{args.output}.csv"), workdir / "metrics.jsonl")
        bert_jax = [sys.executable, "-m", "bert_jax"]
        command = [*bert_jax, "pretrain", f"--config={args.config}", f"--workdir={workdir}", *overrides]
        command += [f"--config.data.corpus={args.corpus}", "--config.train.log_every=1"]
        end = time.monotonic() + 3600 * args.hours
        status: int | None = None
        while status is None:
            seconds = 60 * args.minutes * rng.uniform(0.9, 1.1)
            last = time.monotonic() + seconds >= end
            signum = signal.SIGTERM if last else signal.SIGKILL
            life, status, said = live(command, seconds, signum, samples)
            if len(life.steps) < 2 or status not in (None, 0):
                print("".join(said[-20:]), f"ended by itself after {life.seconds:.0f} s, status {status}", sep="")
                return 1
            lives.append(life)
            print(
                f"life {len(lives)}: from step {life.began_at:,} to {life.steps[-1][1]:,} in {life.seconds:.0f} s; ",
                end="",
            )
            print(f"first step after {life.steps[0][0]:.1f} s, {life.step_seconds:.3f} s a step", flush=True)
        verified = subprocess.run([*bert_jax, "verify", str(workdir)], check=False).returncode
    report(lives, args.minutes)
    restart = max(life.steps[0][0] for life in lives)
    for column in ("rss_mb", "open_files", "threads"):
        print(flatness(samples.rows, column, restart + 20))
    draw(samples.rows, pathlib.Path(f"{args.output}.png"))
    return verified or int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
