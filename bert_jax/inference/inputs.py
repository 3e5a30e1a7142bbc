"""Texts of a file, one a line, read as they are asked for."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError

JSON_LINES = ".jsonl"
KEYS = ("text", "text_pair")


def read_texts(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """`{"id": line number, "text": ..., "text_pair": ...}` of each line, the pair only where there is one.

    A file with the suffix .jsonl holds JSON objects, whose other keys are left alone; in any other every line is a
    text, an empty one too. UserError names the line that cannot be read.
    """
    read = _object if path.suffix == JSON_LINES else _plain
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield {"id": str(number), **read(line.removesuffix(b"\n").removesuffix(b"\r").decode())}
                except ValueError as error:  # JSON's and UTF-8's are such too
                    raise UserError(f"{path}, line {number}: {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def _plain(line: str) -> dict[str, str]:
    return {"text": line}


def _object(line: str) -> dict[str, str]:
    found = json.loads(line)
    if not isinstance(found, dict) or "text" not in found:
        raise ValueError('not an object with "text"')
    texts = {key: found[key] for key in KEYS if key in found}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f'"{key}" is no string')
    return texts
