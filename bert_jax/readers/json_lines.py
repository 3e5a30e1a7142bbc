"""JSON lines for tasks and inference, where a broken line is an error; data/sources counts and skips it instead."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from bert_jax import strict_json
from bert_jax.errors import UserError


def read_json_lines(name: str, lines: Iterable[str], first: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield ('NAME:LINE', value) for each line that is not blank.

    Args:
        name: name of the file, for messages.
        lines: a text file opened for reading, or any texts with one JSON value each.
        first: number of the first line.

    Raises:
        UserError: invalid JSON, by line.
    """
    for number, line in enumerate(lines, first):
        if line.strip():
            where = f"{name}:{number}"
            yield where, parse_json(where, line)


def parse_json(where: str, text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        UserError: `where`, and the line and the column of the mistake.
    """
    try:
        return strict_json.parse(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text.rstrip("\n") else ""
        raise UserError(f"{where}: invalid JSON ({error.msg}, {line}column {error.colno}); fix it") from None
    except ValueError as error:  # nested too deeply; a key given twice; a number with too many digits
        raise UserError(f"{where}: invalid JSON ({error}); fix it") from None
