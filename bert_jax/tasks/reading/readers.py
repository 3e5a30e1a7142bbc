"""The examples of a task, from published files, a user's own files, or TensorFlow Datasets."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Kind
from bert_jax.tasks.kinds.records import record_id
from bert_jax.tasks.reading.data_sets import PREFIX, DataSet
from bert_jax.tasks.reading.files import find
from bert_jax.tasks.reading.formats import read_records
from bert_jax.tasks.task import Example, Record, Source, Task

SPLITS = ("train", "dev", "test")
# The place of a row that spans several lines of a file named .tsv: meant so, or texts that begin and end with quotes.
MANY_LINES = re.compile(r"\.tsv(\.gz)?:\d+-\d+$")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def read_examples(task: Task, config: TaskConfig, split: str, report: Callable[[str], None] = _say) -> list[Example]:
    """Return all examples of a set, in the order of the file; each has an 'id', by default its number from 0.

    Args:
        task: a row of the table, or a custom one (`table.resolve`).
        config: directory of the files, and files that replace the published ones.
        split: 'train', 'dev', 'test', or another name that `parts` returns.
        report: takes a line on each oddity of the data that is counted and not refused.

    Returns:
        Examples with the fields of their kind, all labeled unless the kind says that those of `split` need not be.

    Raises:
        UserError: a mistake in a file, by its place; a set that is missing or has no example.
    """
    kind = KINDS[task.kind]
    tally: Counter[str] = Counter()
    examples: list[Example] = []
    places: dict[str, str] = {}
    for record in records(task, config, split, tally):
        example = kind.make(record, task, tally)
        if kind.label not in example and _split(split) not in kind.unlabeled:
            raise UserError(f"{record.where}: has no {kind.label}; give it one, or leave the example out")
        name = record_id(record) if "id" in record.fields else str(len(examples))
        if name in places:
            raise UserError(f"{record.where}: id '{name}' is also that of {places[name]}; give each example its own id")
        places[name] = record.where
        tally[
            "rows span several lines, inside quotes; where quotes are text, add format=tsv_plain to config.task.columns"
        ] += bool(MANY_LINES.search(record.where))
        try:
            example = kind.usable(record, example, split == "train", tally)
        except UserError:
            if not config.skip_unusable_answers:
                raise
            tally["questions are left out: none of their answers is at its place"] += 1
            continue
        examples.append({"id": name, **example})
    if not examples:
        raise UserError(f"task '{task.name}': the {split} set has no example; name another file in config.task.{split}")
    for field in kind.uniform_fields:
        if len({len(example[field]) for example in examples}) > 1:
            raise UserError(f"task '{task.name}': not all examples of the {split} set have the same number of {field}")
    for what, count in tally.items():
        if count:
            report(f"{task.name} {split}: {count:,} {what}")
    return examples


def parts(task: Task, config: TaskConfig, split: str) -> tuple[str, ...]:
    """Return the sets for a use ('train', 'dev', 'test') that exist: () for none, two for the dev sets of MNLI."""
    if getattr(config, split):
        return (split,)
    names = [name for name in task.splits if _split(name) == split]
    if _in_tfds(config):
        return tuple(name for name in names if task.splits[name].tfds)
    return tuple(name for name in names if _published(task, config, task.splits[name]))


def records(task: Task, config: TaskConfig, split: str, tally: Counter[str]) -> Iterator[Record]:
    """Yield the records of a set, from files or TFDS; those of `Kind.unlabeled` splits may have no labels.

    A column that the user names must be there, but for the labels of a test set.

    Raises:
        UserError: as `read_examples`.
    """
    kind = KINDS[task.kind]
    source = task.splits.get(split)
    if source is None:
        raise UserError(f"task '{task.name}' has no {split} set (there is {', '.join(task.splits)})")
    labels = kind.label_fields if _split(split) in kind.unlabeled else ()
    named = set(source.given) - set(labels if _split(split) == "test" else ())
    optional = [field for field in (*kind.optional_fields, *labels) if field not in named]
    override = getattr(config, split, None)
    if _in_tfds(config):
        found = _data_set(task, config, source, override).records(
            override or source.tfds or split, task.tfds_columns or source.columns, optional
        )
        yield from (_unlabeled_if_empty(record, kind, split) for record in found)
        return
    paths = [_own(config, split, override)] if override else _published(task, config, source)
    if not paths:
        names = " or ".join(" + ".join(names) for names in source.files) or "a file of your own"
        raise UserError(f"{config.data or '.'}: no {split} set of task '{task.name}' (looked for {names}, also .gz)")
    arguments = (source.columns, optional, tally if source.broken_rows else None)
    for path in paths:
        for record in read_records(path, source.format, kind.suffixes, *arguments):
            yield _unlabeled_if_empty(record, kind, split)


def _split(name: str) -> str:
    """The use of a set: 'dev' of 'dev_mismatched'."""
    return name.partition("_")[0]


def _in_tfds(config: TaskConfig) -> bool:
    return (config.data or "").startswith(PREFIX)


def _unlabeled_if_empty(record: Record, kind: Kind, split: str) -> Record:
    """Drop an empty label from a record of a split that needs none; refuse it elsewhere."""
    fields = record.fields
    empty = [field for field in kind.label_fields if field in fields and fields[field] in (None, "")]
    if not empty:
        return record
    if _split(split) not in kind.unlabeled:
        raise UserError(f"{record.where}: has no {empty[0]}; give it one, or leave the example out")
    return record._replace(fields={field: value for field, value in fields.items() if field not in empty})


def _published(task: Task, config: TaskConfig, source: Source) -> list[str]:
    for names in source.files:
        paths = find(config.data or "", task.folder, names)
        if paths:
            return paths
    return []


def _own(config: TaskConfig, split: str, name: str) -> str:
    path = os.path.join(config.data or "", name)
    for candidate in (path, f"{path}.gz"):
        if os.path.isfile(candidate):
            return candidate
    raise UserError(f"{path}: no such file; check config.task.{split} and config.task.data")


def _data_set(task: Task, config: TaskConfig, source: Source, override: str | None) -> DataSet:
    if not (task.tfds or not task.published) or not (source.tfds or override):
        raise UserError(f"task '{task.name}' is not read from TFDS; name a directory in config.task.data")
    name, _, data_dir = (config.data or "").removeprefix(PREFIX).partition("@")
    return DataSet(f"{PREFIX}{name or task.tfds}" + (f"@{data_dir}" if data_dir else ""))
