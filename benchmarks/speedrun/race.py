"""A race of pretraining recipes: which recipe reaches a given held-out loss in the least time?

    python benchmarks/speedrun/race.py --text BOOKS78 --report BOOKS4 --output race/ --entries small_cpu_2026_11 NAME
    python benchmarks/speedrun/race.py --output race/ --table

An entry is a function of entries.py; README.md beside this file has the rules. Each run is a `bert-jax pretrain` with
its own work directory. If the command stops, the same command resumes the run.

The clock is the training time without compilation and evaluation, in units of the baseline's time on the same machine.
`pace.py` measures the seconds of a step of an entry and of the baseline in turn, in one process. So a busy machine, or
another machine for another run, does not change the result; the losses of a run depend only on its steps.
"""

import argparse
import inspect
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from entries import ENTRIES, GROWN_FROM, get_config
from scipy import stats

HERE = pathlib.Path(__file__).parent
RECIPES = HERE / "entries.py"
BASELINE = "small_cpu_2026_11"
VOCABULARY = 8_192
TARGET = 3.29  # nats on the reported books


class Point(NamedTuple):
    """An evaluation of a run: its time, in units of the baseline's training time, and its loss in nats."""

    time: float
    loss: float


def main() -> None:
    """Prepare the text, run the missing runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", help="text to train on, as `bert-jax prepare --input`")
    parser.add_argument("--report", nargs="+", help="text for the held-out loss, which no recipe may be tuned on")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--entries", nargs="+", default=[BASELINE], choices=ENTRIES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--fraction", type=float, default=1.0, help="of the steps of each recipe, for a screening")
    parser.add_argument("--table", action="store_true", help="print the table of the runs there are")
    args, overrides = parser.parse_known_args()
    runs = args.output / ("runs" if args.fraction == 1.0 else f"runs-{args.fraction:g}")
    if not args.table:
        prepare(args.text, args.report, args.output)
        for seed in args.seeds:
            for name in args.entries:
                train(name, seed, args.fraction, args.output, runs, overrides)
        for name in args.entries:
            measure_pace(name, args.output)
    print(table(args.output, runs))


def prepare(text: Sequence[str] | None, report: Sequence[str] | None, output: pathlib.Path) -> None:
    """Make the tokenizer, the training corpus, and the corpus of the held-out loss, unless they exist."""
    tokenizer = output / "tokenizer"
    if not tokenizer.exists():
        command(
            "tokenizer",
            "--input",
            *(text or ()),
            "--kind",
            "wordpiece",
            "--vocab_size",
            str(VOCABULARY),
            "--output",
            str(tokenizer),
        )
    for name, words in (("corpus", text), ("report", report)):
        if not (output / name / "manifest.json").exists():
            fixed = ("--tokenizer", str(tokenizer), "--heldout_fraction", "0")
            command("prepare", "--input", *(words or ()), *fixed, "--output", str(output / name))


def command(verb: str, *words: str) -> None:
    """Run a verb of bert-jax in a new process; end this program if the verb fails."""
    if subprocess.run([sys.executable, "-m", "bert_jax", verb, *words], check=False).returncode:
        raise SystemExit(f"`bert-jax {verb}` did not finish; the same command goes on")


def train(
    name: str, seed: int, fraction: float, output: pathlib.Path, runs: pathlib.Path, options: Sequence[str]
) -> None:
    """Train an entry for a fraction of its steps, or go on with its training, unless its last evaluation is recorded.

    First train the smaller entry of GROWN_FROM. `options` are more options of `bert-jax pretrain`.
    """
    workdir, steps = runs / f"{name}-{seed}", round(fraction * get_config(name).train.steps)
    if (workdir / "metrics.jsonl").exists() and steps in dict(heldout_losses(workdir)):
        return
    if name in GROWN_FROM:
        train(GROWN_FROM[name], seed, fraction, output, runs, options)
        options = [*options, f"--config.init_from={runs / f'{GROWN_FROM[name]}-{seed}'}", "--config.grow=True"]
    print(f"{name}, seed {seed}, {steps:,} steps", flush=True)
    command(
        "pretrain",
        f"--config={RECIPES}:{name}",
        f"--workdir={workdir}",
        f"--config.data.corpus={output / 'corpus'}",
        f"--config.evaluate.corpus={output / 'report'}",
        f"--config.seed={seed}",
        f"--config.train.steps={steps}",
        *options,
    )


def measure_pace(name: str, output: pathlib.Path) -> None:
    """Measure the step times of an entry and of the baseline in each phase, unless they are already recorded."""
    if name in GROWN_FROM:
        measure_pace(GROWN_FROM[name], output)
    file = output / "pace" / f"{name}.json"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        words = [f"{RECIPES}:{one}" for one in (BASELINE, name)]
        fixed = ["--corpus", str(output / "corpus"), "--output", str(file)]
        subprocess.run([sys.executable, str(HERE / "pace.py"), *words, *fixed], check=True)


def heldout_losses(workdir: pathlib.Path) -> list[tuple[int, float]]:
    """Return (step, masked-token loss) of the evaluations of a run, without evaluations of a left-to-right phase."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["mlm_loss"]) for line in lines if "mlm_loss" in line and line["split"] == "heldout"]


