"""Question answering: a span of a context as the answer to a question, or no answer."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.answers.search import Found, find_answers
from bert_jax.tasks.answers.squad_score import tune_threshold
from bert_jax.tasks.answers.windows import window_features
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds.kind import Examples, Kind, Loss, Outputs, Predictions
from bert_jax.tasks.kinds.shared import records
from bert_jax.tasks.task import Example, Record, Task


def _make(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    example: dict[str, Any] = {field: records.text(record, field, task, tally) for field in ("question", "context")}
    answers, impossible = record.fields.get("answers"), record.fields.get("is_impossible")
    if impossible and not answers:
        answers = []
    if answers is None:
        return example
    if not isinstance(answers, list) or not all(isinstance(answer, Mapping) for answer in answers):
        raise UserError(f'{record.where}: \'answers\' is not a list of objects; write [{{"text": ..., "start": ...}}]')
    if impossible is not None and bool(impossible) == bool(answers):
        raise UserError(f"{record.where}: is_impossible is {impossible} with {len(answers)} answers; fix one of them")
    if not answers and not task.impossible:
        raise UserError(f"{record.where}: the question has no answer; choose a task with such questions, as squad2")
    example["answers"] = [_answer(record, example["context"], answer) for answer in answers]
    return example


def _answer(record: Record, context: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer as the context spells it; runs of white space count as equal, nothing else does."""
    text, start = answer.get("text"), answer.get("answer_start", answer.get("start"))
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{record.where}: an answer without text; leave it out, or mark the question impossible")
    if not isinstance(start, int) or isinstance(start, bool):
        raise UserError(f"{record.where}: answer {text!r:.40} has no integer 'answer_start'; fix it")
    if start >= 0 and context.startswith(text, start):
        return {"text": text, "start": start}
    pattern = re.compile(r"\s+".join(re.escape(word) for word in re.split(r"\s+", text)))
    found = pattern.match(context, start) if start >= 0 else None
    if found:
        return {"text": found[0], "start": start}
    starts: Sequence[int] = [match.start() for match in pattern.finditer(context)]
    if not starts:
        raise UserError(f"{record.where}: answer {text!r:.40} is not in its context; fix it, or leave it out")
    nearest = min(starts, key=lambda other: abs(other - start))
    raise UserError(f"{record.where}: answer {text!r:.40} is not at answer_start {start} but at {nearest}; fix it")


def _predict(
    examples: Examples,
    features: Sequence[Features],
    outputs: Sequence[Outputs],
    settings: TaskConfig,
    threshold: float | None,
) -> Predictions:
    starts, ends = ([one[name] for one in outputs] for name in ("start_logits", "end_logits"))
    found = find_answers(examples, features, starts, ends, settings, threshold is not None)
    return Predictions([one.text(threshold) for one in found], found)


def _tune(examples: Examples, predictions: Predictions) -> tuple[Predictions, float]:
    """Choose the threshold with the best F1, as the official script for SQuAD 2.0 does."""
    assert predictions.details is not None
    threshold = tune_threshold(examples, list(predictions.details))["f1"].threshold
    return predictions._replace(values=[one.text(threshold) for one in predictions.details]), threshold


def _details(labels: Sequence[str], found: Found) -> dict[str, Any]:
    margin = found.null_margin
    return {
        "n_best": [answer._asdict() for answer in found.answers],
        "null_margin": margin if math.isfinite(margin) else None,
    }


def _gold(example: Example) -> str:
    return example["answers"][0]["text"] if example["answers"] else ""


QUESTION_ANSWERING = Kind(
    fields=("question", "context", "answers"),
    optional_fields=("is_impossible", "id"),
    label_fields=("answers", "is_impossible"),
    suffixes={".json": "squad"},
    make=_make,
    features=window_features,
    head="question_answering",
    pipeline_tag="question-answering",
    purpose="finding the answer to a question in a text",
    # Both ends over all positions of the sequence, padding included, as in google-research/bert, run_squad.py.
    loss=Loss("cross_entropy", (("start_logits", "starts"), ("end_logits", "ends"))),
    predict=_predict,
    tune=_tune,
    impossible=True,
    to_json=lambda labels, example, value: {"answer": value},
    details=_details,
    gold=_gold,
    default_metrics=lambda labels: (("squad",), "f1"),
)
