"""JSON lines, JSON lists and SQuAD's JSON as records."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.readers.json_lines import parse_json, read_json_lines
from bert_jax.tasks.reading.columns import absent_column
from bert_jax.tasks.reading.files import read_text
from bert_jax.tasks.task import Columns, Record

_ABSENT = object()


def read_json(path: str, columns: Columns, optional: Sequence[str], tally: Any = None) -> Iterator[Record]:
    """Yield the records of a file that is a list of objects, or has one object per line.

    A column is a key, or several keys joined by dots for objects inside objects.

    Raises:
        UserError: invalid JSON, not an object, or a missing key, by file and line (in a list: by number).
    """
    text = read_text(path)
    items: Iterator[tuple[str, Any]]
    first, _, rest = text.strip().partition("\n")
    if first.startswith("[") and not (rest and _is_json(first)):  # a whole list with lines after it is one of several
        items = ((f"{path}: item {number}", item) for number, item in enumerate(parse_json(path, text)))
    else:
        items = read_json_lines(path, text.split("\n"))
    for where, item in items:
        if not isinstance(item, dict):
            raise UserError(f"{where}: not a JSON object; write one {{...}} for each example")
        yield Record(where, _fields(where, item, columns, optional))


def _is_json(text: str) -> bool:
    try:
        parse_json("", text)
    except UserError:
        return False
    return True


def read_squad(path: str, columns: Columns, optional: Sequence[str], tally: Any = None) -> Iterator[Record]:
    """Yield the questions of a file in the layout of SQuAD 1.1 and 2.0; columns are not used.

    Raises:
        UserError: invalid JSON, or a part that is missing or has the wrong type, by its place.
    """
    document = parse_json(path, read_text(path))
    for article_place, article in _each(path, document, "data"):
        for place, paragraph in _each(article_place, article, "paragraphs"):
            context = _get(place, paragraph, "context", str)
            for where, question in _each(place, paragraph, "qas"):
                name = _get(where, question, "id", str)
                fields = {"id": name, "question": _get(where, question, "question", str), "context": context}
                fields |= {key: question[key] for key in ("answers", "is_impossible") if key in question}
                yield Record(f"{path}: question {name}", fields)


def _fields(where: str, item: Mapping[str, Any], columns: Columns, optional: Sequence[str]) -> dict[str, Any]:
    fields = {}
    for field, name in columns.items():
        value = _look_up(item, name)
        if value is not _ABSENT:
            fields[field] = value
        elif field not in optional:
            raise absent_column(where, "key", field, columns, item)
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
