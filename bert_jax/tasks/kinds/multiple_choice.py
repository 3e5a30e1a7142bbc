"""Multiple choice: the right continuation among several continuations of a text."""

import re
from collections import Counter
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import FeaturesAndCounts
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, TaskKind
from bert_jax.tasks.kinds.texts import choice_features, make_class_predictor, make_label_target, round_for_json
from bert_jax.tasks.task import Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "choice_logits"
COLUMN = "choice"  # choice0, choice1, ... in files with a column per choice
MAX_COLUMNS = 100


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    fields = record.fields
    columns = [f"{COLUMN}{position}" for position in range(MAX_COLUMNS)]
    given = [column for column in columns if column in fields]
    if absent := [column for column in columns[: len(given)] if column not in given]:
        raise UserError(f"{record.where}: {given[-1]} without {absent[0]}; number the choices from {COLUMN}0 on")
    choices = fields.get("choices", [fields[column] for column in given])
    if not isinstance(choices, list) or len(choices) < 2:
        raise UserError(f"{record.where}: fewer than two choices; name choice0, choice1, ... in config.task.columns")
    start = records.text_field(record, "start", task, tally) + " " if "start" in fields else ""
    texts = [start + records.check_task_text(record, "choice", value, task, tally) for value in choices]
    index = records.label_field(record, lambda value: _choice_index(record, value, len(texts)))
    return {"text": records.text_field(record, "text", task, tally), "choices": texts} | index


def _choice_index(record: Record, value: Any, choices: int) -> int:
    name = records.normalize_label_name(record, "label", value)
    if not re.fullmatch("[0-9]{1,9}", name) or int(name) >= choices:
        raise UserError(f"{record.where}: label '{name}' is not the number of a choice, 0 to {choices - 1}; fix it")
    return int(name)


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    return choice_features(examples, tokenizer, settings.max_seq_len, make_label_target("labels", np.int32))


MULTIPLE_CHOICE = TaskKind(
    fields=("text", "choices", "label"),
    optional_fields=("start", "id"),  # start: the beginning that all choices share
    label_fields=("label",),
    uniform_fields=("choices",),
    column_lists={"choices": COLUMN},
    make_example=_make_example,
    features=_features,
    head="multiple_choice",
    settings=("focal_gamma", "soft_temperature"),
    recipe="multiple_choice",
    pipeline_tag="multiple-choice",
    purpose="choosing between a few answers",
    loss=Loss("cross_entropy", ((OUTPUT, "labels"),)),
    predict=make_class_predictor(OUTPUT),
    to_json=lambda labels, example, value: {"label": int(value)},
    details=lambda labels, probabilities: {"probabilities": round_for_json(probabilities)},
    default_metrics=lambda labels: (("accuracy",), "accuracy"),
)
