"""Use a fine-tuned model: JSON lines in, JSON lines out, a few at a time however many there are."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

import numpy as np

from bert_jax.config import ComputeConfig, TaskConfig, from_values
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError, writing
from bert_jax.inference.batching import Feed, row_predictor
from bert_jax.inference.load import open_model
from bert_jax.models import Head, Model, Params, make_model
from bert_jax.tasks.batching import choose_buckets
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Kind, make_features
from bert_jax.tasks.kinds.records import record_id
from bert_jax.tasks.task import Record, Task
from bert_jax.training.workdir import model_in

CHUNK = 1024  # examples that are read before the first of them is written


class Predictor(NamedTuple):
    """A fine-tuned model with its tokenizer and its task."""

    model: Model
    params: Params
    tokenizer: Tokenizer
    task: Task
    settings: TaskConfig
    null_threshold: float | None


def load_predictor(directory: pathlib.Path) -> Predictor:
    """The model of a directory: of `finetune`, or one of transformers with a task's head.

    Raises UserError where it is none of these, or its head is of pretraining.
    """
    directory = model_in(directory)
    loaded = open_model(directory)
    kinds = [name for name, kind in KINDS.items() for head in loaded.heads if _fits(kind, head)]
    if not kinds:
        names = ", ".join(head.name for head in loaded.heads) or "no head"
        raise UserError(f"{directory}: a model with {names}, which answers no task; fine-tune it first")
    labels = loaded.labels or tuple(f"LABEL_{number}" for number in range(loaded.heads[0].classes))
    described: dict[str, Any]
    described = {"kind": kinds[0], "labels": [*labels], "impossible": False, "null_threshold": 0.0}
    described["config"] = {"max_seq_len": loaded.config.max_positions}  # of transformers: as long as it can read
    path = directory / "task.json"
    if path.is_file():
        described |= _read_settings(path, described)
    kind = described["kind"]
    if kind not in kinds or (KINDS[kind].label_names and described["labels"] != [*labels]):
        raise UserError(f"{path} and config.json beside it are of different tasks; export the model again")
    settings = from_values(TaskConfig, described["config"], str(path))
    settings = dataclasses.replace(settings, max_seq_len=min(settings.max_seq_len, loaded.config.max_positions))
    task = Task("predict", kind, {}, (), "", labels, impossible=described["impossible"], published=False)
    threshold = described["null_threshold"] if task.impossible else None
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    return Predictor(model, loaded.params, loaded.tokenizer, task, settings, threshold)


def _fits(kind: Kind, head: Head) -> bool:
    """Return whether the head of a model is that of a kind."""
    return head.name == kind.head and kind.classes in (None, head.classes)


def _read_settings(path: pathlib.Path, like: dict[str, Any]) -> dict[str, Any]:
    """What `finetune` wrote, its values of the types that those of `like` have."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: invalid JSON ({error}); export the model again") from None
    if not isinstance(found, dict) or any(
        type(found.get(key, value)) is not type(value) for key, value in like.items()
    ):
        raise UserError(f"{path}: not the settings of a task; export the model again")
    return found


def predict_file(directory: pathlib.Path, source: str, target: str, batch_size: int) -> Counter[str]:
    """Answer the lines of a file (`-`: standard input) into another, which is there whole or not at all.

    Returns how many examples there were, and how much was cut. Raises UserError as `load_predictor` and `predict`.
    """
    if batch_size < 1:
        raise UserError(f"--batch_size {batch_size}: give at least 1")
    predictor = load_predictor(directory)
    partial = pathlib.Path(f"{target}.partial")
    with contextlib.ExitStack() as stack:
        if source == "-":
            lines, name = sys.stdin, "standard input"
        else:
            try:
                lines, name = stack.enter_context(open(source, encoding="utf-8")), source
            except OSError as error:
                raise UserError(f"--input {source}: cannot be read ({error.strerror})") from None
        if target == "-":
            return predict(predictor, lines, name, sys.stdout, batch_size)
        stack.enter_context(writing(target, "choose another --output"))
        stack.callback(partial.unlink, missing_ok=True)
        with open(partial, "w", encoding="utf-8") as out:
            counts = predict(predictor, lines, name, out, batch_size)
        os.replace(partial, target)
        return counts


def predict(predictor: Predictor, source: TextIO, name: str, out: TextIO, batch_size: int) -> Counter[str]:
    """Write a line for each line of `source`, in order; how many there were, and how many texts were cut.

    A line is an object with the fields of its kind of task, and an `id` if it wants one back. A mistake is named by
    `name` and line; what was read before the `CHUNK` lines that it is in is written.
    """
    model, task, settings = predictor.model, predictor.task, predictor.settings
    kind = KINDS[task.kind]
    # The same few lengths whatever comes, the longest row among them: programs are compiled once.
    longest = settings.max_seq_len
    buckets = tuple(
        sorted({*(settings.buckets or choose_buckets(np.arange(8, longest + 1), longest, program_tokens=0)), longest})
    )
    feed = Feed(buckets, batch_size, model.config.num_token_types, predictor.tokenizer.pad_id)
    answer = row_predictor(model, predictor.params, feed)
    counts: Counter[str] = Counter()
    numbered = enumerate(source, 1)
    while chunk := list(_read(numbered, name)):
        read = [(number, *_example(task, f"{name}:{number}", line)) for number, line in chunk if line.strip()]
        if not read:
            continue
        # By place, not by the id of the input: that one may be there twice, or on some lines only.
        examples = [{"id": f"{name}:{number}", **example} for number, _, example in read]
        features, cut = make_features(kind, examples, predictor.tokenizer, settings)
        found = kind.predict(examples, features, answer(features), settings, predictor.null_threshold)
        for place, (number, given, _) in enumerate(read):
            fields = kind.to_json(task.labels, examples[place], found.values[place])
            if found.details is not None:
                fields |= kind.details(task.labels, found.details[place])
            record = {"id": str(number) if given is None else given} | fields
            out.write(json.dumps(record, ensure_ascii=False) + "\n")
        out.flush()
        counts.update(cut | {"examples": len(examples)})
    if not counts["examples"]:
        raise UserError(f"{name}: no example in it; write one JSON object a line")
    return counts


def _read(numbered: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, str]]:
    try:
        yield from itertools.islice(numbered, CHUNK)
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: not UTF-8 ({error.reason} at byte {error.start} of what was read last)") from None


def _example(task: Task, where: str, line: str) -> tuple[str | int | None, dict[str, Any]]:
    """The id as it stands in the line, None where there is none, and the example."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: invalid JSON ({error}); write one object a line") from None
    if not isinstance(fields, dict):
        raise UserError(f"{where}: not a JSON object")
    kind = KINDS[task.kind]
    wanted = [field for field in kind.fields if field not in kind.label_fields]
    for field in wanted:
        if field not in fields:
            raise UserError(f"{where}: has no '{field}'; {task.kind} needs {', '.join(wanted)}")
    # Labels are not read: the data may be labelled in a way that the model does not know.
    unlabelled = {key: value for key, value in fields.items() if key not in kind.label_fields}
    record = Record(where, unlabelled)
    if "id" in fields:
        record_id(record)  # refuses what is no id
    return fields.get("id"), kind.make(record, task, Counter())
