"""Strict reading of untrusted JSON: UTF-8, bounded size and depth, no repeated keys, only finite numbers.

Every reader of a JSON file that bert_jax did not write in the current run uses this module.
"""

import collections
import json
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax.errors import UserError, file_error
from bert_jax.files import read_file

MAX_DEPTH = 100  # maximum nesting of lists and objects
MAX_BYTES = 16 << 20  # maximum size of a file with settings; the parsed values take some 25 times as much memory
MAX_TABLE_BYTES = 64 << 20  # maximum size of a vocabulary, of a manifest of many shards, or of a file with many labels
# Controls of a terminal, and surrogates, which UTF-8 cannot write; JSON itself escapes the characters below a space.
_TERMINAL_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# `_TOKEN` matches a string, which may contain brackets, or a bracket. The last quote is optional; otherwise, the search
# for the end of an unclosed string would begin again at each of its characters.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{\]}]', re.DOTALL)


class NotFiniteError(ValueError):
    """Error for NaN, for Infinity, and for a number that is too large."""


def parse(text: str) -> Any:
    """Return the value of a JSON text; raise ValueError or NotFiniteError with the mistake and its position."""
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    return _DECODER.decode(text)


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Return the object in `text`; raise UserError, which names `where` and the problem, such as a repeated key."""
    value = _parse_bytes(text, where)
    if not isinstance(value, dict):
        raise UserError(f"{where} is not a JSON object")
    return value


def read_object(path: pathlib.Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the object in a file of at most `max_bytes`; raise UserError as `parse_object` does."""
    return parse_object(read_bounded_bytes(path, max_bytes), str(path))


def read_list(path: pathlib.Path) -> list[Any]:
    """Return the list in a file; raise UserError as `parse_object` does."""
    value = _parse_bytes(read_bounded_bytes(path), str(path))
    if not isinstance(value, list):
        raise UserError(f"{path} is not a JSON list")
    return value


def read_bounded_bytes(path: pathlib.Path, max_bytes: int = MAX_BYTES, name: str = "") -> bytes:
    """Return the content of a file; raise UserError if the file cannot be read or has more than `max_bytes`.

    Messages name the file by `name` or, if `name` is '', by its path.
    """
    try:
        return read_file(path, max_bytes, name)
    except OSError as error:
        raise file_error(error, name or path, "cannot be read") from None


def json_line(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return the JSON of a value on one line, without control characters of a terminal.

    A number that is not finite becomes null, because JSON cannot express such a number.
    """
    text = json.dumps(_with_null_for_not_finite(value), ensure_ascii=False, default=default, allow_nan=False)
    return _TERMINAL_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def has_surrogate(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, which JSON can express and UTF-8 cannot."""
    return not text.isascii() and re.search("[\ud800-\udfff]", text) is not None


def _with_null_for_not_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _with_null_for_not_finite(item) for key, item in value.items()}
    return [*map(_with_null_for_not_finite, value)] if isinstance(value, list | tuple) else value


def _parse_bytes(text: bytes, where: str) -> Any:
    """Return the value of a JSON text in UTF-8; raise UserError, which names `where`."""
    try:
        return parse(text.decode())
    except ValueError as error:
        raise UserError(f"{where} cannot be read as JSON: {error}") from None


def _check_depth(text: str) -> None:
    """Raise ValueError if lists and objects are nested deeper than `MAX_DEPTH`."""
    depth = 0
    for match in _TOKEN.finditer(text):
        character = text[match.start()]
        depth += (character in "[{") - (character in "]}")
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and objects in each other: char {match.start()}")


def _object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict; raise ValueError for a repeated key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = collections.Counter(key for key, _ in pairs)
        raise ValueError(f"the key '{counts.most_common(1)[0][0]:.60}' is given twice")
    return value


def _refuse_constant(name: str) -> Any:
    """Raise NotFiniteError for NaN or Infinity."""
    raise NotFiniteError(f"{name} is no JSON")


def _parse_finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise NotFiniteError(f"{text} is too large for a number")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object_without_duplicates, parse_constant=_refuse_constant, parse_float=_parse_finite
)
