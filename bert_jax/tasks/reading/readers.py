"""The examples of a task, from its published files, the user's own, or TensorFlow Datasets."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.examples import Example, make, name_of
from bert_jax.tasks.reading import formats
from bert_jax.tasks.reading.data_sets import PREFIX, DataSet
from bert_jax.tasks.reading.files import find
from bert_jax.tasks.row import LABEL
from bert_jax.tasks.task import LABEL_FIELDS, OPTIONAL_FIELDS, Record, Source, Task

SPLITS = ("train", "dev", "test")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def read(task: Task, config: TaskConfig, split: str, report: Callable[[str], None] = _say) -> list[Example]:
    """All examples of a set, in the order of the file; each has an 'id', its number from 0 where the file has none.

    Args:
        task: a row of the table, or what `table.resolve` made of the user's.
        config: where the files lie, and which replace the published ones.
        split: 'train', 'dev', 'test', or another of `parts`.
        report: takes a line on each oddity of the data that was counted rather than refused.

    Returns:
        As DESIGN's contract of tasks has them, by kind: text, text_pair, label | tokens, labels | question, context,
        answers | text, choices, label. A set for training or evaluation is labelled throughout.

    Raises:
        UserError: where, what and how to mend it; a set that is not there or has no example.
    """
    tally: Counter[str] = Counter()
    examples: list[Example] = []
    places: dict[str, str] = {}
    where = "no file"
    for record in records(task, config, split, tally):
        where = record.where
        example = make(record, task, tally)
        if LABEL[task.kind] not in example and not split.startswith("test"):
            raise UserError(f"{where}: has no {LABEL[task.kind]}; give it one, or leave the example out")
        name = name_of(record) if "id" in record.fields else str(len(examples))
        if name in places:
            raise UserError(f"{where}: id '{name}' is also that of {places[name]}; give each example its own")
        places[name] = where
        examples.append({"id": name, **example})
    if not examples:
        raise UserError(f"task '{task.name}': the {split} set has no example; name another file in config.task.{split}")
    if task.kind == "choice" and len({len(example["choices"]) for example in examples}) > 1:
        raise UserError(f"task '{task.name}': not all examples of the {split} set have the same number of choices")
    for what, count in tally.items():
        if count:
            report(f"{task.name} {split}: {count:,} {what}")
    return examples


def parts(task: Task, config: TaskConfig, split: str) -> tuple[str, ...]:
    """The sets for a use ('train', 'dev', 'test') that are there; () if none is, two for the dev sets of MNLI."""
    if getattr(config, split):
        return (split,)
    names = [name for name in task.splits if name.partition("_")[0] == split]
    if config.data.startswith(PREFIX):
        return tuple(name for name in names if task.splits[name].tfds)
    return tuple(name for name in names if _published(task, config, task.splits[name]))


def records(task: Task, config: TaskConfig, split: str, tally: Counter[str]) -> Iterator[Record]:
    """What the files, or TFDS, say of each example of a set; test sets may be without labels.

    Raises:
        UserError: as `read`.
    """
    optional = OPTIONAL_FIELDS[task.kind] + (LABEL_FIELDS if split.startswith("test") else ("is_impossible",))
    source = task.splits.get(split)
    if source is None:
        raise UserError(f"task '{task.name}' has no {split} set (there is {', '.join(task.splits)})")
    override = getattr(config, split, "")
    if config.data.startswith(PREFIX):
        found = _data_set(task, config, source, override).records(
            override or source.tfds or split, task.tfds_columns or source.columns, optional
        )
        yield from (_unlabelled_if_empty(record, split) for record in found)
        return
    paths = [_own(config, split, override)] if override else _published(task, config, source)
    if not paths:
        names = " or ".join(" + ".join(names) for names in source.files) or "a file of your own"
        raise UserError(f"{config.data or '.'}: no {split} set of task '{task.name}' (looked for {names}, also .gz)")
    arguments = (source.columns, optional, tally if source.broken_rows else None)
    for path in paths:
        for record in formats.records(path, source.format, task.kind, *arguments):
            yield _unlabelled_if_empty(record, split)


def _unlabelled_if_empty(record: Record, split: str) -> Record:
    """In a test set an empty label is none; elsewhere the absence of one is refused."""
    fields = record.fields
    empty = [field for field in LABEL_FIELDS if field in fields and fields[field] in (None, "")]
    if not empty:
        return record
    if not split.startswith("test"):
        raise UserError(f"{record.where}: has no {empty[0]}; give it one, or leave the example out")
    return record._replace(fields={field: value for field, value in fields.items() if field not in empty})


def _published(task: Task, config: TaskConfig, source: Source) -> list[str]:
    for names in source.files:
        paths = find(config.data, task.folder, names)
        if paths:
            return paths
    return []


def _own(config: TaskConfig, split: str, name: str) -> str:
    path = os.path.join(config.data, name)
    for candidate in (path, f"{path}.gz"):
        if os.path.isfile(candidate):
            return candidate
    raise UserError(f"{path}: no such file; check config.task.{split} and config.task.data")


def _data_set(task: Task, config: TaskConfig, source: Source, override: str) -> DataSet:
    if not (task.tfds or not task.published) or not (source.tfds or override):
        raise UserError(f"task '{task.name}' is not read from TFDS; name a directory in config.task.data")
    name, _, data_dir = config.data.removeprefix(PREFIX).partition("@")
    return DataSet(f"{PREFIX}{name or task.tfds}" + (f"@{data_dir}" if data_dir else ""))
