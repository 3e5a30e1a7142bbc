"""Records -> examples: every value checked, labels as numbers, answers found in their context."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.reading.conll import to_iob2
from bert_jax.tasks.task import Record, Task

Example = dict[str, Any]
Make = Callable[[Record, Task, Counter[str]], Example]

EMPTY = "texts are empty"
IOB1 = "I- labels that begin an entity are read as B- (IOB1)"


def make(record: Record, task: Task, tally: Counter[str]) -> Example:
    """The example of a record, without its id; unlabelled where the record has no label.

    Args:
        record: as a format reads it.
        task: kind, labels and codes; what is odd in published files is counted, in others refused.
        tally: what was counted.

    Raises:
        UserError: where, what and how to mend it.
    """
    return _MAKE[task.kind](record, task, tally)


def name_of(record: Record) -> str:
    """The id of a record that has one.

    Raises:
        UserError: it is empty, or neither text nor an integer.
    """
    return _name(record, "id", record.fields["id"])


def label_names(record: Record, kind: str) -> list[str]:
    """The labels of a record of a task whose labels are not known yet."""
    if kind == "tagging":
        return to_iob2(_words(record, "labels"))
    return [_name(record, "label", record.fields["label"])]


def _classification(record: Record, task: Task, tally: Counter[str]) -> Example:
    return _texts(record, task, tally) | _if_labelled(record, lambda value: _index(record, task, value))


def _regression(record: Record, task: Task, tally: Counter[str]) -> Example:
    return _texts(record, task, tally) | _if_labelled(record, lambda value: _number(record, value))


def _choice(record: Record, task: Task, tally: Counter[str]) -> Example:
    fields = record.fields
    choices = fields.get("choices", [fields[f"choice{n}"] for n in range(100) if f"choice{n}" in fields])
    if not isinstance(choices, list) or len(choices) < 2:
        raise UserError(f"{record.where}: fewer than two choices; name choice0, choice1, ... in config.task.columns")
    start = _text(record, "start", task, tally) + " " if "start" in fields else ""
    texts = [start + _checked(record, "choice", value, task, tally) for value in choices]
    example: Example = {"text": _text(record, "text", task, tally), "choices": texts}
    return example | _if_labelled(record, lambda value: _position(record, value, len(texts)))


def _tagging(record: Record, task: Task, tally: Counter[str]) -> Example:
    tokens = _words(record, "tokens")
    if not tokens:
        raise UserError(f"{record.where}: a sentence without tokens; leave it out")
    if record.fields.get("labels") is None:
        return {"tokens": tokens}
    published = _words(record, "labels")
    if len(published) != len(tokens):
        raise UserError(f"{record.where}: {len(tokens)} tokens but {len(published)} labels; give each its own")
    labels = to_iob2(published)
    tally[IOB1] += sum(old != new for old, new in zip(published, labels, strict=True))
    return {"tokens": tokens, "labels": [_index(record, task, label) for label in labels]}


def _span(record: Record, task: Task, tally: Counter[str]) -> Example:
    example: Example = {field: _text(record, field, task, tally) for field in ("question", "context")}
    answers, impossible = record.fields.get("answers"), record.fields.get("is_impossible")
    if impossible and not answers:
        answers = []
    if answers is None:
        return example
    if not isinstance(answers, list) or not all(isinstance(answer, Mapping) for answer in answers):
        raise UserError(f'{record.where}: \'answers\' is no list of objects; give [{{"text": ..., "start": ...}}]')
    if impossible is not None and bool(impossible) == bool(answers):
        raise UserError(f"{record.where}: is_impossible is {impossible} with {len(answers)} answers; mend one of them")
    if not answers and not task.impossible:
        raise UserError(f"{record.where}: has no answer; take a task with such questions, as squad2")
    example["answers"] = [_answer(record, example["context"], answer) for answer in answers]
    return example


_MAKE: dict[str, Make] = {
    "classification": _classification,
    "regression": _regression,
    "tagging": _tagging,
    "span": _span,
    "choice": _choice,
}


def _texts(record: Record, task: Task, tally: Counter[str]) -> Example:
    fields = [field for field in ("text", "text_pair") if field in record.fields]
    return {field: _text(record, field, task, tally) for field in fields}


def _text(record: Record, field: str, task: Task, tally: Counter[str]) -> str:
    return _checked(record, field, record.fields[field], task, tally)


def _checked(record: Record, field: str, value: Any, task: Task, tally: Counter[str]) -> str:
    if not isinstance(value, str):
        raise UserError(f"{record.where}: {field} is {value!r:.40}, not a text; mend it")
    if not value.isascii() and re.search("[\ud800-\udfff]", value):
        raise UserError(f"{record.where}: {field} has half of a surrogate pair, which is no character; mend it")
    if not value.strip():
        if not task.published:
            raise UserError(f"{record.where}: {field} is empty; fill it, or leave the example out")
        tally[EMPTY] += 1
    return value


def _words(record: Record, field: str) -> list[str]:
    value = record.fields[field]
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise UserError(f"{record.where}: {field} is no list of texts, none of them empty; mend it")
    return value


def _if_labelled(record: Record, convert: Callable[[Any], int | float]) -> Example:
    value = record.fields.get("label")
    return {} if value is None else {"label": convert(value)}


def _name(record: Record, field: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int) or value == "":
        raise UserError(f"{record.where}: {field} is {value!r:.40}, neither text nor an integer; mend it")
    return str(value)


def _index(record: Record, task: Task, value: Any) -> int:
    name = _name(record, "label", value)
    for known in (task.codes, task.labels):
        if name in known:
            return known.index(name)
    known = task.codes or task.labels
    raise UserError(
        f"{record.where}: label '{name}' is not among {', '.join(known)}{did_you_mean(name, known)}; "
        "mend it, or config.task.labels"
    )


def _number(record: Record, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{record.where}: label {value!r:.40} is no number; mend it, or take kind=classification")
    return number


def _position(record: Record, value: Any, choices: int) -> int:
    name = _name(record, "label", value)
    if not re.fullmatch("[0-9]{1,9}", name) or int(name) >= choices:
        raise UserError(f"{record.where}: label '{name}' is no number of a choice, 0 to {choices - 1}; mend it")
    return int(name)


def _answer(record: Record, context: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer as it stands in the context; runs of white space count as equal, nothing else does."""
    text, start = answer.get("text"), answer.get("answer_start", answer.get("start"))
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{record.where}: an answer without text; leave it out, or mark the question impossible")
    if not isinstance(start, int) or isinstance(start, bool):
        raise UserError(f"{record.where}: answer {text!r:.40} has no integer 'answer_start'; mend it")
    if start >= 0 and context.startswith(text, start):
        return {"text": text, "start": start}
    pattern = re.compile(r"\s+".join(re.escape(word) for word in re.split(r"\s+", text)))
    found = pattern.match(context, start) if start >= 0 else None
    if found:
        return {"text": found[0], "start": start}
    places: Sequence[int] = [match.start() for match in pattern.finditer(context)]
    if not places:
        raise UserError(f"{record.where}: answer {text!r:.40} is not in its context; mend it, or leave it out")
    nearest = min(places, key=lambda place: abs(place - start))
    raise UserError(f"{record.where}: answer {text!r:.40} is not at answer_start {start} but at {nearest}; mend it")
