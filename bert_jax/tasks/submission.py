"""Files of predictions in the formats of benchmarks; a format is a row of `FORMATS`."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_jax.errors import writing
from bert_jax.files import new_file
from bert_jax.strict_json import json_line
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Values
from bert_jax.tasks.task import Example, Task

Examples = Sequence[Example]
SUFFIXES = {"glue": ".tsv", "squad": ".json", "conll": ".conll", "conll_tab": ".conll", "csv": ".csv"}


def submission_file_name(task: Task, split: str) -> str:
    """Return the name of the file with the predictions of a set: the benchmark's file name, or TASK-SET.SUFFIX."""
    source = task.sets.get(split)
    return (source.submission if source else "") or f"{task.name}-{split}{SUFFIXES.get(task.submission, '.jsonl')}"


def write_submission(
    task: Task, examples: Examples, predictions: Values, path: str | os.PathLike[str], details: Values | None = None
) -> None:
    """Write the predictions of a set in the format of the task; the file appears complete or not at all.

    For a user's own task, each line of the file also has the probabilities, the gold label as `gold`, and the columns
    of the input row as `input`.

    Args:
        task: a task of `TASKS`, or a custom task.
        examples: examples of the set, in order; labels are not needed.
        predictions: a predicted value for each example, returned by `TaskKind.predict`.
        path: path of the file.
        details: details of the predictions, such as probabilities.

    Raises:
        UserError: the file cannot be written.
        ValueError: the numbers of predictions and of examples differ.
    """
    if len(predictions) != len(examples):
        raise ValueError(f"{len(predictions)} predictions for {len(examples)} examples")
    if task.published:
        _write_file(path, [FORMATS[task.submission](task, examples, predictions)])
    else:
        _write_file(path, _prediction_lines(task, examples, predictions, details))


def _glue_text(task: Task, examples: Examples, predictions: Values) -> str:
    """Return a TSV text for GLUE's server: a header, then a line with index and label for each example."""
    spelled = task.codes or task.labels
    rows = [
        (example["id"], spelled[prediction] if spelled else format(prediction, ".3f"))
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    # The rows are sorted by index, because TFDS shuffles a data set when it prepares the data set.
    rows.sort(key=lambda row: (len(row[0]), row[0]))
    return "".join(f"{index}\t{label}\n" for index, label in [("index", "prediction"), *rows])


def _squad_text(task: Task, examples: Examples, predictions: Values) -> str:
    """Return a JSON text for the official script of SQuAD: an object that maps each id to an answer, perhaps ''."""
    answers = {example["id"]: answer for example, answer in zip(examples, predictions, strict=True)}
    return json.dumps(answers, ensure_ascii=False) + "\n"


def _conll_text(task: Task, examples: Examples, predictions: Values, separator: str) -> str:
    """Return a text for the script conlleval: a line with token, label (if known) and prediction for each word."""
    lines = []
    for example, predicted in zip(examples, predictions, strict=True):
        columns = [example["tokens"], *([example["labels"]] if "labels" in example else []), predicted]
        for token, *labels in zip(*columns, strict=True):
            lines.append(separator.join([token, *(task.labels[label] for label in labels)]))
        lines.append("")
    return "\n".join(lines) + "\n"


def _csv_text(task: Task, examples: Examples, predictions: Values) -> str:
    """Return a CSV text: a header, then a line with the id and the number of the predicted class for each example."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "label"])
    writer.writerows([example["id"], int(label)] for example, label in zip(examples, predictions, strict=True))
    return text.getvalue()


def _json_lines_text(task: Task, examples: Examples, predictions: Values) -> str:
    """Return JSON lines, each with the id and the prediction of an example; labels are given by their names."""
    to_json = KINDS[task.kind].to_json
    lines = [
        {"id": example["id"]} | to_json(task.labels, example, prediction)
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    return "".join(json_line(line) + "\n" for line in lines)


def _prediction_lines(task: Task, examples: Examples, predictions: Values, details: Values | None) -> Iterator[str]:
    """Yield a JSON line with the prediction, its probabilities, the gold label and the columns of each example.

    The lines are not returned as a list, because the lines of many examples with many labels would not fit in memory.
    """
    kind = KINDS[task.kind]
    for index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        line = {"id": example["id"]} | kind.to_json(task.labels, example, prediction)
        line |= kind.details(task.labels, details[index]) if details is not None else {}
        if kind.label in example:
            (*_, line["gold"]) = kind.to_json(task.labels, example, kind.gold(example)).values()
        line |= {"input": dict(example["row"])} if "row" in example else {}
        yield json_line(line, str) + "\n"


FORMATS: dict[str, Callable[[Task, Examples, Values], str]] = {
    "glue": _glue_text,
    "squad": _squad_text,
    "conll": lambda task, examples, predictions: _conll_text(task, examples, predictions, " "),
    "conll_tab": lambda task, examples, predictions: _conll_text(task, examples, predictions, "\t"),
    "csv": _csv_text,
    "json_lines": _json_lines_text,
}


def _write_file(path: str | os.PathLike[str], parts: Iterable[str]) -> None:
    with writing(path), new_file(path) as file:
        file.writelines(parts)
