"""Compare our fine-tuning with the Trainer of `transformers` on sequences of mixed lengths: speed and memory.

    python benchmarks/finetune_speed.py --task qnli --data QNLI/dev.tsv.gz --vocab VOCABULARY --output speed.jsonl
    python benchmarks/finetune_speed.py --output speed.jsonl --table

Tasks: `qnli` (pairs of up to 128 tokens), `squad` (questions and contexts of up to 384 tokens, from a train-v1.1 file)
and `pos` (parts of speech of the first 12 words of sentences, from a .conllu file of Universal Dependencies).

All sides start from one model directory with random weights, written by our export, and train on the same token ids
with the same batch size, in float32 on the CPU. Our side is `bert_jax.training.loop.fit` with batches of `finetune`.
The Trainer reads tokens from a list, pads to the longest sequence of a batch (DataCollatorWithPadding) and keeps its
defaults (shuffled, fused AdamW). A second Trainer puts sequences of similar length into a batch (`group_by_length`). No
side evaluates, saves or logs. `--cached` adds our side with all programs in the persistent cache, as in a second run.

Each side is a process. The processes take turns of a few seconds, so that other load affects all of them: one process
runs while the other processes are stopped. The clock of a side runs only in the turns of this side. The first epoch
includes compilation. Peak memory is `ru_maxrss` at the last step. Each comparison appends a line to `--output`.
`--table` prints the geometric mean of the paired ratios of all lines, with its 95 % interval by Student's t. The pairs
are the epochs after the first, and the times from the start of a run to the end of its first and of its second epoch.
"""

import argparse
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


class Cell(NamedTuple):
    """A row of CELLS: a task, and the settings of its comparison."""

    values: dict[str, Any]  # of config.task
    classes: int  # 0: the head of question answering
    model_class: str  # of transformers
    targets: dict[str, str]  # our name of a target -> the Trainer's
    num_examples: int


UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"
CELLS = {
    "qnli": Cell(
        {"name": "qnli", "max_seq_len": 128}, 2, "AutoModelForSequenceClassification", {"labels": "labels"}, 640
    ),
    "squad": Cell(
        {"name": "squad1", "max_seq_len": 384, "train": "train.json", "dev": "dev.json"},
        0,
        "AutoModelForQuestionAnswering",
        {"starts": "start_positions", "ends": "end_positions"},
        256,
    ),
    "pos": Cell(
        {"name": "custom", "kind": "token_classification", "labels": UPOS.replace(" ", ","), "max_seq_len": 64}
        | {"train": "train.jsonl", "dev": "dev.jsonl"},
        17,
        "AutoModelForTokenClassification",
        {"token_labels": "labels"},
        800,
    ),
}


