"""The examples of a task from published files, a user's own files, or TensorFlow Datasets."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError, escaped
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.kinds.records import EmptyTextError, is_missing_label, record_id
from bert_jax.tasks.reading.data_sets import PREFIX, DataSet
from bert_jax.tasks.reading.dev_split import choose_dev_rows
from bert_jax.tasks.reading.files import find_task_files
from bert_jax.tasks.reading.formats import DELIMITED, format_of_suffix, read_file_records
from bert_jax.tasks.reading.label_columns import label_column_fields, with_label_set
from bert_jax.tasks.task import Example, Record, SetSource, Task

SPLITS = ("train", "dev", "test")
_EMPTY_SET = "; for a text without any label, write [] in JSON lines"  # advice for kinds with sets of labels
MAX_PLACES = 20  # maximum number of locations in a message
# Matches the location of a record: a line, a range of lines, an item of a list, a row or an example.
PLACE = re.compile(r"(?P<before>.*[:\[ ])(?P<first>\d+)(?:-(?P<last>\d+))?(?P<after>\]?)", re.ASCII | re.DOTALL)
# Matches the location of a row that spans several lines of a .tsv file. Such a row may be intended, or the quotes in it
# may be a part of the texts.
MANY_LINES = re.compile(r"\.tsv(\.gz)?:\d+-\d+$")


def _print_to_stderr(line: str) -> None:
    print(escaped(line), file=sys.stderr)


def read_task_examples(
    task: Task, config: TaskConfig, split: str, report: Callable[[str], None] = _print_to_stderr
) -> list[Example]:
    """Return all examples of a set, in the order of the file; an example without an 'id' gets its index as id.

    Args:
        task: a task of `TASKS`, or a custom task (`table.resolve_task`).
        config: settings with the directory of the files, and with files that replace published files.
        split: name of the set: 'train', 'dev', 'test', or another name that `existing_sets` returns.
        report: function that is called with a line of text about each data problem that is counted but raises no error.

    Returns:
        Examples with the fields of their kind, all labeled unless the kind allows unlabeled examples in `split`.

    Raises:
        UserError: a file has an error, or a set is missing or empty; the message names the location.
    """
    kind = KINDS[task.kind]
    tally: Counter[str] = Counter()
    if config.dev_fraction and split in ("train", "dev"):
        # The counts of the file are reported once, with the training set.
        of_file = tally if split == "train" else Counter[str]()
        records = _records_of_split(_read_labeled_records(task, config, "train", of_file), task, config, split)
        records = _with_required_labels(records, task, config, split, tally)
    else:
        records = _read_labeled_records(task, config, split, tally)
    examples: list[Example] = []
    where_of_id: dict[str, str] = {}
    for index, record, example in records:
        example_id = record_id(record) if "id" in record.fields else str(index)
        if example_id in where_of_id:
            raise UserError(
                f"{record.where}: id '{example_id}' is also the id of {where_of_id[example_id]}; "
                "give each example its own id"
            )
        where_of_id[example_id] = record.where
        tally[
            "rows span several lines, inside quotes; where quotes are text, add format=tsv_plain to config.task.columns"
        ] += bool(MANY_LINES.search(record.where))
        try:
            example = kind.with_usable_labels(record, example, split == "train", tally)
        except UserError:
            if not config.skip_unusable_answers:
                raise
            tally["questions are left out: none of their answers is at its place"] += 1
            continue
        own_columns = {"row": record.row} if record.row and not task.published else {}
        examples.append({"id": example_id, **example} | own_columns)
    if not examples:
        file = getattr(config, split, None)
        where = f"{file}: " if file and not _is_held_out(config, split) else ""
        raise UserError(f"{where}the {split} set of task '{task.name}' has no example; give another file")
    for field in kind.uniform_fields:
        if len({len(example[field]) for example in examples}) > 1:
            raise UserError(f"task '{task.name}': not all examples of the {split} set have the same number of {field}")
    for what, count in tally.items():
        if count:
            report(f"{task.name} {split}: {count:,} {what}")
    return examples


class _LabeledRecord(NamedTuple):
    """The index of a row in its set, the record of the row, and the example that is made from the record."""

    row: int
    record: Record
    example: dict[str, Any]


def _read_labeled_records(task: Task, config: TaskConfig, split: str, tally: Counter[str]) -> list[_LabeledRecord]:
    """Return the index, the record and the example of each row of a set, as `_with_required_labels` returns them.

    Raises:
        UserError: a row has an error; the message lists all rows with an empty text.
    """
    kind = KINDS[task.kind]
    records: list[_LabeledRecord] = []
    empty: list[EmptyTextError] = []
    for row, record in enumerate(read_records(task, config, split, tally)):
        try:
            records.append(_LabeledRecord(row, record, kind.make_example(record, task, tally)))
        except EmptyTextError as error:
            empty.append(error)
    if len(empty) > 1:
        raise UserError(
            f"{len(empty):,} rows have an empty {' or '.join(sorted({error.field for error in empty}))}: "
            f"{summarize_locations([error.where for error in empty])}; fill it, or leave the rows out"
        )
    if empty:
        raise empty[0]
    return _with_required_labels(records, task, config, split, tally)


def _with_required_labels(
    records: list[_LabeledRecord], task: Task, config: TaskConfig, split: str, tally: Counter[str]
) -> list[_LabeledRecord]:
    """Return the records of a set; all have a label, or none has, if the kind allows unlabeled examples in `split`.

    Rows without a required label are left out if `config.skip_unlabeled` is True; otherwise they raise UserError.
    """
    kind = KINDS[task.kind]
    unlabeled = [record.where for _, record, example in records if kind.label not in example]
    if _split_of_set(split) in kind.unlabeled and (len(unlabeled) == len(records) or split == "train"):
        return records
    if unlabeled and not config.skip_unlabeled:
        name, places = task.sets[split].columns.get(kind.label, kind.label), summarize_locations(unlabeled)
        raise UserError(
            f"{places}: has no {name}; add it, or leave the example out"
            if len(unlabeled) == 1
            else f"{len(unlabeled):,} rows have no {name}: {places}; add it, or leave all such rows out with "
            f"--skip_unlabeled (config.task.skip_unlabeled=True){_EMPTY_SET if kind.problem else ''}"
        )
    tally[f"rows without a {kind.label} are left out"] += len(unlabeled)
    return [record for record in records if kind.label in record.example]


def _is_held_out(config: TaskConfig, split: str) -> bool:
    """Return whether `split` is a dev set that is held out of the training file."""
    return split == "dev" and config.dev_fraction is not None


def _records_of_split(
    records: list[_LabeledRecord], task: Task, config: TaskConfig, split: str
) -> list[_LabeledRecord]:
    """Return the records of the training file that belong to `split`, which is 'train' or the held-out 'dev'."""
    assert config.dev_fraction is not None
    kind = KINDS[task.kind]
    if kind.shared_field:
        values = [example[kind.shared_field] for _, _, example in records]
        distinct = list(dict.fromkeys(values))
        chosen = choose_dev_rows([[]] * len(distinct), config.dev_fraction, config.dev_seed)
        held_out = {value for value, is_chosen in zip(distinct, chosen, strict=True) if is_chosen}
        in_dev = np.array([value in held_out for value in values])
    else:
        labels = [kind.label_indices(example) if task.labels else [] for _, _, example in records]
        in_dev = choose_dev_rows(labels, config.dev_fraction, config.dev_seed)
    if not in_dev.any():
        held_out_together = (
            f" with equal {kind.shared_field}, which are held out together," if kind.shared_field else ""
        )
        raise UserError(
            f"config.task.dev_fraction={config.dev_fraction:g} of {len(records):,} examples{held_out_together} is no "
            "example; raise it, or name a file in config.task.dev"
        )
    return [record for record, is_dev in zip(records, in_dev, strict=True) if is_dev == (split == "dev")]


def existing_sets(task: Task, config: TaskConfig, split: str) -> tuple[str, ...]:
    """Return the names of the existing sets of a split ('train', 'dev' or 'test'); MNLI, for example, has two dev sets.

    Raises:
        UserError: the configuration names a file for the dev set, and also holds out a dev set.
    """
    if _is_held_out(config, split):
        if config.dev:
            raise UserError(
                "config.task.dev names a file, and config.task.dev_fraction holds out a dev set; give one of them"
            )
        return (split,)
    if getattr(config, split):
        return (split,)
    names = [name for name in task.sets if _split_of_set(name) == split]
    if _reads_tfds(config):
        return tuple(name for name in names if task.sets[name].tfds)
    return tuple(name for name in names if _find_published_files(task, config, task.sets[name]))


def read_records(task: Task, config: TaskConfig, split: str, tally: Counter[str]) -> Iterator[Record]:
    """Yield the records of a set from files or TFDS; records of splits in `TaskKind.unlabeled` may have no labels.

    A column that the user names must exist, except for the labels of a test set. In a training or dev set in a file of
    objects, some records may lack the key of the label, but not all records.

    Raises:
        UserError: a file has an error, or the set is missing.
    """
    kind = KINDS[task.kind]
    if _reads_tfds(config) or _split_of_set(split) in kind.unlabeled:
        yield from _read_records(task, config, split, tally)
        return
    has_label = False
    for record in _read_records(task, config, split, tally, is_label_optional=True):
        has_label = has_label or any(field in record.fields for field in kind.label_fields)
        yield record
    if not has_label:
        for _ in _read_records(task, config, split, Counter()):  # raises UserError if no record has the key
            pass


def _read_records(
    task: Task, config: TaskConfig, split: str, tally: Counter[str], is_label_optional: bool = False
) -> Iterator[Record]:
    """Yield the records of a set; if `is_label_optional` is True, records may have no labels."""
    kind = KINDS[task.kind]
    source = task.sets.get(split)
    if source is None:
        raise UserError(f"task '{task.name}' has no {split} set (there is {', '.join(task.sets)})")
    labels: Sequence[str] = ()
    if is_label_optional or _split_of_set(split) in kind.unlabeled:
        labels = (*kind.label_fields, *label_column_fields(kind, source.columns))
    named = set(source.given) - set(labels if is_label_optional or _split_of_set(split) == "test" else ())
    optional = [field for field in (*kind.optional_fields, *labels) if field not in named]
    override = getattr(config, split, None)
    if _reads_tfds(config):
        data_set = _open_tfds_data_set(task, config, source, override)
        columns = task.tfds_columns or source.columns
        for record in data_set.records(override or source.tfds or split, columns, optional):
            yield _without_empty_label(with_label_set(record, kind, columns), kind)
        return
    paths = [_find_user_file(config, split, override)] if override else _find_published_files(task, config, source)
    if not paths:
        names = " or ".join(" + ".join(names) for names in source.files) or "a file of your own"
        raise UserError(f"{config.data or '.'}: no {split} set of task '{task.name}' (looked for {names}, also .gz)")
    skipped = tally if source.broken_rows else None
    for path in paths:
        is_delimited = (source.format or format_of_suffix(path, kind.suffixes)) in DELIMITED
        # A training file in CSV may have a dev set in JSON lines, or with another delimiter.
        delimiter = config.delimiter if is_delimited or split == "train" else None
        for record in read_file_records(
            path,
            source.format,
            kind.suffixes,
            source.columns,
            optional,
            skipped,
            tally,
            delimiter,
            may_have_other_delimiter=split != "train",
        ):
            yield _without_empty_label(with_label_set(record, kind, source.columns), kind)


def _split_of_set(name: str) -> str:
    """Return the split of a set, such as 'dev' of 'dev_mismatched'."""
    return name.partition("_")[0]


def _reads_tfds(config: TaskConfig) -> bool:
    return (config.data or "").startswith(PREFIX)


def _without_empty_label(record: Record, kind: TaskKind) -> Record:
    """Return the record without the label fields that have no value."""
    missing = [
        field for field in kind.label_fields if field in record.fields and is_missing_label(record.fields[field])
    ]
    if not missing:
        return record
    return record._replace(fields={field: value for field, value in record.fields.items() if field not in missing})


def summarize_locations(places: Sequence[str]) -> str:
    """Return a short text that joins the locations of rows, such as 'a.csv:3-5' for 'a.csv:3' and 'a.csv:4-5'."""
    spans_of: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for where in places:
        match = PLACE.fullmatch(where)
        if match is None:
            spans_of[where, ""] = []
            continue
        spans = spans_of.setdefault((match["before"], match["after"]), [])
        first, last = int(match["first"]), int(match["last"] or match["first"])
        begin = spans.pop()[0] if spans and spans[-1][1] + 1 == first else first
        spans.append((begin, last))
    return _join_first_texts(
        [
            before
            + _join_first_texts([f"{first}-{last}" if last > first else f"{first}" for first, last in spans])
            + after
            for (before, after), spans in spans_of.items()
        ]
    )


def _join_first_texts(texts: Sequence[str]) -> str:
    """Return the first `MAX_PLACES` texts, and the number of all other texts."""
    rest = [f"and {len(texts) - MAX_PLACES:,} more"] if len(texts) > MAX_PLACES else []
    return ", ".join([*texts[:MAX_PLACES], *rest])


def _find_published_files(task: Task, config: TaskConfig, source: SetSource) -> list[str]:
    """Return the paths of the published files of a set, in the first alternative that exists; [] if none exists."""
    for names in source.files:
        paths = find_task_files(config.data or "", task.folder, names)
        if paths:
            return paths
    return []


def _find_user_file(config: TaskConfig, split: str, name: str) -> str:
    """Return the path of the file configured for a split, plain or .gz; raise UserError if the file is missing."""
    path = os.path.join(config.data or "", name)
    for candidate in (path, f"{path}.gz"):
        if os.path.isfile(candidate):
            return candidate
    raise UserError(f"{path}: no such file; check config.task.{split} and config.task.data")


def _open_tfds_data_set(task: Task, config: TaskConfig, source: SetSource, override: str | None) -> DataSet:
    """Return the data set of a task in TFDS; raise UserError if the task has no data set in TFDS."""
    if not (task.tfds or not task.published) or not (source.tfds or override):
        raise UserError(f"task '{task.name}' is not read from TFDS; name a directory in config.task.data")
    name, at, data_dir = (config.data or "").removeprefix(PREFIX).partition("@")
    return DataSet(f"{PREFIX}{name or task.tfds}{at}{data_dir}")
