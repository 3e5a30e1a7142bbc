"""The predictions of a fine-tuned model: lines in, JSON lines out, a few at a time however many there are."""

import dataclasses
import itertools
import json
import os
import pathlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from bert_jax.config import ComputeConfig, TaskConfig, from_values
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError, writing
from bert_jax.inference.batching import Feed, Outputs, fixed_buckets, row_predictor
from bert_jax.inference.inputs import Input, name_of, read_inputs
from bert_jax.inference.load import OpenModel, open_model
from bert_jax.models import make_model
from bert_jax.tasks.examples import make
from bert_jax.tasks.examples import name_of as name_of_record
from bert_jax.tasks.features import rows
from bert_jax.tasks.predictions import as_record, predictions
from bert_jax.tasks.row import LABEL, Row
from bert_jax.tasks.task import FIELDS, LABEL_FIELDS, Record, Task

CHUNK = 1024  # examples that are read before the first of them is answered
# The head that a model has -> the kind of its task, where no task.json says it.
KINDS = ("classification", "tagging", "span", "choice")  # a head of a task is called as its kind


class Predictor(NamedTuple):
    """A fine-tuned model with its tokenizer and its task."""

    outputs_of: Callable[[Sequence[Row]], list[Outputs]]  # the model
    tokenizer: Tokenizer
    task: Task
    settings: TaskConfig
    null_threshold: float | None


def load_predictor(place: str | os.PathLike[str], batch_size: int = 32) -> Predictor:
    """Return the model of a directory of `finetune`, or of one of transformers with the head of a task.

    Raises UserError where it is none of these.
    """
    return make_predictor(open_model(place), batch_size)


def make_predictor(loaded: OpenModel, batch_size: int = 32) -> Predictor:
    """Return a predictor of a model with the head of a task; UserError where it has none."""
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: at least 1")
    kinds = [head.name for head in loaded.heads if head.name in KINDS]
    if not kinds:
        names = ", ".join(head.name for head in loaded.heads) or "no head"
        raise UserError(f"{loaded.directory}: a model with {names}, which has no head of a task; fine-tune it first")
    classes = loaded.heads[0].classes
    labels = loaded.labels or tuple(f"LABEL_{number}" for number in range(classes))
    kind = "regression" if kinds[0] == "classification" and classes == 1 else kinds[0]
    described: dict[str, Any]
    described = {"kind": kind, "labels": [*labels], "impossible": False, "null_threshold": 0.0}
    described["config"] = {"max_seq_len": loaded.config.max_positions}  # of transformers: as long as it can read
    path = loaded.directory / "task.json"
    if path.is_file():
        described |= _read_settings(path, described)
    if described["kind"] != kind or (kind in ("classification", "tagging") and described["labels"] != [*labels]):
        raise UserError(f"{path} and config.json beside it are of different tasks; export the model again")
    settings = from_values(TaskConfig, described["config"], str(path))
    settings = dataclasses.replace(settings, max_seq_len=min(settings.max_seq_len, loaded.config.max_positions))
    task = Task("predict", kind, {}, (), "", labels, impossible=described["impossible"], published=False)
    threshold = described["null_threshold"] if task.impossible else None
    longest = settings.max_seq_len
    buckets = tuple(sorted({*(settings.buckets or fixed_buckets(longest)), longest}))
    feed = Feed(buckets, batch_size, loaded.config.num_token_types, loaded.tokenizer.pad_id)
    outputs_of = row_predictor(make_model(loaded.config, ComputeConfig(), loaded.heads), loaded.params, feed)
    return Predictor(outputs_of, loaded.tokenizer, task, settings, threshold)


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


def predict_file(place: str | os.PathLike[str], source: str, target: str, batch_size: int = 32) -> Counter[str]:
    """Write the predictions for the lines of a file into another, which appears whole or not at all.

    `-` is standard input or output. Returns how many examples there were, and how many texts were cut. Raises UserError
    as `load_predictor`, `read_inputs` and `predict`.
    """
    predictor = load_predictor(place, batch_size)
    counts: Counter[str] = Counter()

    def write(out: TextIO) -> None:
        for one in predict(predictor, read_inputs(source), counts):
            out.write(json.dumps(one, ensure_ascii=False) + "\n")
        out.flush()
        if not counts["examples"]:
            raise UserError(f"{name_of(source)}: no example in it; write one per line")

    if target == "-":
        write(sys.stdout)
        return counts
    partial = pathlib.Path(f"{target}.partial")
    try:
        with writing(target, "choose another --output"):
            with partial.open("w", encoding="utf-8") as out:
                write(out)
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return counts


def predict(predictor: Predictor, inputs: Iterable[Input], counts: Counter[str]) -> Iterator[dict[str, Any]]:
    """Yield a prediction for each input, in order, as JSON values.

    An input has the fields of tasks/task.py FIELDS, and an `id` if it wants it back; its number stands for a missing
    one. `counts` is updated with the number of examples and of texts that were cut. Where an input is refused, those
    before the `CHUNK` inputs that it is in are answered.
    """
    task, settings, inputs = predictor.task, predictor.settings, iter(inputs)
    while chunk := list(itertools.islice(inputs, CHUNK)):
        # By place, not by the id of the input: that may be there twice, or on some lines only.
        examples = [{"id": one.where, **_example(task, one)} for one in chunk]
        made, cut = rows(task.kind, examples, predictor.tokenizer, settings)
        outputs = predictor.outputs_of(made)
        found = predictions(task.kind, examples, made, outputs, settings, predictor.null_threshold)
        counts.update(cut | {"examples": len(examples)})
        for place, one in enumerate(chunk):
            given = one.fields.get("id")
            answer = as_record(task.kind, task.labels, examples[place], found, place)
            yield answer | {"id": str(one.number) if given is None else given}


def _example(task: Task, one: Input) -> dict[str, Any]:
    """The example of an input, without its id."""
    wanted = [field for field in FIELDS[task.kind] if field != LABEL[task.kind]]
    for field in wanted:
        if field not in one.fields:
            raise UserError(f"{one.where}: has no '{field}'; a {task.kind} needs {', '.join(wanted)}")
    # Labels are not read: an input may be labeled in a way that the model does not know.
    record = Record(one.where, {key: value for key, value in one.fields.items() if key not in LABEL_FIELDS})
    if "id" in one.fields:
        name_of_record(record)  # refuses what is no id
    return make(record, task, Counter())