def write_sets(task: str, source: pathlib.Path, directory: pathlib.Path, examples: int) -> None:
    """Write a training set with the first `examples` examples of a file, and a dev set of a single example."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8", newline="") as file:
        text = file.read()
    if task == "qnli":
        header, *lines = text.splitlines(keepends=True)
        files = {"train.tsv": lines[:examples], "dev.tsv": lines[:1]}
        for name, chosen in files.items():
            (directory / name).write_text(header + "".join(chosen), encoding="utf-8")
    elif task == "squad":
        paragraphs = [paragraph for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
        step = max(1, 3 * len(paragraphs) // examples)  # three questions of each chosen paragraph
        sample = [{**paragraph, "qas": paragraph["qas"][:3]} for paragraph in paragraphs[::step]]
        for name, selected in (("train.json", sample), ("dev.json", sample[:1])):
            content = {"version": "1.1", "data": [{"title": "", "paragraphs": selected}]}
            (directory / name).write_text(json.dumps(content), encoding="utf-8")
    else:
        sentences = []
        for block in text.split("\n\n"):
            columns = [line.split("\t") for line in block.splitlines() if line[:1].isdigit()]
            words = [column for column in columns if column[0].isdigit()]
            if len(words) >= 12:
                sentences.append({"tokens": [w[1] for w in words[:12]], "labels": [w[3] for w in words[:12]]})
        for name, rows in (("train.jsonl", sentences[:examples]), ("dev.jsonl", sentences[:1])):
            (directory / name).write_text("".join(json.dumps(x) + "\n" for x in rows), encoding="utf-8")


def make_model(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Write a model directory with random weights and the head of the task; all sides load it."""
    import dataclasses

    import jax

    from bert_jax.config import ComputeConfig
    from bert_jax.interop.huggingface import export_model
    from bert_jax.models import PRESETS, Head
    from bert_jax.models import make_model as make
    from bert_jax.tasks.table import TASKS

    cell = CELLS[arguments.task]
    names = {"qnli": "sequence_classification", "squad": "question_answering", "pos": "token_classification"}
    labels = {"qnli": TASKS["qnli"].labels, "squad": (), "pos": tuple(UPOS.split())}[arguments.task]
    config = dataclasses.replace(PRESETS[arguments.size], max_positions=512)
    heads = (Head(names[arguments.task], cell.classes),)
    params = jax.device_get(jax.jit(make(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    export_model(params, config, heads, arguments.vocab, directory / "model", labels)


def ours(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Run the training loop of `finetune`, without a held-out set."""
    import jax

    from bert_jax.config import FinetuneConfig, resolve, to_json
    from bert_jax.config.recipes import finetuning as recipe
    from bert_jax.console import Console
    from bert_jax.finetuning.batch_shapes import with_packed_rows_if_cheaper
    from bert_jax.finetuning.inputs import objective_of_task, plan_training, read_task_inputs
    from bert_jax.finetuning.training_sets import TrainingSet, task_training_batches
    from bert_jax.objectives.base import Batch
    from bert_jax.parallel.sharding import batch_blocks, make_mesh
    from bert_jax.tasks.batching import describe_batch_shapes
    from bert_jax.training.loop import fit
    from bert_jax.training.plan import Data, Plan, open_session
    from bert_jax.training.schedules import Phase
    from bert_jax.training.start import initial_state, open_checkpoints

    def compiled(event: str, duration_secs: float, **of: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            write("compiled", seconds=duration_secs, step=of["fun_name"] == "jit(train_step)")

    cell, run = CELLS[arguments.task], directory / arguments.side
    values = recipe(epochs=ENDLESS, batch_size=arguments.batch, learning_rate=5e-5)
    values.init_from = str(directory / "model")
    values.checkpoint.update(every=sys.maxsize, max_time_fraction=None)
    values.task.update(cell.values | {"data": str(directory)})
    with open(directory / f"{arguments.side}.log", "w", encoding="utf-8") as log:
        console, config = Console(log), resolve(FinetuneConfig, values)
        settings, train = config.task, config.train
        inputs = read_task_inputs(config.init_from, settings, train, False, config.seed, console)
        mesh = make_mesh(config.mesh)
        feed, phase, _ = plan_training(inputs, settings, train)
        features = inputs.train[0].features
        heads = inputs.weights.heads
        feed = with_packed_rows_if_cheaper(
            feed, features, arguments.epochs, 1, inputs.architectures, heads, config.compute, mesh
        )
        plan = Plan(
            workdir=run,
            root=run,
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
            evaluate_first=False,
            checkpoint=config.checkpoint,
            profiled_steps=None,
        )
        blocks = batch_blocks(plan.mesh)

        def batches(_: Phase, step: int) -> Generator[Batch, None, None]:
            for batch in task_training_batches((TrainingSet(features, feed),), None, config.seed, blocks, step):
                yield batch
                write("step")

        if arguments.side == "ours":
            write_features(directory, cell, features)
        shapes = describe_batch_shapes(feed, features)
        write("begin", shapes=shapes, lengths=[feature.length for feature in features])
        jax.monitoring.register_event_duration_secs_listener(compiled)
        with open_session(console, config.watchdog) as session, open_checkpoints(plan, session) as checkpoints:
            assert checkpoints
            params = inputs.weights.params
            start = initial_state(plan, params)
            fit(plan, Data(batches=batches), start, checkpoints, session)


def write_features(directory: pathlib.Path, cell: Cell, features: Any) -> None:
    """Write the token ids and the targets for the Trainer; a token without a label has the label -100."""
    made = []
    for feature in features:
        ids, start = feature.input_ids.tolist(), feature.type_1_start
        example = {"input_ids": ids, "token_type_ids": [int(n >= start) for n in range(len(ids))]}
        for name, theirs in cell.targets.items():
            value = feature.targets[name].tolist()
            if name == "token_labels":
                weights = feature.targets["token_weights"]
                value = [label if weight else -100 for label, weight in zip(value, weights, strict=True)]
            example[theirs] = value
        made.append(example)
    partial = directory / "features.partial"
    partial.write_text(json.dumps(made), encoding="utf-8")
    partial.rename(directory / "features.json")


def trainer(directory: pathlib.Path, arguments: argparse.Namespace, write: Write, sampling: str = "random") -> None:
    """Run the Trainer with its defaults."""
    import transformers

    transformers.utils.logging.set_verbosity_error()

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            write("step")

    model = getattr(transformers, CELLS[arguments.task].model_class).from_pretrained(directory / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "model")
    while not (directory / "features.json").exists():
        time.sleep(0.1)
    data = json.loads((directory / "features.json").read_text(encoding="utf-8"))
    settings = transformers.TrainingArguments(
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
    kinds = {"pos": transformers.DataCollatorForTokenClassification}
    collator = kinds.get(arguments.task, transformers.DataCollatorWithPadding)(tokenizer)
    training = transformers.Trainer(model, settings, collator, data, callbacks=[Steps()])
    write("begin", lengths=[len(example["input_ids"]) for example in data])
    training.train()


def trainer_grouped(directory: pathlib.Path, arguments: argparse.Namespace, write: Write) -> None:
    """Run the Trainer with sequences of similar length in a batch, which needs less padding."""
    trainer(directory, arguments, write, "group_by_length")


SIDES = {"ours": ours, "Trainer": trainer, "Trainer group_by_length": trainer_grouped}
CACHED = "ours, programs cached"
ALL = SIDES | {CACHED: ours, "model": make_model}


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
            self.process = subprocess.Popen(
                command(name, directory), stdout=errors, stderr=errors, env=environment(name, directory)
            )
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


def figures_of(side: Side, per_epoch: int) -> dict[str, Any]:
    """Return the seconds from `begin` to the end of each epoch, CPU seconds, number of programs, and peak memory."""
    begin, steps, programs = side.read("begin")[0], side.read("step"), side.read("compiled")
    ends = steps[per_epoch - 1 :: per_epoch]
    return {
        "seconds": [side.active(step["at"]) - side.active(begin["at"]) for step in ends],
        "cpu": [step["cpu"] - begin["cpu"] for step in ends],
        "programs": sum(program["step"] for program in programs),
        "compiling": sum(side.active(x["at"]) - side.active(x["at"] - x["seconds"]) for x in programs),
        "peak": steps[-1]["peak"],
    }


def command(name: str, directory: pathlib.Path) -> list[str]:
    """Return the command that starts this script as the process of one side."""
    return [sys.executable, *sys.argv, "--side", name, "--directory", str(directory)]


def environment(name: str, directory: pathlib.Path) -> dict[str, str]:
    """Return the environment of a side: `CACHED` has a persistent cache of programs, and the other sides have none."""
    variables = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    if name == CACHED:
        variables |= {
            "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
        }
    return variables


def run_until(sides: list[Side], steps: int) -> None:
    """Let the sides take turns until each has run its steps, then end them."""
    try:
        while any(len(side.read("step")) < steps for side in sides):
            for side in sides:
                side.take_turn()
    finally:
        for side in sides:
            side.process.kill()
            side.process.wait()


def compare(directory: pathlib.Path, arguments: argparse.Namespace) -> None:
    """Run all sides in turns until each side has run its epochs, then append a line to the output."""
    examples = arguments.examples or CELLS[arguments.task].num_examples
    write_sets(arguments.task, pathlib.Path(arguments.data), directory, examples)
    subprocess.run(command("model", directory), check=True)
    names = list(SIDES)
    if arguments.cached:
        names.append(CACHED)
        run_until([Side(CACHED, directory)], 1)  # fills the cache
    sides = [Side(name, directory) for name in names]
    while not sides[0].read("begin"):
        sides[0].take_turn()
    lengths, shapes = sides[0].read("begin")[0]["lengths"], sides[0].read("begin")[0]["shapes"]
    per_epoch = math.ceil(len(lengths) / arguments.batch)
    run_until(sides, per_epoch * arguments.epochs)
    assert all(sorted(side.read("begin")[0]["lengths"]) == sorted(lengths) for side in sides[1:])
    line = {
        "task": arguments.task,
        "size": arguments.size,
        "batch": arguments.batch,
        "examples": len(lengths),
        "tokens": sum(lengths),
        "longest": max(lengths),
        "shapes": shapes,
        "machine": f"{os.cpu_count()} CPUs ({platform.machine()}), load {os.getloadavg()[0]:.1f}, "
        f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}",
        "versions": {name: version(name) for name in ("jax", "torch", "transformers", "accelerate")},
        "sides": {side.name: figures_of(side, per_epoch) for side in sides},
    }
    with open(arguments.output, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


# Seconds from the start to the end of each epoch -> seconds whose ratio is printed, one for each pair.
MEASURES: dict[str, Callable[[list[float]], list[float]]] = {
    "later epochs": lambda ends: [end - before for before, end in itertools.pairwise(ends)],
    "first epoch, with compilation": lambda ends: ends[:1],
    "first two epochs, with compilation": lambda ends: ends[1:2],
}
T_OF_95_PERCENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145)


def print_table(output: pathlib.Path) -> None:
    """Print the ratios of all comparisons, as the geometric mean of pairs with its interval."""
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    for setting in dict.fromkeys((line["task"], line["size"], line["batch"], line["shapes"]) for line in lines):
        chosen = [line for line in lines if (line["task"], line["size"], line["batch"], line["shapes"]) == setting]
        first = chosen[0]
        task, size, batch, shapes = setting
        mean = first["tokens"] / first["examples"]
        print(
            f"\n{task}: BERT-{size}, {first['examples']:,} sequences of {mean:.0f} tokens on average, longest "
            f"{first['longest']}, {batch} a batch; ours {shapes}\n"
            f"{len(chosen)} comparisons; {first['machine']}; {first['versions']}\n"
        )
        for name in first["sides"]:
            of_side = [line["sides"][name] for line in chosen if name in line["sides"]]
            epochs = [x for side in of_side for x in MEASURES["later epochs"](side["seconds"])]
            speed = f"{first['examples'] / statistics.median(epochs):.1f}" if epochs else "no"
            first_epoch = statistics.median(side["seconds"][0] for side in of_side)
            print(
                f"{name:24s} {speed} examples/s, first epoch {first_epoch:.1f} s, "
                f"{of_side[0]['programs']} compiled steps, compiling {of_side[0]['compiling']:.1f} s, "
                f"peak {max(side['peak'] for side in of_side):,.0f} MiB"
            )
        print("\n| speed of ours over | measure | by the clock (95 % interval) | by CPU time | pairs |")
        print("| --- | --- | --- | --- | --- |")
        for ours_name, theirs_name in itertools.product(("ours", CACHED), list(SIDES)[1:]):
            cached = ", our programs cached" if ours_name == CACHED else ""
            of_pairs = [
                (line["sides"][ours_name], line["sides"][theirs_name]) for line in chosen if ours_name in line["sides"]
            ]
            for measure, times in MEASURES.items():
                by_clock, by_cpu = (
                    [
                        math.log(theirs / mine)
                        for a, b in of_pairs
                        for mine, theirs in zip(times(a[key]), times(b[key]), strict=False)
                    ]
                    for key in ("seconds", "cpu")
                )
                if by_clock:
                    cells = (ratio_text(by_clock), ratio_text(by_cpu), len(by_clock))
                    print(f"| {theirs_name}{cached} | {measure} | {' | '.join(map(str, cells))} |")


def ratio_text(logs: list[float]) -> str:
    """Return the geometric mean of ratios, given as logarithms, and its interval by Student's t."""
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.2f}"
    t = T_OF_95_PERCENT[min(len(logs) - 2, len(T_OF_95_PERCENT) - 1)]
    half = t * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.2f} ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f})"


def main() -> None:
    """Compare all sides, print the table, or run as the process of one side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=CELLS, default="qnli")
    parser.add_argument("--data", help="train or dev file of the task, plain or .gz")
    parser.add_argument("--vocab", help="directory with the vocabulary of BERT uncased")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="JSON lines, a comparison each")
    parser.add_argument("--table", action="store_true", help="print the table of all comparisons")
    parser.add_argument("--size", default="mini", help="of BERT: a row of bert_jax/config/presets.py")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--examples", type=int, default=0, help="take the first so many; 0: the number of the task")
    parser.add_argument("--epochs", type=int, default=4, help="with the first")
    parser.add_argument("--cached", action="store_true", help="add our side with all programs in the persistent cache")
    parser.add_argument("--side", choices=ALL, help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # `finally` ends the sides
    if arguments.side:
        run_side(arguments.side, arguments.directory, arguments)
        return
    if not arguments.table:
        with tempfile.TemporaryDirectory() as directory:
            compare(pathlib.Path(directory), arguments)
    print_table(arguments.output)


if __name__ == "__main__":
    main()
