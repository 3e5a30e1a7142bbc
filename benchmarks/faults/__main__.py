"""Disturb the verbs (subcommands) of bert-jax at random until the time is up, and report the outcomes.

    python -m benchmarks.faults --minutes 20

Choose the scratch directory on the file system that runs will write to. CLASSES has the number of trials of each
class that two idle cores make in 20 minutes; for another time, the numbers change in proportion. Seed, class, process
and number determine a trial, so equal --only, --seed and --jobs repeat the trial. Failing writes need a C compiler
(`cc`). The exit status is 1 if the fault of any trial is not noticed, if a trial ends in a traceback or hangs, if a
process of the suite fails, or if no trial ran.
"""

import argparse
import collections
import importlib
import json
import os
import pathlib
import platform
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # cache every program, so that no trial compiles
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
# Modules that the verbs import, loaded before the processes fork.
MODULES = (
    "pretraining.pretrain", "pretraining.evaluate", "pretraining.budget.plan", "finetuning.finetune", "convert.export",
    "convert.vocabulary", "corpus.build.prepare", "tokenizer.train", "inference.fill_mask", "inference.embed",
    "inference.predict", "checkpoints.load_model", "checkpoints.verify", "parallel.joining", "cli.results_text",
    "cli.config_text",
)  # fmt: skip


class Class(NamedTuple):
    """Kind of fault: the function that runs a trial, and its number of trials."""

    module: str
    function: str
    trials: int  # in 20 minutes on two idle cores


CLASSES = {
    "SIGKILL": Class("stops", "killed", 130),
    "SIGTERM": Class("stops", "terminated", 10),
    "Ctrl-C": Class("stops", "interrupted", 10),
    "n-th write, fsync, rename fails": Class("writes", "failing", 15),
    "damaged tokenizer": Class("damage", "tokenizers", 350),
    "damaged corpus": Class("damage", "corpora", 250),
    "damaged run, resumed": Class("damage", "unfinished_runs", 30),
    "damaged run, exported": Class("damage", "runs", 120),
    "damaged fine-tuning": Class("damage", "tunings", 20),
    "damaged export": Class("damage", "exports", 200),
    "files from strangers": Class("inputs", "hostile", 310),
    "command lines": Class("inputs", "command_lines", 510),
    "NaN and Inf": Class("inputs", "not_finite", 15),
    "clock jumps": Class("stops", "other_clock", 8),
    "resumed on another mesh": Class("stops", "other_mesh", 3),
    "resumed by other processes": Class("processes", "other_count", 3),
    "one of four processes lost": Class("processes", "lost", 4),
    "slow process, false alarms": Class("processes", "slow", 3),
}


