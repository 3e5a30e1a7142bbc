"""Files with one token per line as records, one per sentence."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.reading.files import read_text
from bert_jax.tasks.task import Columns, Record

DOCUMENT_MARK = "-DOCSTART-"


def read_conll(
    path: str, columns: Columns, optional: Sequence[str], tally: Any = None, *, separator: str = "", comment: str = ""
) -> Iterator[Record]:
    """Yield the sentences of a file: a line for each token with its columns, an empty line after each sentence.

    Lines with a document mark (-DOCSTART-) are skipped.

    Args:
        path: plain or .gz.
        columns: 'tokens' and 'labels' -> number of the column, from 0, or from -1 backwards.
        optional: ('labels',) where the file may have tokens alone.
        tally: not used.
        separator: one character; '': a tab if the first token has one, else a space.
        comment: prefix of lines to skip.

    Raises:
        UserError: a line with another number of columns than the first one, or a missing column.
    """
    tokens: list[str] = []
    labels: list[str] = []
    start = width = 0
    numbers = {field: _number(path, field, name) for field, name in columns.items()}
    for line_number, line in enumerate([*read_text(path).split("\n"), ""], 1):
        bare = line.removesuffix("\r")
        if not bare.strip() or bare.startswith(DOCUMENT_MARK):
            if tokens:
                yield Record(
                    f"{path}:{start}", {"tokens": tokens} | ({"labels": labels} if "labels" in numbers else {})
                )
                tokens, labels = [], []
            continue
        if comment and bare.startswith(comment):
            continue
        separator = separator or ("\t" if "\t" in bare else " ")
        values = bare.split(separator)
        where = f"{path}:{line_number}"
        if not width:
            width = len(values)
            numbers = _present(where, numbers, width, optional)
        if len(values) != width:
            raise UserError(f"{where}: {len(values)} columns where the first token has {width}; fix the line")
        if not tokens:
            start = line_number
        tokens.append(values[numbers["tokens"]])
        if "labels" in numbers:
            labels.append(values[numbers["labels"]])


def _number(path: str, field: str, name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise UserError(
            f"{path}: columns of this format are numbers from 0, not '{name}' for {field}; fix config.task.columns"
        ) from None


def _present(where: str, numbers: dict[str, int], width: int, optional: Sequence[str]) -> dict[str, int]:
    found = {}
    for field, number in numbers.items():
        # The only column of a file holds the tokens, not their labels.
        if -width <= number < width and not (width == 1 and field == "labels"):
            found[field] = number
        elif field not in optional:
            raise UserError(f"{where}: no column {number} for {field} among {width}; fix config.task.columns")
    return found
