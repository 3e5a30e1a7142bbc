"""The config of a fine-tuning on a user's file, which determines recipe, kind of task, columns, dev set and metric."""

import collections
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax.config import RecipeName, TaskConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.custom import FORMAT, NAME
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.kinds.records import is_missing_label
from bert_jax.tasks.reading.formats import read_file_records
from bert_jax.tasks.reading.label_columns import with_label_set
from bert_jax.tasks.table import KINDS_OF_WORDS

SKEW = 3  # macro F1 is the metric if the most frequent label has at least SKEW times the examples of the rarest
DEV_FRACTION, SMALL_DEV_FRACTION, SMALL = 0.1, 0.2, 1_000  # SMALL_DEV_FRACTION is for fewer than SMALL labels
TASK_KEY = "--config.task."
DELIMITERS = {"\\t": "\t", "tab": "\t"}  # words that stand for a character


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnFile:
    """A user's file with labels, and the choices that the user made; a choice that is None follows from the file."""

    path: str
    text: tuple[str, ...]  # names of the columns of the text and of an optional second text
    label: tuple[str, ...]  # name of the column of the label, or names of the columns of 0 and 1 for each label
    kind: str | None = None
    label_separator: str | None = None
    delimiter: str | None = None
    dev: str | None = None  # path of the dev file
    test: str | None = None  # path of the test file
    dev_fraction: float | None = None
    skip_unlabeled: bool = False
    columns: str | None = None  # columns of further fields, and the format, as in config.task.columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTask:
    """A recipe, the values of `config.task` that describe a user's file, and a line about the content of the file."""

    recipe: str
    task: dict[str, Any]
    content: str
    default_metric: str  # the score that selects the best checkpoint, unless `config.task.metric` names another score


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnRecipe:
    """A recipe with the overrides that describe a user's file, and a line about the content of the file."""

    recipe: RecipeName
    overrides: tuple[str, ...]  # --config.KEY=VALUE
    content: str
    default_metric: str  # as in `OwnTask`


def recipe_for_own_file(file: OwnFile, recipe: RecipeName | None, overrides: Sequence[str]) -> OwnRecipe:
    """Return a recipe and overrides for a fine-tuning on a user's file.

    Args:
        file: the file, and the choices that the user made.
        recipe: the user's recipe; None: the recipe of the kind of task.
        overrides: words `--config.KEY=VALUE` of the user, which may also make the choices.

    Raises:
        UserError: a choice is made twice, or `infer_task_of_own_file` raises it.
    """
    values_of_keys = {override.partition("=")[0]: override.partition("=")[2] for override in overrides}
    if f"{TASK_KEY}train" in values_of_keys:
        raise UserError(f"{TASK_KEY}train is given twice, also by --data")
    choices = ("kind", "label_separator", "delimiter", "dev", "test")
    for name in (*choices, "dev_fraction", "skip_unlabeled"):
        if getattr(file, name) not in (None, False) and f"{TASK_KEY}{name}" in values_of_keys:
            raise UserError(f"--{name} is given twice, also as {TASK_KEY}{name}")
    chosen: dict[str, Any] = {name: getattr(file, name) or values_of_keys.get(f"{TASK_KEY}{name}") for name in choices}
    chosen = {name: None if value == "None" else value for name, value in chosen.items()}
    chosen["delimiter"] = DELIMITERS.get(chosen["delimiter"], chosen["delimiter"])
    described = infer_task_of_own_file(
        dataclasses.replace(file, **chosen, columns=values_of_keys.get(f"{TASK_KEY}columns"))
    )
    values = {f"{TASK_KEY}{key}": value for key, value in described.task.items()}
    replaced = {f"{TASK_KEY}{name}" for name in (*choices, "columns")} & {*values}
    return OwnRecipe(
        recipe=recipe or described.recipe,
        overrides=(
            *(f"{key}={value}" for key, value in values.items() if key in replaced or key not in values_of_keys),
            *(override for override in overrides if override.partition("=")[0] not in replaced),
        ),
        content=described.content,
        default_metric=described.default_metric,
    )


