"""Multi-label classification: any number of labels for a text or a pair of texts, each of them a yes or a no."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Counts, Examples, Loss, Outputs, Predictions, TaskKind, Threshold, Tuned
from bert_jax.tasks.kinds.texts import rounded, stack_in_order, text_features
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sequence_logits"
PROBLEM = "multi_label_classification"
DEFAULT_THRESHOLD = 0.5  # of transformers


def _names(record: Record, separator: str | None) -> list[str]:
    """Return the distinct labels of a record, from a list, a text with a separator, or a single label."""
    value = record.fields["label"]
    if isinstance(value, list):
        names = records.label_names_field(record, "label")
    elif isinstance(value, str) and separator:
        names = [name for part in value.split(separator) if (name := part.strip())]
    else:
        names = [records.label_name(record, "label", value)]
    return list(dict.fromkeys(names))


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    example = records.text_fields(record, task, tally)
    if record.fields.get("label") is None:
        return example
    indices = {records.class_index(record, task, name) for name in _names(record, task.label_separator)}
    return example | {"label": tuple(sorted(indices))}


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> tuple[list[Features], Counts]:
    """Return the features of the texts; `targets`: label_set float32 `[1, labels]`, 1 for the labels of a text."""
    num_labels = settings.num_labels

    def target(example: Example) -> dict[str, Any]:
        if "label" not in example:
            return {}
        label_set = np.zeros((1, num_labels), np.float32)
        label_set[0, list(example["label"])] = 1.0
        return {"label_set": label_set}

    return text_features(examples, tokenizer, settings.max_seq_len, target)
