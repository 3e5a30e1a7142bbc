"""Columns that a file does not have."""

from collections.abc import Iterable

from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.task import Columns


def absent_column(where: str, kind: str, field: str, columns: Columns, there: Iterable[str]) -> UserError:
    """Return the error for a field whose column is not among those `there`; `kind` is the format's word for a column.

    It suggests a similar column that no other field reads.
    """
    there, name = list(there), columns[field]
    free = [one for one in there if one not in columns.values()]
    known = ", ".join(map(repr, there))
    return UserError(f"{where}: no {kind} '{name}' for {field}{did_you_mean(name, free)} (there are {known})")
