"""Compare our fine-tuning with the Trainer of `transformers` on sequences of mixed lengths: speed and memory.

    python benchmarks/finetune_speed.py --data QNLI/dev.tsv.gz --vocab bert-base-uncased/ [--size mini] [--batch 32]
        [--max_length 128] [--examples 0] [--epochs 3]

All sides start from one model directory with random weights, written by our export, and train on the same pairs with
the same batch size, in float32 on the CPU. Our side is `bert_jax.training.loop.fit` with the buckets and batches of
`finetune`. The Trainer reads tokens from a list, pads to the longest sequence of a batch (DataCollatorWithPadding) and
keeps its defaults (shuffled, fused AdamW). A second Trainer puts sequences of similar length into a batch
(`group_by_length`). No side evaluates, saves or logs.

Each side is a process. The processes take turns of a few seconds, so that other load affects all of them: one runs
while the others are stopped, and the clock of a side runs only in its turns. The first epoch contains the compilations
and is reported separately; the figures are medians over the later epochs. Peak memory is `ru_maxrss` at the last step.
"""

import argparse
import csv
import gzip
import itertools
import json
import math
import os
import pathlib
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from importlib.metadata import version
from typing import Any, NamedTuple

TURN = 2.0  # seconds
ENDLESS = 1_000  # epochs: the parent ends all sides when each side has run enough epochs

Write = Callable[..., None]


