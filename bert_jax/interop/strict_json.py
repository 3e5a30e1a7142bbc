"""JSON files from strangers, read strictly: no key twice, no NaN, UTF-8."""

import json
import pathlib
from typing import Any

from bert_jax.errors import UserError


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Return the object in `text`; UserError names `where` and the problem, such as a key given twice."""
    found = _parse(text, where)
    if not isinstance(found, dict):
        raise UserError(f"{where} is not a JSON object")
    return found


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Return the object in a file, likewise."""
    return parse_object(_bytes(path), str(path))


def read_list(path: pathlib.Path) -> list[Any]:
    """Return the list in a file, likewise."""
    found = _parse(_bytes(path), str(path))
    if not isinstance(found, list):
        raise UserError(f"{path} is not a JSON list")
    return found


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} cannot be read as JSON: {error}") from None


def _bytes(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key '{key}' is given twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
