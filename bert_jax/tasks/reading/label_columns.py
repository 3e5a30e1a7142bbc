"""Sets of labels in files that have a column of 0 and 1 for each label, as in many data sets for several labels."""

from collections.abc import Iterable
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.kinds.records import is_missing_label
from bert_jax.tasks.reading.files import absent_column_error
from bert_jax.tasks.task import Columns, Record

# Text of a value in lower case -> whether the text has the label.
VALUES = {"1": True, "1.0": True, "true": True, "yes": True, "0": False, "0.0": False, "false": False, "no": False}


def label_column_fields(kind: TaskKind, fields: Iterable[str]) -> list[str]:
    """Return the fields of columns with a label each, such as `label0` and `label1`, in the order of their numbers."""
    prefix = kind.column_lists.get(kind.label)
    numbers = [field.removeprefix(prefix) for field in fields if field.startswith(prefix)] if prefix else []
    return [f"{prefix}{number}" for number in sorted(map(int, filter(str.isdecimal, numbers)))]


def with_label_set(record: Record, kind: TaskKind, columns: Columns) -> Record:
    """Return the record with a list of labels, if `columns` has a column for each label; otherwise the same record.

    The labels are the names of the columns with the value 1. A record whose columns are all absent or empty has no
    label.

    Raises:
        UserError: a column is absent, a value is neither 0 nor 1, or only some of the columns have a value.
    """
    fields = label_column_fields(kind, columns)
    values = {field: record.fields.get(field) for field in fields}
    missing = [field for field, value in values.items() if is_missing_label(value)]
    if len(missing) == len(fields):
        return record
    if absent := [field for field in fields if field not in record.fields]:
        raise absent_column_error(record.where, "column", absent[0], columns, record.row)
    if missing:
        raise UserError(f"{record.where}: {columns[missing[0]]} has no value, but other labels have; write 0 or 1")
    labels = [columns[field] for field, value in values.items() if _has_label(record, columns[field], value)]
    rest = {field: value for field, value in record.fields.items() if field not in values}
    return record._replace(fields=rest | {kind.label: labels})


def _has_label(record: Record, name: str, value: Any) -> bool:
    """Return whether the value of a label's column says that the text has the label."""
    if (has_label := VALUES.get(str(value).strip().lower())) is None:
        raise UserError(f"{record.where}: {name} is {value!r:.40}; a column for each label holds 0 or 1")
    return has_label