def make_model(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Write a model directory with random weights and QNLI's head; all sides load it."""
    import dataclasses

    import jax

    from bert_jax.config import ComputeConfig
    from bert_jax.interop.huggingface import export_model
    from bert_jax.models import PRESETS, Head
    from bert_jax.models import make_model as make
    from bert_jax.tasks.table import TASKS

    config = dataclasses.replace(PRESETS[arguments.size], max_positions=512)
    heads = (Head("sequence_classification", 2),)
    params = jax.device_get(jax.jit(make(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    export_model(params, config, heads, arguments.vocab, directory / "model", TASKS["qnli"].labels)


def ours(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Run the training loop of `finetune`, without a held-out set."""
    import jax

    from bert_jax.config import FinetuneConfig, resolve, to_json
    from bert_jax.config.recipes import finetuning as recipe
    from bert_jax.console import Console
    from bert_jax.finetuning.batch_shapes import with_rows
    from bert_jax.finetuning.inputs import objective_of_task, plan_training, read_task_inputs
    from bert_jax.finetuning.task_data import task_training_batches
    from bert_jax.objectives.base import Batch
    from bert_jax.parallel.sharding import batch_blocks, make_mesh
    from bert_jax.training.loop import fit
    from bert_jax.training.plan import Data, Plan, open_session
    from bert_jax.training.schedules import Phase
    from bert_jax.training.start import initial_state, open_checkpoints

    def compiled(event: str, duration_secs: float, **of: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            write("compiled", seconds=duration_secs, step=of["fun_name"] == "jit(train_step)")

    values = recipe(epochs=ENDLESS, batch_size=arguments.batch, learning_rate=5e-5)
    values.init_from = str(directory / "model")
    values.checkpoint.update(every=sys.maxsize, max_time_fraction=None)
    values.task.update({"name": "qnli", "data": str(directory), "max_seq_len": arguments.max_length})
    with open(directory / "ours.log", "w", encoding="utf-8") as log:
        console, config = Console(log), resolve(FinetuneConfig, values)
        settings, train = config.task, config.train
        inputs = read_task_inputs(config.init_from, settings, train, False, config.seed, console)
        mesh = make_mesh(config.mesh)
        feed, phase = plan_training(inputs, settings, train)
        feed = with_rows(feed, inputs.train.features, arguments.epochs, 1, inputs.architectures, config.compute, mesh)
        plan = Plan(
            workdir=directory / "ours",
            root=directory / "ours",
            recorded_config=to_json(config),
            fingerprint={},
            seed=config.seed,
            objective=objective_of_task(inputs, settings, config.compute, freeze_encoder=False, num_steps=phase.end),
            phases=(phase,),
            mesh=mesh,
            optimizer=config.optimizer,
            compute=config.compute,
            train=train,
            evaluate_every=None,
            checkpoint=config.checkpoint,
            profiled_steps=None,
        )
        blocks = batch_blocks(plan.mesh)

        def batches(_: Phase, step: int) -> Generator[Batch, None, None]:
            for batch in task_training_batches(inputs.train, feed, config.seed, blocks, step):
                yield batch
                write("step")

        write("begin", buckets=feed.buckets, lengths=[features.length for features in inputs.train.features])
        jax.monitoring.register_event_duration_secs_listener(compiled)
        with open_session(console, config.watchdog) as session, open_checkpoints(plan, session) as checkpoints:
            assert checkpoints
            params = inputs.weights.params
            start = initial_state(plan, params)
            fit(plan, Data(batches=batches), start, checkpoints, session)


def trainer(directory: pathlib.Path, arguments: argparse.Namespace, write: Write, sampling: str = "random") -> None:
    """Run the Trainer with its defaults."""
    import transformers
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

    transformers.utils.logging.set_verbosity_error()

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            write("step")

    model = AutoModelForSequenceClassification.from_pretrained(directory / "model")
    tokenizer = AutoTokenizer.from_pretrained(directory / "model")
    with open(directory / "train.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    data = []
    for row in rows:
        inputs = tokenizer(row["question"], row["sentence"], truncation=True, max_length=arguments.max_length)
        data.append({**inputs, "label": model.config.label2id[row["label"]]})
    settings = TrainingArguments(
        output_dir=str(directory / sampling),
        use_cpu=True,
        per_device_train_batch_size=arguments.batch,
        num_train_epochs=ENDLESS,
        train_sampling_strategy=sampling,
        eval_strategy="no",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    collator = transformers.DataCollatorWithPadding(tokenizer)
    training = Trainer(model, settings, collator, data, callbacks=[Steps()])
    write("begin", lengths=[len(example["input_ids"]) for example in data])
    training.train()


def trainer_grouped(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Run the Trainer with sequences of similar length in a batch, which needs less padding."""
    trainer(directory, arguments, write, "group_by_length")


SIDES = {"ours": ours, "Trainer": trainer, "Trainer group_by_length": trainer_grouped}
ALL = SIDES | {"model": make_model}


def run_side(name: str, directory: pathlib.Path, arguments: argparse.Namespace) -> None:
    """Run one side in this process; write each event to its file, with the time and the peak memory so far."""
    with open(directory / f"{name}.jsonl", "w", encoding="utf-8") as file:

        def write(what: str, **fields: Any) -> None:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            event = {"what": what, "at": time.monotonic(), "cpu": time.process_time(), "peak": peak, **fields}
            print(json.dumps(event), file=file, flush=True)

        ALL[name](directory, arguments, write)


class Side:
    """One side: its process, which runs only in its turns, and its events."""

    def __init__(self, name: str, directory: pathlib.Path) -> None:
        self.name, self.events = name, directory / f"{name}.jsonl"
        self.turns: list[tuple[float, float]] = []
        self.errors = directory / f"{name}.err"
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(command(name, directory), stdout=errors, stderr=errors)
        self.process.send_signal(signal.SIGSTOP)

    def take_turn(self) -> None:
        """Run the process for a while, then stop it."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(TURN)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGSTOP)
            self.turns.append((begin, time.monotonic()))
            return
        sys.exit(f"{self.name} ended with {self.process.returncode}\n{self.errors.read_text()}")

    def active(self, at: float) -> float:
        """Return the seconds that the side has run up to a time."""
        return sum(max(0.0, min(at, end) - begin) for begin, end in self.turns)

    def read(self, what: str) -> list[dict[str, Any]]:
        """Return the events of one kind that the process has written so far."""
        lines = self.events.read_text().splitlines(keepends=True) if self.events.exists() else []
        events = (json.loads(line) for line in lines if line.endswith("\n"))
        return [event for event in events if event["what"] == what]


class Result(NamedTuple):
    """Speed and memory of one side."""

    speed: float  # examples/s, median over the epochs after the first
    slowest: float
    fastest: float
    cpu: float  # CPU milliseconds per example, median over these epochs; other load changes it less
    first: float  # seconds of the first epoch, from the event `begin`
    programs: int  # number of compiled programs of the step
    compiling: float  # seconds to compile these and all other programs
    peak: float  # MiB


def result(side: Side, examples: int, per_epoch: int) -> Result:
    """Compute the figures of a side from its events."""
    begin, steps, programs = side.read("begin")[0], side.read("step"), side.read("compiled")
    ends = [side.active(step["at"]) for step in steps[per_epoch - 1 :: per_epoch]]
    speeds = [examples / (end - before) for before, end in itertools.pairwise(ends)]
    cpu = [(b["cpu"] - a["cpu"]) / examples for a, b in itertools.pairwise(steps[per_epoch - 1 :: per_epoch])]
    return Result(
        statistics.median(speeds),
        min(speeds),
        max(speeds),
        1e3 * statistics.median(cpu),
        ends[0] - side.active(begin["at"]),
        sum(program["step"] for program in programs),
        sum(side.active(program["at"]) - side.active(program["at"] - program["seconds"]) for program in programs),
        steps[-1]["peak"],
    )


def command(name: str, directory: pathlib.Path) -> list[str]:
    """Return the command that starts this script as the process of one side."""
    return [sys.executable, *sys.argv, "--side", name, "--directory", str(directory)]


def write_pairs(source: pathlib.Path, directory: pathlib.Path, examples: int) -> int:
    """Write a training set, the first `examples` rows of a QNLI file (0: all), and a dev set, which `prepare` needs."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8", newline="") as file:
        header, *lines = file.readlines()
    lines = lines[: examples or len(lines)]
    for name, rows in (("train.tsv", lines), ("dev.tsv", lines[:1])):
        (directory / name).write_text(header + "".join(rows), encoding="utf-8")
    return len(lines)


def compare(directory: pathlib.Path, arguments: argparse.Namespace) -> None:
    """Run all sides in turns until each side has run its epochs, then print a table."""
    examples = write_pairs(pathlib.Path(arguments.data), directory, arguments.examples)
    per_epoch = math.ceil(examples / arguments.batch)
    subprocess.run(command("model", directory), check=True)
    sides = [Side(name, directory) for name in SIDES]
    try:
        while any(len(side.read("step")) < per_epoch * (1 + arguments.epochs) for side in sides):
            for side in sides:
                side.take_turn()
    finally:
        for side in sides:
            side.process.kill()
            side.process.wait()

    lengths, buckets = sides[0].read("begin")[0]["lengths"], sides[0].read("begin")[0]["buckets"]
    assert all(sorted(side.read("begin")[0]["lengths"]) == sorted(lengths) for side in sides[1:])
    deciles = statistics.quantiles(lengths, n=10)
    print(
        f"BERT-{arguments.size}, {examples:,} pairs, {arguments.batch} a batch, at most {arguments.max_length} tokens: "
        f"{statistics.fmean(lengths):.0f} on average, deciles {deciles[0]:.0f} and {deciles[-1]:.0f}, longest "
        f"{max(lengths)}; buckets {', '.join(map(str, buckets))}\n"
        f"{os.cpu_count()} CPUs ({platform.machine()}), load {os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {version(name)}" for name in ("jax", "torch", "transformers", "accelerate"))
    )
    results = {side.name: result(side, examples, per_epoch) for side in sides}
    for name, figures in results.items():
        print(
            f"{name:24s} {figures.speed:7.1f} examples/s ({figures.slowest:.1f} to {figures.fastest:.1f})   "
            f"{figures.cpu:5.1f} ms of CPU each   "
            f"first epoch {figures.first:6.1f} s   {figures.programs} compiled steps, "
            f"compiling {figures.compiling:5.1f} s   peak {figures.peak:,.0f} MiB"
        )
    best = results["ours"]
    for name, figures in list(results.items())[1:]:
        print(
            f"ratio ours / {name}: {best.speed / figures.speed:.2f} in examples/s, "
            f"{figures.cpu / best.cpu:.2f} in CPU time, {figures.first / best.first:.2f} over the first epoch, "
            f"{best.peak / figures.peak:.2f} in peak memory"
        )


def main() -> None:
    """Compare all sides, or run as the process of one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="dev.tsv or train.tsv of QNLI, plain or .gz")
    parser.add_argument("--vocab", required=True, help="directory with the vocabulary of BERT uncased")
    parser.add_argument("--size", default="mini", help="of BERT: a row of bert_jax/config/presets.py")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--examples", type=int, default=0, help="take the first so many; 0: all")
    parser.add_argument("--epochs", type=int, default=3, help="to measure, after the first")
    parser.add_argument("--side", choices=ALL, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # `finally` ends the sides
    if arguments.side:
        run_side(arguments.side, arguments.directory, arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        compare(pathlib.Path(directory), arguments)


if __name__ == "__main__":
    main()
