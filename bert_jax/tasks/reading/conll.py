"""Files of one token a line -> sentences; IOB1 -> IOB2."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.reading.files import read_text
from bert_jax.tasks.task import Columns, Record

DOCUMENT_MARK = "-DOCSTART-"


def read(
    path: str, columns: Columns, optional: Sequence[str], tally: Any = None, *, separator: str = "", comment: str = ""
) -> Iterator[Record]:
    """The sentences of a file: a token and its columns a line, a line without any after each sentence.

    Lines of a document mark (-DOCSTART-) are no tokens.

    Args:
        path: plain or .gz.
        columns: 'tokens' and 'labels' -> number of the column, from 0, or from -1 backwards.
        optional: ('labels',) where the file may have tokens alone.
        tally: not used.
        separator: one character; '': a tab where the first token has one, else a space.
        comment: what lines that are no tokens begin with.

    Raises:
        UserError: a line with another number of columns than the first, or a column that is not there.
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
            raise UserError(f"{where}: {len(values)} columns where the first token has {width}; mend the line")
        if not tokens:
            start = line_number
        tokens.append(values[numbers["tokens"]])
        if "labels" in numbers:
            labels.append(values[numbers["labels"]])


def to_iob2(labels: Sequence[str]) -> list[str]:
    """The same entities, each beginning with B-: reads IOB1 (Ramshaw and Marcus, 1995), leaves valid IOB2 as it is.

    An I- after another type or after no entity begins one, which is also how conlleval and seqeval read it.
    """
    fixed = []
    before = "O"
    for label in labels:
        starts = label.startswith("I-") and before[2:] != label[2:]
        fixed.append("B-" + label[2:] if starts else label)
        before = label
    return fixed


def _number(path: str, field: str, name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise UserError(
            f"{path}: columns of this format are numbers from 0, not '{name}' for {field}; mend config.task.columns"
        ) from None


def _present(where: str, numbers: dict[str, int], width: int, optional: Sequence[str]) -> dict[str, int]:
    found = {}
    for field, number in numbers.items():
        # The last of one column is the tokens themselves, not their labels.
        if -width <= number < width and not (width == 1 and field == "labels"):
            found[field] = number
        elif field not in optional:
            raise UserError(f"{where}: no column {number} for {field} among {width}; mend config.task.columns")
    return found
