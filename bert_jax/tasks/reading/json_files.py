"""JSON lines, a JSON list, and SQuAD's JSON -> records."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.reading.files import read_text
from bert_jax.tasks.task import Columns, Record

_ABSENT = object()


def read(path: str, columns: Columns, optional: Sequence[str], tally: Any = None) -> Iterator[Record]:
    """The records of a file that is a list of objects, or has one object a line.

    A column is a key, or several joined by dots where objects lie in objects.

    Raises:
        UserError: invalid JSON, no object, or a missing key, by file and line (in a list: by number).
    """
    text = read_text(path)
    if text.lstrip().startswith("["):
        items = ((f"{path}: item {number}", item) for number, item in enumerate(_parse(path, text)))
    else:
        lines = ((f"{path}:{number}", line) for number, line in enumerate(text.split("\n"), 1))
        items = ((where, _parse(where, line)) for where, line in lines if line.strip())
    for where, item in items:
        if not isinstance(item, dict):
            raise UserError(f"{where}: not a JSON object; write one {{...}} for each example")
        yield Record(where, _fields(where, item, columns, optional))


def read_squad(path: str, columns: Columns, optional: Sequence[str], tally: Any = None) -> Iterator[Record]:
    """The questions of a file in the layout of SQuAD 1.1 and 2.0, which has its own names for all.

    Raises:
        UserError: invalid JSON, or a part that is missing or of another type, by its place.
    """
    document = _parse(path, read_text(path))
    for place, article in _each(path, document, "data"):
        for spot, paragraph in _each(place, article, "paragraphs"):
            context = _get(spot, paragraph, "context", str)
            for where, question in _each(spot, paragraph, "qas"):
                name = _get(where, question, "id", str)
                fields = {"id": name, "question": _get(where, question, "question", str), "context": context}
                fields |= {key: question[key] for key in ("answers", "is_impossible") if key in question}
                yield Record(f"{path}: question {name}", fields)


def _parse(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in text else ""
        raise UserError(f"{where}: invalid JSON ({error.msg}, {line}column {error.colno}); mend it") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number of too many digits
        raise UserError(f"{where}: JSON that cannot be read ({error}); mend it") from None


def _fields(where: str, item: Mapping[str, Any], columns: Columns, optional: Sequence[str]) -> dict[str, Any]:
    fields = {}
    for field, name in columns.items():
        value = _look_up(item, name)
        if value is not _ABSENT:
            fields[field] = value
        elif field not in optional:
            known = ", ".join(repr(key) for key in item)
            raise UserError(f"{where}: no key '{name}' for {field}{did_you_mean(name, item)} (there are {known})")
    return fields


def _look_up(item: Mapping[str, Any], name: str) -> Any:
    if name in item:
        return item[name]
    value: Any = item
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            return _ABSENT
        value = value[key]
    return value


def _each(where: str, parent: Any, key: str) -> Iterator[tuple[str, Any]]:
    for number, child in enumerate(_get(where, parent, key, list)):
        yield f"{where} {key}[{number}]", child


def _get(where: str, parent: Any, key: str, kind: type) -> Any:
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, kind):
        wanted = "text" if kind is str else "list"
        raise UserError(f"{where}: no {wanted} '{key}'; the layout is data > paragraphs > context, qas > id, question")
    return value
