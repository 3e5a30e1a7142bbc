"""The text of a record for `--field`: a field, fields in lists (`data[].text`), or a template (`{title}: {text}`)."""

import functools
import string
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError
from bert_jax.readers.documents import ReadOptions, RejectedError, describe_field_names
from bert_jax.readers.rows import ABSENT, look_up_field

_EACH = "[]"


class FieldTemplatePart(NamedTuple):
    """A part of a template: a literal text, then the value of the field `name`; '' for no text or no field."""

    literal: str
    name: str


@functools.cache
def parse_field_template(field: str) -> tuple[FieldTemplatePart, ...]:
    """Return the parts of a field template, where `\\n` and `\\t` are line end and tab; a bare name is one part.

    Raises:
        UserError: braces do not match, or contain more than a name.
    """
    if "{" not in field and "}" not in field:
        return (FieldTemplatePart("", field),)
    try:
        parsed = list(string.Formatter().parse(field))
    except ValueError as error:
        raise UserError(f"--field '{field}': {error}; write a brace of the text twice") from None
    for _, name, form, conversion in parsed:
        if name == "" or form or conversion or not set(name or "").isdisjoint(_EACH):
            raise UserError(f"--field '{field}': give plain names of fields in braces, such as {{title}} or {{a.b}}")
    parts = tuple(
        FieldTemplatePart(text.replace("\\n", "\n").replace("\\t", "\t"), name or "") for text, name, *_ in parsed
    )
    if not any(part.name for part in parts):
        raise UserError(f"--field '{field}': the value names no field; give at least one field in braces")
    return parts


def field_leads_into_lists(field: str) -> bool:
    """Return whether the path of a field leads into lists, so that a record may have many texts."""
    return _EACH in field and "{" not in field


def record_text(record: dict[str, Any], options: ReadOptions) -> str:
    """Return the text of a record from a field or a template; dots in a field's name lead into nested objects.

    Raises:
        RejectedError: the record has no such field, or `check_document_text` raises it.
    """
    texts = []
    for literal, name in parse_field_template(options.field):
        value = look_up_field(record, name) if name else ""
        if value is ABSENT:
            raise RejectedError("no field", describe_field_names(list(record)))
        texts.append(literal + check_document_text(value, options))
    return "".join(texts)


def texts_in_lists(record: dict[str, Any], options: ReadOptions) -> Iterator[str | RejectedError]:
    """Yield each text at a path such as `data[].paragraphs[].context`, or the reason for its rejection."""
    literal = options.field in record
    for value in [record[options.field]] if literal else _values_or_errors_at_path(record, options.field.split(".")):
        try:
            yield value if isinstance(value, RejectedError) else check_document_text(value, options)
        except RejectedError as error:
            yield error


def check_document_text(value: Any, options: ReadOptions) -> str:
    """Return `value` if it is a text without NUL; the options say whether unpaired surrogates are rejected.

    Raises:
        RejectedError: 'not a text', 'binary' for a text with NUL, or 'invalid UTF-8' for an unpaired surrogate.
    """
    if not isinstance(value, str):
        raise RejectedError("not a text")
    if "\0" in value:
        raise RejectedError("binary")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can express surrogates, UTF-8 cannot: "\\ud800"
        if options.encoding_errors == "reject":
            raise RejectedError("invalid UTF-8") from None
        return value.encode("utf-16", "surrogatepass").decode("utf-16", options.encoding_errors)
    return value


def _values_or_errors_at_path(value: Any, steps: Sequence[str]) -> Iterator[Any]:
    """Yield the values at the end of a path; yield a RejectedError where the record lacks a part of the path."""
    if not steps:
        yield value
        return
    key = steps[0].rstrip(_EACH)
    depth = (len(steps[0]) - len(key)) // len(_EACH)
    if not isinstance(value, dict) or key not in value:
        yield RejectedError("no field", describe_field_names(list(value)) if isinstance(value, dict) else "")
        return
    items: list[Any] = [value[key]]
    for _ in range(depth):
        if not all(isinstance(item, list) for item in items):
            yield RejectedError("not a list")
            return
        items = [inner for item in items for inner in item]
    for item in items:
        yield from _values_or_errors_at_path(item, steps[1:])