def main() -> int:
    """Run trials; print and write the table and the failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="time for trials (default: 2)")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="directory on the file system to try")
    parser.add_argument("--output", default="faults.json", help="file for the table and the failures, as JSON")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time (default: cores)")
    parser.add_argument("--only", choices=CLASSES, nargs="+", default=list(CLASSES), help="classes to try")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bert-jax-faults.", dir=args.scratch, ignore_cleanup_errors=True) as name:
        root = pathlib.Path(os.environ.get("BERT_JAX_FAULTS") or name).resolve()
        if "BERT_JAX_FAULTS" not in os.environ:  # start this Python again, with the environment of the trials
            environment = os.environ | ENVIRONMENT | {"BERT_JAX_FAULTS": str(root)}
            environment |= {"JAX_COMPILATION_CACHE_DIR": str(root / "cache")} | _preload(root)
            command = [sys.executable, "-m", "benchmarks.faults", *sys.argv[1:]]
            return subprocess.run(command, env=environment, check=False).returncode
        return _trials(args, root)


def _preload(root: pathlib.Path) -> dict[str, str]:
    """Build the shim; return the environment variable that loads it, or {} without a compiler."""
    library, source = root / "shim.so", pathlib.Path(__file__).with_name("shim.c")
    if not shutil.which("cc"):
        return {}
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


def _trials(args: argparse.Namespace, root: pathlib.Path) -> int:
    warnings.filterwarnings("ignore", message=r"os\.fork")  # JAX has no threads when a process forks
    for module in MODULES:
        importlib.import_module(f"bert_jax.{module}")
    from benchmarks.faults import damage, inputs, world, writes

    print("making the undisturbed results ...", flush=True)
    right = world.make_world(_new(root / "world"))
    seconds, counts = {}, {}
    for name, verb in world.VERBS.items():  # with warm caches
        again = _new(root / "again")
        ended = world.start(verb.command(right, again / "out"), again).wait()
        if verb.result(again / "out") != verb.result(getattr(right, verb.output)):
            raise SystemExit(f"{name} gives two different results")
        seconds[name] = ended.seconds
        counts[name] = writes.counts_of(right, name, _new(root / "again")) if world.has_shim() else [0, 0, 0]
    (right.directory / "seconds.json").write_text(json.dumps(seconds))
    (right.directory / "counts.json").write_text(json.dumps(counts))
    (right.directory / "fill_mask.json").write_text(damage.fill_mask(right, right.model, _new(root / "again")).text)
    print("undisturbed:", ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items()), flush=True)
    print("writes, syncs, renames:", ", ".join(f"{name} {count}" for name, count in counts.items()), flush=True)
    inputs.make_spare(right)
    if "files from strangers" in args.only and in_processes(1, lambda _: inputs.make_hostile(right, args.seed)):
        raise SystemExit("the files from strangers cannot be made")
    names = [name for name in args.only if world.has_shim() or CLASSES[name].module != "writes"]
    end = time.monotonic() + 60 * args.minutes
    failed = in_processes(args.jobs, lambda worker: _work(right, names, args.seed, worker, end, root))
    lines = [json.loads(line) for path in root.glob("outcomes.*") for line in path.read_text().splitlines()]
    status = _report(lines, args, names)
    if failed or not lines:
        print(f"\nprocesses that failed: {failed} of {args.jobs}; trials: {len(lines)}")
    return 1 if failed or not lines else status


def in_processes(count: int, work: Callable[[int], None]) -> int:
    """Call `work` with 0, 1 ..., each in its own fork; print the tracebacks of failed forks and return their number."""
    workers = []
    for worker in range(count):
        if pid := os.fork():
            workers.append(pid)
            continue
        status = 1
        try:
            work(worker)
            status = 0
        except BaseException:  # a forked worker must not return into the code of its parent
            traceback.print_exc()
        finally:
            os._exit(status)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in workers)


def _work(right: Any, names: list[str], seed: int, worker: int, end: float, root: pathlib.Path) -> None:
    """Run trials in one process until the time is up, in the proportions of CLASSES; write JSON lines."""
    counts = collections.Counter[str]()
    with open(root / f"outcomes.{worker}", "w") as file:
        while time.monotonic() < end:
            name = min(names, key=lambda candidate: (counts[candidate] + 0.5) / CLASSES[candidate].trials)
            row, trial = CLASSES[name], f"{seed} {name} {worker} {counts[name]}"
            began, scratch = _cpu_seconds(), _new(root / f"trial.{worker}")
            function = getattr(importlib.import_module(f"benchmarks.faults.{row.module}"), row.function)
            try:
                outcome, harm, text = function(random.Random(trial), right, scratch)
            except Exception:  # an error of the suite itself is neither an outcome nor hidden
                outcome, harm, text = "suite", trial, traceback.format_exc()
            counts[name] += 1
            record = {"class": name, "trial": trial, "outcome": outcome, "harm": harm, "text": text[-3000:]}
            file.write(json.dumps(record | {"cpu_seconds": _cpu_seconds() - began}) + "\n")
            file.flush()
        shutil.rmtree(scratch, ignore_errors=True)


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all ended processes that it started."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _new(path: pathlib.Path) -> pathlib.Path:
    """Make an empty directory at a path, and return it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def _report(lines: list[dict[str, Any]], args: argparse.Namespace, names: list[str]) -> int:
    from scipy.stats import beta

    from benchmarks.faults.outcome import FAILURES, OUTCOMES
    from bert_jax.training.checkpoint import package_versions

    rows: list[dict[str, Any]] = []
    for name in [*names, "all"]:
        outcomes = collections.Counter(line["outcome"] for line in lines if name in (line["class"], "all"))
        trials, failed = sum(outcomes[outcome] for outcome in OUTCOMES), sum(outcomes[outcome] for outcome in FAILURES)
        bound = float(beta.ppf(0.95, failed + 1, trials - failed)) if failed < trials else 1.0
        used = [line["cpu_seconds"] for line in lines if name in (line["class"], "all")]
        mean = sum(used) / max(1, len(used))
        counted = {outcome: outcomes[outcome] for outcome in OUTCOMES}
        rows.append({"class": name, "trials": trials, **counted, "upper_bound": bound, "cpu_seconds": mean})
    print(f"\n| {' | '.join(('class', 'trials', *OUTCOMES, '95 % upper bound', 'CPU s'))} |")
    print("| --- " * (4 + len(OUTCOMES)) + "|")
    for row in rows:
        cells = [row["class"], *(f"{row[column]:,}" for column in ("trials", *OUTCOMES)), f"{row['upper_bound']:.1%}"]
        cells.append(f"{row['cpu_seconds']:.1f}")
        print(f"| {' | '.join(cells)} |")
    software = {"python": platform.python_version()} | package_versions()
    print(f"\n{args.minutes:g} minutes, {args.jobs} at a time, seed {args.seed}; {platform.machine()}, ", end="")
    print(f"{os.cpu_count()} cores; {', '.join(f'{name} {version}' for name, version in software.items())}")
    kills = sum(line["harm"].count(" after ") for line in lines if line["class"] == "SIGKILL")
    print(f"kills that hit a running verb: {kills:,} in the trials of SIGKILL")
    failures = [line for line in lines if line["outcome"] in (*FAILURES, "suite")]
    for line in failures:
        print(f"\n{line['outcome']}: {line['trial']}: {line['harm']}\n{line['text'][-1500:]}")
    report = {
        "rows": rows,
        "kills": kills,
        "failures": failures,
        "seed": args.seed,
        "minutes": args.minutes,
        "versions": software,
    }
    pathlib.Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
