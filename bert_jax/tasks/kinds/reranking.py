"""Reranking: the scores of documents for a query, by a cross-encoder, which reads the query and a document together.

An example has a query, a document that answers the query, and negatives. The loss is the cross entropy of the right
document among these documents (ListNet, Cao et al. 2007, with one relevant document). A trained model has one output,
and scores any pair of texts.
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
from bert_jax.tasks.kinds.records import NEGATIVE, SCORES
from bert_jax.tasks.kinds.regression import OUTPUT
from bert_jax.tasks.kinds.texts import choice_features, round_for_json, stack_in_example_order
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tokenizer import Tokenizer


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    example = records.text_fields(record, task, tally)
    if NEGATIVE in record.fields:
        example[NEGATIVE] = records.negatives_field(record, example["text_pair"], task, tally)
        if not example[NEGATIVE]:
            raise UserError(f"{record.where}: {NEGATIVE} is an empty list; add a text")
    return example


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    num_negatives = [len(example.get(NEGATIVE, ())) for example in examples]
    for example, num_here in zip(examples, num_negatives, strict=True):
        if num_here != num_negatives[0]:
            raise UserError(
                f"example '{example['id']}' has {num_here} negatives, and the first example has {num_negatives[0]}; "
                "give equally many in all examples"
            )
    with_choices = [{**example, "choices": [example["text_pair"], *example.get(NEGATIVE, ())]} for example in examples]

    def target(example: Example) -> dict[str, Any]:
        return {"labels": np.int32(0)} if NEGATIVE in example else {}

    return choice_features(with_choices, tokenizer, settings.max_seq_len, target)


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    scores = stack_in_example_order(features, [output[OUTPUT] for output in outputs])
    return Predictions(scores.reshape(len(scores), -1))


def _usage_code(settings: TaskConfig, tokenizer: Tokenizer) -> str:
    """Return Python code that scores documents with sentence-transformers."""
    return f"""from sentence_transformers import CrossEncoder

model = CrossEncoder(".", max_length={settings.max_seq_len})  # this directory
scores = model.predict([("a query", "a document"), ("a query", "another document")])
"""


RERANKING = TaskKind(
    fields=("text", "text_pair", NEGATIVE),
    label_fields=(NEGATIVE,),
    make_example=_make_example,
    features=_features,
    head="sequence_classification",
    classes=1,
    activation="identity",
    recipe="reranking",
    pipeline_tag="text-ranking",
    usage_code=_usage_code,
    purpose="sorting the documents that a search found",
    commands=(
        "bert-jax score   --model ENCODER --retrieval DIR --rerank {model}",
        "bert-jax predict --model {model} --input FILE --output scores.jsonl",
        "bert-jax export  --workdir {model} --output {export}",
    ),
    shared_field="text",
    loss=Loss("listwise", ((OUTPUT, "labels"),)),
    settings=("soft_temperature",),
    predict=_predict,
    gold=lambda example: [1.0] + [0.0] * len(example[NEGATIVE]),
    to_json=lambda labels, example, value: {SCORES: round_for_json(value)},
    default_metrics=lambda labels: (("positive_rank",), "mrr"),
)