def curve(name: str, seed: str, output: pathlib.Path, runs: pathlib.Path) -> list[Point]:
    """Return the evaluations of an entry over time, in units of the time of all steps of the baseline's recipe.

    The evaluations of the smaller entry of GROWN_FROM come first, and the time of its steps counts.
    """
    before = curve(GROWN_FROM[name], seed, output, runs) if name in GROWN_FROM else []
    begin = before[-1].time if before else 0.0
    workdir, pace = runs / f"{name}-{seed}", json.loads((output / "pace" / f"{name}.json").read_text())
    run = json.loads((workdir / "run.json").read_text())["config"]
    steps, ends = run["train"]["steps"], np.cumsum([phase["fraction"] for phase in run["train"]["phases"]])

    def time(step: int) -> float:
        begins = np.concatenate([[0.0], ends[:-1]]) * steps
        done = np.clip(step - begins, 0, np.diff(np.append(begins, steps)))
        return begin + float(done @ np.array(pace["seconds"]) / pace["baseline_seconds"])

    return before + [Point(time(step), loss) for step, loss in heldout_losses(workdir)]


def time_to(points: Sequence[Point], target: float) -> float | None:
    """Return the time at which a curve first reaches `target`, linear between evaluations; None if it never does."""
    before = None
    for point in points:
        if point.loss <= target:
            if before is None:
                return point.time
            return before.time + (point.time - before.time) * (before.loss - target) / (before.loss - point.loss)
        before = point
    return None


def table(output: pathlib.Path, runs: pathlib.Path) -> str:
    """Return the table of the entries: losses at the end, times, and a paired test over seeds against the baseline."""
    ends: dict[str, dict[int, Point]] = {}
    reached: dict[str, list[float]] = {}
    for workdir in sorted(runs.glob("*-*")):
        name, _, seed = workdir.name.rpartition("-")
        pace = output / "pace" / f"{name}.json"
        if not (workdir / "metrics.jsonl").exists() or not pace.exists() or not heldout_losses(workdir):
            continue
        points = curve(name, seed, output, runs)
        ends.setdefault(name, {})[int(seed)] = points[-1]
        if (time := time_to(points, TARGET)) is not None:
            reached.setdefault(name, []).append(time)
    head = (
        "entry",
        "lines",
        "seeds",
        "time",
        "loss (nats)",
        f"difference to {BASELINE}",
        "p",
        f"time to {TARGET} nats",
    )
    rows = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for name, last in ends.items():
        losses = [point.loss for point in last.values()]
        shared = sorted(last.keys() & ends.get(BASELINE, {}).keys())
        differences = [last[seed].loss - ends[BASELINE][seed].loss for seed in shared] if name != BASELINE else []
        p = stats.ttest_1samp(differences, 0.0).pvalue if len(differences) > 1 else None
        cells = (
            name,
            str(lines_changed(name)),
            " ".join(map(str, sorted(last))),
            f"{np.mean([point.time for point in last.values()]):.2f}",
            ", ".join(f"{loss:.3f}" for loss in losses),
            f"{np.mean(differences):+.3f}" if differences else "",
            "" if p is None else f"{p:.3f}",
            f"{np.mean(reached[name]):.2f} ({len(reached[name])} of {len(last)})" if name in reached else "not reached",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def lines_changed(name: str) -> int:
    """Return the number of lines of an entry's function without its name and its docstring; also of GROWN_FROM."""
    lines = inspect.getsource(ENTRIES[name]).split('"""')[-1].strip().splitlines()
    return len(lines) + (lines_changed(GROWN_FROM[name]) if name in GROWN_FROM else 0)


if __name__ == "__main__":
    main()