def infer_task_of_own_file(file: OwnFile) -> OwnTask:
    """Return the recipe and the fields of `config.task` for a file.

    Raises:
        UserError: the file cannot be read, a column is missing or named twice, or no row has a label.
    """
    names, label = (*file.text, *file.label), ",".join(file.label)
    if len(set(names)) < len(names):
        raise UserError(f"--text {','.join(file.text)} --label {label}: a column is named twice")
    if odd := [name for name in names if "," in name or "=" in name]:
        raise UserError(f"--text or --label: the column '{odd[0]}' has a comma or '=' in its name; rename it")
    parts = file.columns.split(",") if file.columns else []
    further = {field.strip(): name.strip() for field, _, name in (part.partition("=") for part in parts)}
    table = _read_own_table(file, further.get(FORMAT, ""))
    kind, labels = KINDS[table.kind], table.labels
    _check_kind_fits_table(file, table)

    columns = _columns_of_text_fields(file.text, kind, further) | _columns_of_labels(file.label, kind)
    if twice := [field for field, name in columns.items() if further.get(field, name) != name]:
        raise UserError(f"config.task.columns: '{twice[0]}' is given twice, also by --text and --label")
    parts = [part for part in parts if part.partition("=")[0].strip() not in columns]
    label_names = [str(name) for label in labels for name in (label if isinstance(label, list) else [label])]
    metrics, default_metric = kind.default_metrics(label_names)
    prefers_macro_f1 = kind.label_names and "macro_f1" in metrics and _has_skewed_labels(labels)
    task: dict[str, Any] = {
        "name": NAME,
        "kind": table.kind,
        "train": os.path.abspath(file.path),
        "columns": ",".join([*(f"{field}={name}" for field, name in columns.items()), *parts]),
        "label_separator": file.label_separator,
        "delimiter": file.delimiter,
        "skip_unlabeled": file.skip_unlabeled or None,
        "metric": "macro_f1" if prefers_macro_f1 else None,
        "dev": file.dev and os.path.abspath(file.dev),
        "test": file.test and os.path.abspath(file.test),
        "dev_fraction": file.dev_fraction,
    }
    if not file.dev and file.dev_fraction is None:
        task["dev_fraction"] = DEV_FRACTION if len(labels) >= SMALL else SMALL_DEV_FRACTION
    task = {key: value for key, value in task.items() if value is not None}
    return OwnTask(
        recipe=kind.recipe,
        task=task,
        content=f"{file.path}: {table.num_rows:,} rows{table.notes}; texts in {' and '.join(file.text)}, labels in "
        f"{len(labels):,} rows of {label}",
        default_metric=default_metric,
    )


class _OwnTable(NamedTuple):
    """The content of a user's file: the kind of its task, its rows, and the labels of the rows that have a label."""

    kind: str
    num_rows: int
    labels: list[Any]
    notes: str  # oddities of the file, such as its separator, for a line about its content


def _read_own_table(file: OwnFile, format_name: str) -> _OwnTable:
    """Read a user's file, whose kind of task is the user's choice or fits the content of the file.

    Raises:
        UserError: the file cannot be read, a column is missing, no row has a label, or no kind fits the content.
    """
    path, notes = os.path.abspath(file.path), collections.Counter[str]()
    given_kind = _kind_of_word(file.kind) if file.kind else None
    if len(file.label) > 1:
        given_kind = _kind_with_label_columns(given_kind, file.label, file.label_separator)
    if not given_kind and not format_name and _has_squad_layout(_first_row(path, file.delimiter)):
        given_kind = next(name for name, kind in KINDS.items() if "squad" in kind.suffixes.values())
    suffixes = KINDS[given_kind].suffixes if given_kind else {}
    text_columns = {f"text {index}": name for index, name in enumerate(file.text, 1)}
    label_columns = {"label": file.label[0]}
    if len(file.label) > 1:
        assert given_kind
        label_columns = _columns_of_labels(file.label, KINDS[given_kind])

    def read_rows(optional: Sequence[str]) -> list[Mapping[str, Any]]:
        columns = text_columns | label_columns
        records = read_file_records(path, format_name, suffixes, columns, optional, None, notes, file.delimiter)
        if len(label_columns) > 1:
            records = (with_label_set(record, KINDS[given_kind or ""], columns) for record in records)
        return [record.fields for record in records]

    rows = read_rows((*label_columns,))  # objects without a label may have no key of the label
    labels = [row["label"] for row in rows if not is_missing_label(row.get("label"))]
    if not labels:
        read_rows(())  # raises UserError if no row has the column
        raise UserError(f"{file.path}: no row has a value in the column '{','.join(file.label)}'")
    # A row without a text is refused later, with its line.
    first_text = next((row["text 1"] for row in rows if isinstance(row["text 1"], (str, list))), rows[0]["text 1"])
    kind = given_kind or _infer_task_kind(first_text, labels, file.label_separator)
    return _OwnTable(kind, len(rows), labels, "".join(f", {count} {note}" for note, count in notes.items()))


def _check_kind_fits_table(file: OwnFile, table: _OwnTable) -> None:
    """Raise UserError if a kind of task cannot have the name of a file, the number of its texts, or its labels."""
    kind, labels = KINDS[table.kind], table.labels
    if kind.loss.whole_batch and "," in os.path.abspath(file.path):
        raise UserError(f"{file.path}: {table.kind} takes names with commas for several files; rename the file")
    if len(file.text) > len(kind.text_fields):
        raise UserError(
            f"--text {','.join(file.text)}: {table.kind} reads at most {len(kind.text_fields)} columns "
            f"({', '.join(kind.text_fields)}); join the others in the file"
        )
    has_label_sets = bool(file.label_separator) or any(isinstance(label, list) for label in labels)
    is_each_distinct = len(labels) > 2 and len(set(map(str, labels))) == len(labels)
    if kind.label_names and not file.dev and not has_label_sets and is_each_distinct:
        raise UserError(
            f"--label {','.join(file.label)}: each of the {len(labels):,} rows has another label; name the column of "
            "the labels (for numbers, --kind regression)"
        )


