"""Checks of the values of a record, for all kinds of tasks; a check returns the value or raises UserError."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError, did_you_mean
from bert_jax.strict_json import has_surrogate
from bert_jax.tasks.labels import labels_text
from bert_jax.tasks.task import Record, Task

EMPTY = "texts are empty"
NEGATIVE, SCORES = "negative", "scores"  # fields of texts that answer no query, and of scores of all its texts


class EmptyTextError(UserError):
    """A text in a user's own file is empty."""

    def __init__(self, record: Record, field: str):
        super().__init__(f"{record.where}: {field} is empty; fill it, or leave the example out")
        self.where, self.field = record.where, field


def record_id(record: Record) -> str:
    """Return the id of a record as text; the record must have an id. A whole number, such as 1.0, becomes "1".

    Raises:
        UserError: the id is empty, or is neither a text nor a number.
    """
    value = record.fields["id"]
    if isinstance(value, float):  # as pandas writes integers if an id is missing
        value = int(value) if value.is_integer() else repr(value)
    return scalar_to_text(record, "id", value)


def text_field(record: Record, field: str, task: Task, tally: Counter[str]) -> str:
    """Return the text in a field of a record; raise UserError if the value is not a text."""
    return check_task_text(record, field, record.fields[field], task, tally)


def check_task_text(
    record: Record, field: str, value: Any, task: Task, tally: Counter[str], may_be_empty: bool = False
) -> str:
    """Return the text `value`; raise UserError if the value is not a text.

    An empty text is counted if `may_be_empty` is True, or if the task has published files. Any other empty text raises
    EmptyTextError.
    """
    if not isinstance(value, str):
        raise UserError(f"{record.where}: {field} is {value!r:.40}, not a text; fix it")
    check_characters(record, field, value)
    if not value.strip():
        if not (may_be_empty or task.published):
            raise EmptyTextError(record, field)
        tally[EMPTY] += 1
    return value


def check_characters(record: Record, field: str, value: str) -> None:
    """Raise UserError for an unpaired surrogate, which JSON can express but no tokenizer reads."""
    if has_surrogate(value):
        raise UserError(f"{record.where}: {field} has half of a surrogate pair, which is not a character; fix it")


def text_fields(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    """Return the fields `text` and, if the record has a second text, `text_pair`; one text of a pair may be empty."""
    values = {field: record.fields[field] for field in ("text", "text_pair") if field in record.fields}
    has_text = any(str(value).strip() for value in values.values())
    return {
        field: check_task_text(record, field, value, task, tally, may_be_empty=has_text)
        for field, value in values.items()
    }


def negatives_field(record: Record, positive: str, task: Task, tally: Counter[str]) -> list[str]:
    """Return the texts of the field NEGATIVE, a text or a list of texts; raise UserError if one equals `positive`."""
    value = record.fields[NEGATIVE]
    given = value if isinstance(value, list) else [value]
    texts = [check_task_text(record, NEGATIVE, text, task, tally) for text in given]
    if positive in texts:
        raise UserError(f"{record.where}: {NEGATIVE} equals text_pair; remove it")
    return texts


def words_field(record: Record, field: str) -> list[str]:
    """Return the list of words in a field of a record; raise UserError unless the value is a list of nonempty texts."""
    value = record.fields[field]
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise UserError(f"{record.where}: {field} is not a list of texts, or one of them is empty; fix it")
    check_characters(record, field, "".join(value))
    return value


def label_names_field(record: Record, field: str) -> list[str]:
    """Return the list of label names in a field of a record; each name must be a nonempty text or an integer."""
    value = record.fields[field]
    if not isinstance(value, list):
        raise UserError(f"{record.where}: {field} is {value!r:.40}, not a list of labels; fix it")
    return [normalize_label_name(record, field, name) for name in value]


def label_field(record: Record, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Return {"label": converted label}, or {} if the record has no label."""
    value = record.fields.get("label")
    return {} if value is None else {"label": convert(value)}


def scalar_to_text(record: Record, field: str, value: Any) -> str:
    """Return a text, an integer or a Boolean as text; raise UserError for an empty text or a value of another type."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int) or value == "":
        raise UserError(f"{record.where}: {field} is {value!r:.40}, which is neither a text nor an integer; fix it")
    return str(value)


def normalize_label_name(record: Record, field: str, value: Any) -> str:
    """Return the name of a label as text, without white space around it; a whole number, such as 1.0, becomes "1"."""
    if isinstance(value, list) and field == "label":
        raise UserError(
            f"{record.where}: label is {value!r:.40}, neither text nor an integer; for texts with several labels set "
            "config.task.kind=multilabel_classification (--kind)"
        )
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float):
        raise UserError(
            f"{record.where}: {field} is the number {value!r}; for numbers set config.task.kind=regression (--kind), "
            "for classes write each label as a text"
        )
    return scalar_to_text(record, field, value.strip() if isinstance(value, str) else value)


def is_missing_label(value: Any) -> bool:
    """Return whether the value of a label is missing: null, white space or NaN; an empty list is not missing."""
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())


def has_answers(labels: Sequence[Any]) -> bool:
    """Return whether values of a column of labels are answers in texts: an object, or a list of objects, for a row."""
    return any(
        isinstance(item, Mapping) for label in labels for item in (label if isinstance(label, list) else [label])
    )


def class_index(record: Record, task: Task, value: Any) -> int:
    """Return the index of a label, which is given by its name, by its code or, if the task allows it, by its index."""
    spelled = normalize_label_name(record, "label", value)
    if (index := task.index_of_label.get(spelled)) is not None:
        return index
    if task.allows_indices and spelled.isdecimal() and int(spelled) < len(task.labels):
        return int(spelled)
    known = task.codes or task.labels
    raise UserError(
        f"{record.where}: label '{spelled}' is not among {labels_text(known)}{did_you_mean(spelled, known)}; "
        "fix it, or config.task.labels"
    )
