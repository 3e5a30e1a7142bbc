"""Question answering: the answer to a question is a span of a context; some questions have no answer."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.answer_search import AnswerCandidates, find_answers
from bert_jax.tasks.kinds.answer_windows import window_features
from bert_jax.tasks.kinds.kind import Examples, Loss, Outputs, Predictions, TaskKind, Threshold, Tuned
from bert_jax.tasks.kinds.squad_score import tune_no_answer_thresholds
from bert_jax.tasks.task import Example, Record, Task


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    example: dict[str, Any] = {
        field: records.text_field(record, field, task, tally) for field in ("question", "context")
    }
    answers, impossible = record.fields.get("answers"), record.fields.get("is_impossible")
    if impossible and not answers:
        answers = []
    if answers is None:
        return example
    if isinstance(answers, Mapping) and all(isinstance(values, list) for values in answers.values()):
        answers = _answers_from_lists(record, answers)
    if not isinstance(answers, list) or not all(isinstance(answer, Mapping) for answer in answers):
        raise UserError(f'{record.where}: \'answers\' is not a list of objects; write [{{"text": ..., "start": ...}}]')
    if impossible is not None and bool(impossible) == bool(answers):
        raise UserError(f"{record.where}: is_impossible is {impossible} with {len(answers)} answers; fix one of them")
    if not answers and not task.impossible:
        raise UserError(
            f"{record.where}: the question has no answer; choose a task that allows such questions, such as squad2"
        )
    example["answers"] = [_checked_answer(record, answer) for answer in answers]
    return example


def _answers_from_lists(record: Record, lists: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """Return a list of answers, converted from lists of their fields: {"text": [...], "answer_start": [...]}.

    Data sets of Hugging Face store answers as lists of fields.
    """
    if len({len(values) for values in lists.values()}) > 1:
        sizes = ", ".join(f"{len(values)} {key}" for key, values in lists.items())
        raise UserError(
            f"{record.where}: 'answers' has lists of different lengths ({sizes}); give all answers each of these fields"
        )
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def _checked_answer(record: Record, answer: Mapping[str, Any]) -> dict[str, Any]:
    text, start = answer.get("text"), answer.get("answer_start", answer.get("start"))
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{record.where}: an answer without text; leave it out, or mark the question impossible")
    records.check_characters(record, "an answer", text)
    return {"text": text} | ({"start": start} if isinstance(start, int) and not isinstance(start, bool) else {})


def _check_and_place_answers(
    record: Record, example: dict[str, Any], training: bool, tally: Counter[str]
) -> dict[str, Any]:
    """Return the example with its usable answers: for training, the answers found at their `start`; else all answers.

    In a set that is only scored, only the texts of the answers are kept.

    Raises:
        UserError: no answer of a training example is at its `start` in the context; the message describes the first
            answer.
    """
    given, context = example.get("answers", []), example["context"]
    if not training:
        absent = all(_whitespace_tolerant_pattern(answer["text"]).search(context) is None for answer in given)
        tally["questions have no answer that is in their context: none can be predicted"] += bool(given) and absent
        return example | ({"answers": [{"text": answer["text"]} for answer in given]} if "answers" in example else {})
    placed = [in_context for answer in given if (in_context := _answer_in_context(context, answer))]
    if given and not placed:
        raise UserError(f"{record.where}: {_misplaced_answer_message(context, given[0])}")
    tally["answers are left out: they are not at their place, and another answer is"] += len(given) - len(placed)
    return example | {"answers": placed}


def _answer_in_context(context: str, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an answer as the context spells it; None if context and answer differ in more than white space."""
    start = answer.get("start", -1)
    if start >= 0 and context.startswith(answer["text"], start):
        return {"text": answer["text"], "start": start}
    match = _whitespace_tolerant_pattern(answer["text"]).match(context, start) if start >= 0 else None
    return {"text": match[0], "start": start} if match else None


def _misplaced_answer_message(context: str, answer: Mapping[str, Any]) -> str:
    """Return an error message with advice for an answer that is not at its `start` in the context."""
    cure = "fix it, or leave such questions out with config.task.skip_unusable_answers"
    text = f"answer {answer['text']!r:.40}"
    if "start" not in answer:
        return f"{text} has no integer 'answer_start'; {cure}"
    starts = [match.start() for match in _whitespace_tolerant_pattern(answer["text"]).finditer(context)]
    if not starts:
        return f"{text} is not in its context; {cure}"
    nearest = min(starts, key=lambda start: abs(start - answer["start"]))
    return f"{text} is not at answer_start {answer['start']} but at {nearest}; {cure}"


def _whitespace_tolerant_pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"\s+".join(re.escape(word) for word in re.split(r"\s+", text)))


def _predict(
    examples: Examples,
    features: Sequence[Features],
    outputs: Sequence[Outputs],
    settings: TaskConfig,
    threshold: Threshold,
) -> Predictions:
    assert threshold is None or isinstance(threshold, float)
    starts, ends = ([output[name] for output in outputs] for name in ("start_logits", "end_logits"))
    results = find_answers(examples, features, starts, ends, settings, threshold is not None)
    return Predictions([result.text(threshold) for result in results], results)


def _tune_no_answer_threshold(examples: Examples, predictions: Predictions, settings: TaskConfig) -> Tuned:
    """Choose the threshold for "no answer" with the best F1; the official script for SQuAD 2.0 finds an equal F1."""
    assert predictions.details is not None
    threshold = tune_no_answer_thresholds(examples, list(predictions.details))["f1"].threshold
    values = [result.text(threshold) for result in predictions.details]
    return Tuned(predictions._replace(values=values), threshold, {})


def _answer_details(labels: Sequence[str], result: AnswerCandidates) -> dict[str, Any]:
    margin = result.null_margin
    return {
        "n_best": [answer._asdict() for answer in result.answers],
        "null_margin": margin if math.isfinite(margin) else None,
    }


def _gold_answer(example: Example) -> str:
    return example["answers"][0]["text"] if example["answers"] else ""


QUESTION_ANSWERING = TaskKind(
    fields=("question", "context", "answers"),
    optional_fields=("is_impossible", "id"),
    label_fields=("answers", "is_impossible"),
    shared_field="context",
    suffixes={".json": "squad"},
    make_example=_make_example,
    with_usable_labels=_check_and_place_answers,
    features=window_features,
    head="question_answering",
    settings=(
        "doc_stride",
        "max_query_length",
        "max_answer_length",
        "skip_unusable_answers",
        "n_best",
        "focal_gamma",
        "soft_temperature",
    ),
    recipe="squad",
    fits_file=lambda text, labels, separator: isinstance(text, str) and records.has_answers(labels),
    pipeline_tag="question-answering",
    purpose="finding the answer to a question in a text",
    # The softmax over the starts, and over the ends, includes all positions of the sequence, also padding, as in
    # run_squad.py of google-research/bert.
    loss=Loss("cross_entropy", (("start_logits", "starts"), ("end_logits", "ends"))),
    predict=_predict,
    tune=_tune_no_answer_threshold,
    impossible=True,
    to_json=lambda labels, example, value: {"answer": value},
    details=_answer_details,
    gold=_gold_answer,
    default_metrics=lambda labels: (("squad",), "f1"),
)
