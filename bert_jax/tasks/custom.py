"""Custom tasks, whose columns and labels are defined by the configuration and the training file."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.labels import sort_labels_naturally
from bert_jax.tasks.reading.data_sets import PREFIX, DataSet
from bert_jax.tasks.reading.examples import SPLITS, read_records
from bert_jax.tasks.reading.formats import FORMATS, TOKEN_PER_LINE, format_of_suffix
from bert_jax.tasks.reading.label_columns import label_column_fields
from bert_jax.tasks.task import Example, SetSource, Task

NAME = "custom"
FORMAT = "format"  # key in config.task.columns whose value is a format instead of a column
MAX_LIST_COLUMNS = 100


def custom_task(config: TaskConfig, trained_labels: Sequence[str] = ()) -> Task:
    """Return the custom task that `config` describes by its kind, its columns ('field=column,...') and its labels.

    The labels of a trained model, `trained_labels`, replace the labels of the configuration and of the files.

    Raises:
        UserError: the kind is missing, a field is unknown, a label is repeated, there are fewer than two labels, or the
            training file has an error.
    """
    if config.kind not in KINDS:
        raise UserError(f"task 'custom' needs config.task.kind, one of {', '.join(KINDS)}")
    kind = KINDS[config.kind]
    columns = resolve_custom_columns(config, kind)
    source = SetSource(format=columns.pop(FORMAT, ""), columns=columns, given=[*parse_columns_setting(config, kind)])
    task = Task(
        name=NAME,
        kind=config.kind,
        sets={split: dataclasses.replace(source, tfds=getattr(config, split) or "") for split in SPLITS},
        metrics=(),
        best="",
        impossible=kind.impossible,
        label_separator=config.label_separator or "",
        published=False,
    )
    labels: tuple[str, ...] = ()
    if kind.label_names:
        labels = tuple(trained_labels) or _resolve_custom_labels(task, config, kind)
    metrics, best = kind.default_metrics(labels)
    return dataclasses.replace(task, labels=labels, metrics=metrics, best=best)


def resolve_custom_columns(config: TaskConfig, kind: TaskKind) -> dict[str, str]:
    """Return a dict from field to column of a custom task; a configured format is under the key `FORMAT`.

    If the configuration names no column for a field, the column has the name of the field.
    """
    given = parse_columns_setting(config, kind)
    columns = {field: field for field in kind.fields}
    if kind.numbered_columns and _has_token_per_line(config, kind, given.get(FORMAT)):
        columns = dict(kind.numbered_columns)
    elif not given.keys() - {FORMAT}:
        columns |= {field: field for field in kind.optional_fields}
    for field, prefix in kind.column_lists.items():
        if f"{prefix}0" in given:
            del columns[field]
    return columns | given


def with_columns_of_examples(config: TaskConfig, kind: TaskKind, examples: Sequence[Example]) -> TaskConfig:
    """Return the settings of a trained task; their `columns` tell whether the training read a second text.

    If a custom task names no columns, the training reads a second text of each row that has a second text. `predict`
    has to read the same texts. If only some examples have a second text, the settings do not change.
    """
    named = parse_columns_setting(config, kind).keys() - {FORMAT}
    has_pairs = {"text_pair" in example for example in examples}
    if config.name != NAME or named or "text_pair" not in kind.optional_fields or len(has_pairs) > 1:
        return config
    columns = [f"{field}={field}" for field in kind.text_fields if field in examples[0]]
    return dataclasses.replace(config, columns=",".join([*filter(None, [config.columns]), *columns]))


def _has_token_per_line(config: TaskConfig, kind: TaskKind, format: str | None) -> bool:
    """Return whether the files of a custom task have one token per line."""
    file = config.train or config.dev or config.test or ""
    in_files = not (config.data or "").startswith(PREFIX)
    return in_files and (format or format_of_suffix(file, kind.suffixes)) in TOKEN_PER_LINE


def parse_columns_setting(config: TaskConfig, kind: TaskKind) -> dict[str, str]:
    """Return the parsed `config.columns` as a dict from field to column; a format is under the key `FORMAT`.

    Raises:
        UserError: a field is unknown or repeated, or the format is unknown.
    """
    columns: dict[str, str] = {}
    listed = [f"{prefix}{n}" for prefix in kind.column_lists.values() for n in range(MAX_LIST_COLUMNS)]
    known = (*kind.fields, *kind.optional_fields, *listed[:4], FORMAT)
    for part in config.columns.split(",") if config.columns else ():
        field, _, name = (piece.strip() for piece in part.partition("="))
        if not name or field in columns:
            raise UserError(f"config.task.columns: '{part.strip()}' is not 'field=column', or repeats a field")
        if field not in known and field not in listed:
            raise UserError(
                f"config.task.columns: {config.kind} has no field '{field}'{did_you_mean(field, known)}; "
                f"there are {', '.join(known)}"
            )
        columns[field] = name
    if columns.get(FORMAT, "") not in ("", *FORMATS):
        raise UserError(f"config.task.columns: no format '{columns[FORMAT]}'; there are {', '.join(FORMATS)}")
    return columns


def _resolve_custom_labels(task: Task, config: TaskConfig, kind: TaskKind) -> tuple[str, ...]:
    """Return the labels of a task from config.task.labels, the columns of labels, its TFDS data set, or its files.

    The labels in the rows of a training file are sorted by name.
    """
    assert kind.label_names
    given = tuple(label.strip() for label in config.labels.split(",")) if config.labels else ()
    columns = task.sets["train"].columns
    if not given:
        given = tuple(columns[field] for field in label_column_fields(kind, columns))
    if not given and (config.data or "").startswith(PREFIX):
        given = DataSet(config.data or "").label_names(columns[kind.label])
    if not given and not config.train:
        raise UserError("task 'custom' needs config.task.labels, or config.task.train to read them from")
    if not given:
        names: set[str] = set()
        for record in read_records(task, config, "train", Counter()):
            if kind.label in record.fields:
                names.update(kind.label_names(record, task))
        given = sort_labels_naturally(names)
    if len(set(given)) < len(given) or "" in given or len(given) < 2:
        raise UserError(
            f"task 'custom' has the labels {', '.join(map(repr, given)) or 'none'}, but needs two or more, each once; "
            "fix config.task.labels, or the training file"
        )
    return given