def _columns_of_labels(names: Sequence[str], kind: TaskKind) -> dict[str, str]:
    """Return field -> column for a column of labels, or for a column of 0 and 1 for each label."""
    if len(names) == 1:
        return {kind.label: names[0]}
    return {f"{kind.column_lists[kind.label]}{index}": name for index, name in enumerate(names)}


def _kind_with_label_columns(given_kind: str | None, names: Sequence[str], label_separator: str | None) -> str:
    """Return the kind of a file with a column for each label.

    Raises:
        UserError: the user chose a kind that reads one column of labels, or a separator of labels.
    """
    kinds = [name for name, kind in KINDS.items() if kind.label in kind.column_lists]
    if given_kind and given_kind not in kinds:
        raise UserError(
            f"--label {','.join(names)}: {given_kind} reads one column of labels; several columns of 0 and 1 are "
            f"for {' or '.join(kinds)}"
        )
    if label_separator:
        raise UserError(f"--label_separator {label_separator}: leave it out, as each label has a column")
    return given_kind or kinds[0]


def _columns_of_text_fields(text: Sequence[str], kind: TaskKind, further: Mapping[str, str]) -> dict[str, str]:
    """Return field -> column; columns with the names of fields, such as `question`, belong to them, others in order.

    The names `text` and `text_pair` say nothing about the order of two texts. `further` has the columns of further
    fields. Raise UserError if a field has no column.
    """
    if {*text} <= {*kind.text_fields} and not {*text} <= {"text", "text_pair"}:
        return {name: name for name in text}
    given_elsewhere = {*kind.optional_fields, *kind.column_lists, *further}
    needed = [field for field in kind.text_fields if field not in given_elsewhere]
    if len(text) < len(needed):
        raise UserError(f"--text {','.join(text)}: give {len(needed)} columns, for {' and '.join(needed)}")
    return dict(zip(kind.text_fields, text, strict=False))


def column_names_text(path: str, delimiter: str | None) -> str:
    """Return the names of the columns of a file, for a message; raise UserError as `infer_task_of_own_file` does."""
    row = _first_row(os.path.abspath(path), DELIMITERS.get(delimiter or "", delimiter))
    return "question, context, answers" if _has_squad_layout(row) else ", ".join(row) or "no rows"


def _first_row(path: str, delimiter: str | None) -> Mapping[str, Any]:
    """Return the first row of a file by column; {} if the file has no rows."""
    records = read_file_records(path, "", {}, {}, (), None, collections.Counter[str](), delimiter)
    first = next(iter(records), None)
    return first.row if first else {}


def _has_squad_layout(row: Mapping[str, Any]) -> bool:
    """Return whether the first row of a file is the whole document of a file in the layout of SQuAD."""
    articles = row.get("data")
    return isinstance(articles, list) and any(isinstance(item, dict) and "paragraphs" in item for item in articles[:1])


def _kind_of_word(word: str) -> str:
    """Return the name of the kind that a word names; raise UserError if no kind has this name."""
    plain_name = word.lower().replace("-", "_")
    name = KINDS_OF_WORDS.get(plain_name, plain_name)
    if name not in KINDS:
        by_template = {kind.prompt_kind for kind in KINDS.values()}
        known = [kind for kind in KINDS if kind not in by_template]
        meant = did_you_mean(name, known).lstrip("; ") or f"choose from {', '.join(known)}"
        raise UserError(f"--kind {word}: {meant}")
    return name


def _infer_task_kind(text: Any, labels: Sequence[Any], label_separator: str | None) -> str:
    """Return the kind of task that fits the values of a file; raise UserError if `text` has no text."""
    for name, kind in KINDS.items():
        if kind.fits_file(text, labels, label_separator):
            return name
    raise UserError(f"--text: the column has {text!r:.40}, neither a text nor a list of words; name another column")


def _has_skewed_labels(labels: Sequence[Any]) -> bool:
    """Return whether the most frequent label has at least `SKEW` times as many examples as the rarest label."""
    counts = collections.Counter(str(label).strip() for label in labels).values()
    return max(counts) >= SKEW * min(counts)


def choices_text(task: TaskConfig, recipe: RecipeName, default_metric: str) -> str:
    """Return a line with each setting that was chosen for a user's file, and the option that changes the setting."""
    metric = task.metric or default_metric
    dev = f"the dev set is {task.dev}" if task.dev else f"{task.dev_fraction or 0:.0%} of the rows are the dev set"
    return (
        f"kind {task.kind} (--kind), recipe {recipe} (--config), metric {metric} (--config.task.metric); {dev} "
        "(--dev, --dev_fraction)"
    )
