"""Faults of inputs: hostile files, random command lines, NaN and infinite numbers."""

import argparse
import importlib
import json
import pathlib
import random
from typing import Any

import numpy as np
import safetensors.numpy

from benchmarks.faults.damage import fill_mask
from benchmarks.faults.outcome import DETECTED, SILENT, SURVIVED, TRACEBACK, Outcome, broken, compared
from benchmarks.faults.world import World, copy, finetune, pretrain, start
from bert_jax.cli.main import VERBS as COMMANDS
from bert_jax.cli.parser import make_parser
from bert_jax.files import SUMS

MEMORY = 8 << 30  # bytes of address space of a process
HOSTILE = {"refused": DETECTED, "left out and counted": DETECTED, "silent": SURVIVED}
COMMAND_SECONDS = 20.0  # a random command line that runs longer is ended, and counts as survived


def make_hostile(world: World, seed: int) -> None:
    """Write every file of benchmarks/hostile_inputs.py; some files take longer to make than a trial."""
    suite = importlib.import_module("benchmarks.hostile_inputs")  # imports torch, only for this class
    harmed, index = world.directory / "hostile", list[tuple[str, str]]()
    harmed.mkdir()
    suite.make_world(harmed)
    for name, (trials, _) in suite.CLASSES.items():
        for file, content in trials(random.Random(f"{seed} {name}"), _hostile_world(world)):
            (harmed / str(len(index))).write_bytes(content)
            index.append((name, file))
    (harmed / "index.json").write_text(json.dumps(index))


def _hostile_world(world: World) -> Any:
    suite = importlib.import_module("benchmarks.hostile_inputs")
    return suite.World(*(world.directory / "hostile" / name for name in suite.World._fields))


def hostile(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Give a file of benchmarks/hostile_inputs.py to its verb, with 8 GiB of memory and a minute of CPU time."""
    suite = importlib.import_module("benchmarks.hostile_inputs")
    harmed = world.directory / "hostile"
    index = json.loads((harmed / "index.json").read_text())
    choice = rng.randrange(len(index))
    name, file = index[choice]
    argv = suite.CLASSES[name][1](scratch, _hostile_world(world), file, (harmed / str(choice)).read_bytes())
    outcome, peak, text = suite.attempt(argv)
    harm = f"{name}: {file}"
    if peak > suite.MAX_MEMORY:
        return Outcome(TRACEBACK, f"{harm}: {peak >> 20} MiB", text)
    return Outcome(HOSTILE.get(outcome, TRACEBACK), harm, text)


def make_spare(world: World) -> None:
    """Copy the outputs of the verbs, so that random command lines write only into the copies."""
    spare = _spare(world)
    spare.directory.mkdir()
    for source, target in zip(world[1:], spare[1:], strict=True):
        copy(source, target)


def _spare(world: World) -> World:
    directory = world.directory / "spare"
    return World(directory, *(directory / name for name in World._fields[1:]))


def command_lines(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Run a verb with a random command line of its options and of right and wrong values."""
    name = rng.choice(list(COMMANDS))
    subparsers = next(a for a in make_parser(COMMANDS)._actions if isinstance(a, argparse._SubParsersAction))
    options = [option for action in subparsers.choices[name]._actions for option in action.option_strings]
    options.remove("--debug")  # this option requests a traceback
    required = [action for action in subparsers.choices[name]._actions if action.required]
    world = _spare(world)
    right = [str(path) for path in (*world, scratch / "out", world.texts / "no", "bert_base", "glue")]
    wrong = ["", "-", "--", "-1", "0", "1", "nan", "inf", "1e999", "9" * 30, "é\udcff", "a" * 5000, "None", "{}", "0,1"]
    words = [name]
    for action in required:
        words += [*action.option_strings[:1], rng.choice(right)] if rng.random() < 0.95 else []
    for _ in range(rng.randint(0, 4)):
        key = rng.choice(["--config.seed", "--config.train.steps", "--config.model.num_layers", "--config.x", "--json"])
        words += [rng.choice([rng.choice(options), f"{key}={rng.choice(wrong)}", rng.choice(wrong)])]
        words += [rng.choice(wrong + right)] if rng.random() < 0.7 else []
    ended = start(words, scratch, memory=MEMORY).wait(COMMAND_SECONDS)
    harm = " ".join(map(ascii, words)).replace(str(world.directory), "WORLD")[:300]
    if ended.status is None:
        return Outcome(SURVIVED, f"{harm} (still at work)", ended.text)
    return broken(ended, harm) or Outcome(DETECTED if ended.status else SURVIVED, harm, ended.text)


def not_finite(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    """Put NaN or Inf into the weights of a model or the labels of a task, or cause them by a learning rate."""
    return rng.choice((_weights, _weights, _labels, _learning_rate))(rng, world, scratch)


def _weights(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    model = copy(world.model, scratch / "model")
    (model / SUMS).unlink()  # as in a model that bert_jax did not write
    tensors = safetensors.numpy.load_file(model / "model.safetensors")
    name, value = rng.choice(sorted(tensors)), rng.choice((np.nan, np.inf, -np.inf))
    tensors[name] = tensors[name].copy()
    tensors[name].flat[rng.randrange(tensors[name].size)] = value
    safetensors.numpy.save_file(tensors, model / "model.safetensors", {"format": "pt"})
    harm, output = f"{value} in {name}", scratch / "out"
    if rng.random() < 0.5:
        ended = fill_mask(world, model, scratch)
        return compared(ended, f"{harm}, fill-mask", ended.text == (world.directory / "fill_mask.json").read_text())
    verb = rng.choice((finetune, pretrain))
    overrides = (f"--config.init_from={model}",) if verb is pretrain else ()
    ended = start(verb(world._replace(model=model), output, *overrides), scratch).wait()
    return compared(ended, f"{harm}, {verb.__name__}", same=False)


def _labels(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    value = rng.choice(("nan", "inf", "-inf", "1e999", "NaN"))
    lines = [f"text {number}\t{number / 7}" for number in range(20)]
    lines[rng.randrange(20)] = f"text\t{value}"
    (scratch / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    changes = {"kind": "regression", "data": scratch, "train": "train.tsv", "dev": "train.tsv"}
    argv = [word for word in finetune(world, scratch / "out") if word.split(".")[-1].split("=")[0] not in changes]
    argv = [word for word in argv if not any(word.startswith(f"--config.task.{key}=") for key in changes)]
    ended = start([*argv, *(f"--config.task.{key}={value}" for key, value in changes.items())], scratch).wait()
    return compared(ended, f"label {value}", same=False)


def _learning_rate(rng: random.Random, world: World, scratch: pathlib.Path) -> Outcome:
    rate = 10.0 ** rng.randint(2, 37)
    output, harm = scratch / "out", f"learning rate {rate:g}"
    overrides = (f"--config.optimizer.peak_learning_rate={rate:g}", "--config.optimizer.clip_norm=None")
    ended = start(pretrain(world, output, *overrides[: rng.randint(1, 2)]), scratch).wait()
    if ended.status != 0:
        return compared(ended, harm, same=False)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    finite = all(line["loss"] is not None for line in lines)
    skipped = any(line.get("skipped_steps") for line in lines)
    return Outcome(DETECTED if skipped else SURVIVED if finite else SILENT, harm, ended.text)
