"""Predictions as the files that the benchmarks take."""

import contextlib
import csv
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.errors import writing
from bert_jax.tasks.row import Example
from bert_jax.tasks.task import Task

Examples = Sequence[Example]
SUFFIXES = {"glue": ".tsv", "squad": ".json", "conll": ".conll", "conll_tab": ".conll", "csv": ".csv"}


def file_name(task: Task, split: str) -> str:
    """What the file of a set is called: the benchmark's own name, or one made of task and set."""
    source = task.splits.get(split)
    return (source.submission if source else "") or f"{task.name}-{split}{SUFFIXES.get(task.submission, '.jsonl')}"


def write(task: Task, examples: Examples, predictions: Any, path: str | os.PathLike[str]) -> None:
    """Write the predictions of a set in the format of the task; the file is there whole or not at all.

    Args:
        task: a row of the table, or the user's own.
        examples: the set, in order; labels are not needed.
        predictions: classification and choice int `[n]`, regression float `[n]`, tagging for each example a list of
            one int a token, span a dict of id -> text.
        path: of the file.

    Raises:
        UserError: the file cannot be written.
        ValueError: predictions that are not those of the examples.
    """
    if task.kind == "span":
        missing = [example["id"] for example in examples if example["id"] not in predictions]
        if missing or len(predictions) != len(examples):
            raise ValueError(f"{len(predictions)} predictions for {len(examples)} questions, {len(missing)} without")
    elif len(predictions) != len(examples):
        raise ValueError(f"{len(predictions)} predictions for {len(examples)} examples")
    _replace(path, FORMATS[task.submission](task, examples, predictions))


def _glue(task: Task, examples: Examples, predictions: Any) -> str:
    """A header, then index and prediction, as GLUE's server reads it: the labels as in the training file."""
    spelled = task.codes or task.labels
    rows = [
        (example["id"], spelled[prediction] if spelled else format(prediction, ".3f"))
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    # By number: TFDS shuffles a data set when it prepares it.
    rows.sort(key=lambda row: (len(row[0]), row[0]))
    return "".join(f"{index}\t{label}\n" for index, label in [("index", "prediction"), *rows])


def _squad(task: Task, examples: Examples, predictions: Mapping[str, str]) -> str:
    """One object, id -> answer, '' for none, as the official script reads it."""
    return json.dumps({example["id"]: predictions[example["id"]] for example in examples}, ensure_ascii=False) + "\n"


def _conll(task: Task, examples: Examples, predictions: Any, separator: str) -> str:
    """Token, label where there is one, prediction, as conlleval reads it; an empty line after each sentence."""
    lines = []
    for example, predicted in zip(examples, predictions, strict=True):
        columns = [example["tokens"], *([example["labels"]] if "labels" in example else []), predicted]
        for token, *labels in zip(*columns, strict=True):
            lines.append(separator.join([token, *(task.labels[label] for label in labels)]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _csv(task: Task, examples: Examples, predictions: Any) -> str:
    """Id and number of the choice, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "label"])
    writer.writerows([example["id"], int(label)] for example, label in zip(examples, predictions, strict=True))
    return text.getvalue()


def _json_lines(task: Task, examples: Examples, predictions: Any) -> str:
    """An object a line: id, and label | tokens, labels | answer, labels by name."""
    if task.kind == "span":
        predictions = [predictions[example["id"]] for example in examples]
    pairs = zip(examples, predictions, strict=True)
    lines = [{"id": example["id"]} | _FIELDS[task.kind](task, example, prediction) for example, prediction in pairs]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


_FIELDS: dict[str, Callable[[Task, Example, Any], dict[str, Any]]] = {
    "classification": lambda task, example, prediction: {"label": task.labels[prediction]},
    "regression": lambda task, example, prediction: {"label": float(prediction)},
    "tagging": lambda task, example, prediction: {
        "tokens": example["tokens"],
        "labels": [task.labels[label] for label in prediction],
    },
    "span": lambda task, example, prediction: {"answer": prediction},
    "choice": lambda task, example, prediction: {"label": int(prediction)},
}
FORMATS: dict[str, Callable[[Task, Examples, Any], str]] = {
    "glue": _glue,
    "squad": _squad,
    "conll": lambda task, examples, predictions: _conll(task, examples, predictions, " "),
    "conll_tab": lambda task, examples, predictions: _conll(task, examples, predictions, "\t"),
    "csv": _csv,
    "json_lines": _json_lines,
}


def _replace(path: str | os.PathLike[str], text: str) -> None:
    partial = f"{os.fspath(path)}.partial"
    with writing(path):
        try:
            with open(partial, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.replace(partial, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial)
