"""Similarity of two texts, each as a vector; the other pairs of a batch are negatives in training.

The loss is from Henderson et al. 2017 and SimCSE (Gao et al. 2021): among all second texts of a batch, and all
negatives if the examples have negatives, the matching second text should have the highest cosine with the first text.
Training leaves out pairs whose label is below `task.positive_from`; pairs without a label belong together.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features, FeaturesAndCounts
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, Outputs, Predictions, TaskKind
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.texts import separate_features, stack_in_order
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sentence_vectors"
NEGATIVE = "negative"


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    made = REGRESSION.make_example(record, task, tally)
    return made | ({NEGATIVE: records.text_field(record, NEGATIVE, task, tally)} if NEGATIVE in record.fields else {})


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    fields = ["text", "text_pair"]
    if any(NEGATIVE in example for example in examples):
        fields.append(NEGATIVE)
        for example in examples:
            if NEGATIVE not in example:
                raise UserError(
                    f"example '{example['id']}' has no {NEGATIVE}, but other examples have it; give it in all, "
                    "or in none"
                )

    def target(example: Example) -> dict[str, Any]:
        return {"positives": np.float32(example.get("label", settings.positive_from) >= settings.positive_from)}

    return separate_features(examples, fields, tokenizer, settings.max_seq_len, target)


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    return Predictions(stack_in_order(features, [output[OUTPUT][0] @ output[OUTPUT][1] for output in outputs]))


SIMILARITY = TaskKind(
    fields=("text", "text_pair", "label"),
    optional_fields=(NEGATIVE, "id"),
    label_fields=("label",),
    unlabeled=("train", "test"),
    make_example=_make_example,
    features=_features,
    head="sentence_embedding",
    recipe="similarity",
    pipeline_tag="sentence-similarity",
    purpose="comparing sentences by their vectors",
    classes=0,
    loss=Loss("in_batch_negatives", ((OUTPUT, "positives"),), "positives", whole_batch=True),
    predict=_predict,
    to_json=lambda labels, example, value: {"label": float(value)},
    default_metrics=lambda labels: (("pearson", "spearman"), "spearman"),
)
