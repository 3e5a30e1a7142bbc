"""Similarity of two texts, computed from a vector for each text; in training, other pairs of a batch are negatives.

The setting `config.task.vector_loss` names the loss. By default, training leaves out pairs whose label is below
`config.task.positive_from`; a pair without a label is treated as positive. A record may also have a field `negative`
with texts, and a field `scores` with the scores that a teacher gives to `text_pair` and to each negative.
"""

import dataclasses
import math
import zlib
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
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.texts import features_per_field, stack_in_example_order
from bert_jax.tasks.late_interaction import make_token_marker, token_rules
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer

OUTPUT = "sentence_vectors"
SCORE_OUTPUT = "pair_scores"  # score of the first two texts of an example (objectives.vectors.with_pair_scores)


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    example = REGRESSION.make_example(record, task, tally)
    for field in ("text", "text_pair"):  # an empty text has no meaning to compare
        if not task.published and not example[field].strip():
            raise records.EmptyTextError(record, field)
    if NEGATIVE in record.fields:
        example[NEGATIVE] = records.negatives_field(record, example["text_pair"], task, tally)
    if SCORES in record.fields:
        example[SCORES] = _teacher_scores(record, num_texts=1 + len(example.get(NEGATIVE, ())))
    return example


def _teacher_scores(record: Record, num_texts: int) -> list[float]:
    """Return the teacher's scores for `text_pair` and for each negative; raise UserError if a number is missing."""
    scores = record.fields[SCORES]
    are_numbers = isinstance(scores, list) and all(
        isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score) for score in scores
    )
    if not are_numbers or len(scores) != num_texts:
        raise UserError(
            f"{record.where}: {SCORES} is {scores!r:.40}; give a list of {num_texts} numbers, for text_pair and each "
            "negative"
        )
    return [float(score) for score in scores]


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    query_prompt, document_prompt = settings.query_prompt or "", settings.document_prompt or ""
    num_negatives = len(examples[0].get(NEGATIVE, ()))
    for example in examples:
        for field, is_like_first in (
            (NEGATIVE, len(example.get(NEGATIVE, ())) == num_negatives),
            (SCORES, (SCORES in example) == (SCORES in examples[0])),
        ):
            if not is_like_first:
                raise UserError(
                    f"example '{example['id']}' and the first example differ in the number of texts or scores in "
                    f"{field}; give equally many in all examples"
                )
    fields = ["text", "text_pair", *(f"negative {n}" for n in range(num_negatives))]
    texts = [
        dict(zip(fields, (example["text"], example["text_pair"], *example.get(NEGATIVE, ())), strict=True))
        for example in examples
    ]
    with_prompts = [
        {field: (query_prompt if field == "text" else document_prompt) + text for field, text in of_example.items()}
        for of_example in texts
    ]
    has_token_vectors, rules = VECTOR_HEADS[settings.vector_head].has_token_vectors, token_rules(settings)
    query_length = (has_token_vectors and rules.query_length) or settings.max_seq_len
    queries, query_counts = features_per_field(with_prompts, fields[:1], tokenizer, query_length, lambda example: {})
    documents, counts = features_per_field(
        with_prompts, fields[1:], tokenizer, settings.max_seq_len, lambda example: {}
    )
    features = [
        of_query._replace(
            input_ids=[ids for ids, _ in (*of_query.sequences, *of_documents.sequences)],
            type_1_start=[start for _, start in (*of_query.sequences, *of_documents.sequences)],
        )
        for of_query, of_documents in zip(queries, documents, strict=True)
    ]

    # Equal texts have equal ids, even a query and a document, whose prompts differ.
    distinct = features
    if query_prompt != document_prompt or query_length != settings.max_seq_len:
        distinct, _ = features_per_field(texts, fields, tokenizer, settings.max_seq_len, lambda example: {})

    def targets(example: Example, features: Features) -> dict[str, Any]:
        label = example.get("label", settings.positive_from)
        text_ids = [zlib.crc32(ids.tobytes()) for ids, _ in distinct[features.example].sequences]
        return {
            "positives": np.float32(label >= settings.positive_from),
            "text_ids": np.array([text_ids], np.uint32).view(np.int32),
            **({"grades": np.float32(example["label"])} if "label" in example else {}),
            **({SCORES: np.array([example[SCORES]], np.float32)} if SCORES in example else {}),
        }

    features = [made._replace(targets=targets(example, made)) for example, made in zip(examples, features, strict=True)]
    if has_token_vectors:
        mark_tokens, is_query = make_token_marker(rules, tokenizer), [field == "text" for field in fields]
        features = [mark_tokens(made, is_query) for made in features]
    if query_length != settings.max_seq_len:  # another option truncates queries
        query_counts = {
            f"queries_truncated_to_{query_length}_tokens": query_counts.pop("truncated_texts"),
            **query_counts,
        }
    names = [*query_counts, *(name for name in counts if name not in query_counts)]
    return FeaturesAndCounts(features, {name: query_counts.get(name, 0) + counts.get(name, 0) for name in names})


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    return Predictions(stack_in_example_order(features, [output[SCORE_OUTPUT] for output in outputs]))


def _fill_temperature(settings: TaskConfig, labels: Sequence[str], tokenizer: Tokenizer) -> TaskConfig:
    """Return the settings; if the user gives no temperature, set the default temperature of the head."""
    if VECTOR_HEADS[settings.vector_head].has_token_vectors and (settings.query_length or 0) > settings.max_seq_len:
        raise UserError(
            f"config.task.query_length={settings.query_length} exceeds config.task.max_seq_len={settings.max_seq_len}; "
            "lower it, or raise the maximum"
        )
    temperature = VECTOR_HEADS[settings.vector_head].temperature
    return settings if settings.temperature else dataclasses.replace(settings, temperature=temperature)


SIMILARITY = TaskKind(
    fields=("text", "text_pair", "label"),
    optional_fields=(NEGATIVE, SCORES, "id"),
    training_fields=(NEGATIVE, SCORES),
    label_fields=("label",),
    unlabeled=("train", "test"),
    make_example=_make_example,
    features=_features,
    head="sentence_embedding",
    recipe="similarity",
    pipeline_tag="sentence-similarity",
    commands=(
        "bert-jax embed  --model {model} --input FILE --output vectors{suffix}",
        "bert-jax score  --model {model} --retrieval DIR",
        "bert-jax export --workdir {model} --output {export}",
    ),
    purpose="comparing sentences by their vectors",
    classes=0,
    loss=Loss("", ((OUTPUT, "positives"),), "positives", whole_batch=True),
    settings=(
        "train_weights",
        "positive_from",
        "temperature",
        "vector_loss",
        "vector_head",
        "query_flops_weight",
        "document_flops_weight",
        "flops_warmup_fraction",
        "vector_width",
        "query_length",
        "attend_to_expansion",
        "skip_punctuation",
        "learned_temperature",
        "symmetric",
        "false_negative_margin",
        "triplet_margin",
        "score_temperature",
        "matryoshka_sizes",
        "query_prompt",
        "document_prompt",
        "retrieval",
        "retrieval_split",
    ),
    fill_settings=_fill_temperature,
    predict=_predict,
    to_json=lambda labels, example, value: {"label": float(value)},
    default_metrics=lambda labels: (("pearson", "spearman"), "spearman"),
)
