"""JSON files from strangers, read strictly: no key twice, no NaN, UTF-8."""

import json
import pathlib
from typing import Any

from bert_jax.errors import UserError


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Return the object in `text`; UserError names `where` and the problem, such as a key given twice."""
    try:
        found = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} cannot be read as JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{where} is not a JSON object")
    return found


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Return the object in a file, likewise."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None
    return parse_object(text, str(path))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' is given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
