"""Texts and pairs of texts as features, and predictions of one class per example."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features, encode_distinct
from bert_jax.tasks.kinds.kind import Counts, Examples, Outputs, Predictions
from bert_jax.tasks.task import Example
from bert_jax.tokenizer import Tokenizer

Pair = tuple[str, str | None]


def text_features(
    examples: Examples,
    tokenizer: Tokenizer,
    max_seq_len: int,
    target: Callable[[Example], Mapping[str, Any]] = lambda example: {},
) -> tuple[list[Features], Counts]:
    """Return [CLS] text [SEP], or [CLS] text [SEP] text_pair [SEP], for each example.

    Args:
        examples: with `text` and perhaps `text_pair`.
        tokenizer: of the model.
        max_seq_len: longer texts are truncated, the longer one of a pair first, and counted.
        target: `Features.targets` of an example.

    Raises:
        UserError: `max_seq_len` holds no two texts.
    """
    pairs = [(example["text"], example.get("text_pair")) for example in examples]
    laid_out, truncated = _laid_out(pairs, tokenizer, max_seq_len)
    features = [
        Features(ids, second, number, target(example))
        for number, (example, (ids, second)) in enumerate(zip(examples, laid_out, strict=True))
    ]
    return features, {"truncated_texts": truncated}


def choice_features(
    examples: Examples, tokenizer: Tokenizer, max_seq_len: int, target: Callable[[Example], Mapping[str, Any]]
) -> tuple[list[Features], Counts]:
    """Return one sequence [CLS] text [SEP] choice [SEP] for each of an example's `choices`; else as `text_features`.

    Raises:
        UserError: also examples with different numbers of choices.
    """
    sizes = [len(example["choices"]) for example in examples]
    for example, size in zip(examples, sizes, strict=True):
        if size != sizes[0] or not size:
            raise UserError(
                f"example '{example['id']}' has {size} choices, the first has {sizes[0]};"
                " every example of a task needs the same number"
            )
    pairs = [(example["text"], choice) for example in examples for choice in example["choices"]]
    laid_out, truncated = _laid_out(pairs, tokenizer, max_seq_len)
    features = []
    for number, example in enumerate(examples):
        ids, seconds = zip(*laid_out[number * sizes[0] : (number + 1) * sizes[0]], strict=True)
        features.append(Features(list(ids), list(seconds), number, target(example)))
    return features, {"truncated_texts": truncated}


def separate_features(
    examples: Examples,
    fields: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_len: int,
    target: Callable[[Example], Mapping[str, Any]],
) -> tuple[list[Features], Counts]:
    """Return a sequence [CLS] text [SEP] for each of an example's `fields`; else as `text_features`."""
    pairs = [(example[field], None) for example in examples for field in fields]
    laid_out, truncated = _laid_out(pairs, tokenizer, max_seq_len)
    features = []
    for number, example in enumerate(examples):
        ids, seconds = zip(*laid_out[len(fields) * number : len(fields) * (number + 1)], strict=True)
        features.append(Features(list(ids), list(seconds), number, target(example)))
    return features, {"truncated_texts": truncated}


def label_target(key: str, dtype: type[np.generic]) -> Callable[[Example], dict[str, Any]]:
    """Return a function example -> `Features.targets`: its label under `key`, or {} without a label."""
    return lambda example: {key: dtype(example["label"])} if "label" in example else {}


def truncated_lengths(first: int, second: int, limit: int) -> tuple[int, int]:
    """Return how many tokens of two texts fit `limit`, where the longer one loses its last token until both fit.

    Of two equally long texts the second one loses, as in google-research/bert. `second` is 0 for a single text.
    """
    return min(first, max(limit - second, limit - limit // 2)), min(second, max(limit - first, limit // 2))


def _laid_out(
    pairs: Sequence[Pair], tokenizer: Tokenizer, max_seq_len: int
) -> tuple[list[tuple[np.ndarray, int]], int]:
    """Return token ids and the index of the second text for each pair, and the number of truncated pairs."""
    if max_seq_len < tokenizer.separators + 4:
        raise UserError(f"max_seq_len={max_seq_len} holds no two texts; set at least 16")
    ids = encode_distinct((text for pair in pairs for text in pair if text is not None), tokenizer.encode_sentences)
    found, truncated = [], 0
    for text, text_pair in pairs:
        first, second = ids[text], [] if text_pair is None else ids[text_pair]
        between = [] if text_pair is None else [tokenizer.sep_id] * tokenizer.separators
        kept = truncated_lengths(len(first), len(second), max_seq_len - 2 - len(between))
        truncated += kept != (len(first), len(second))
        head = [tokenizer.cls_id, *first[: kept[0]], *between]
        tail = [*second[: kept[1]], tokenizer.sep_id]
        found.append((np.array(head + tail, np.int32), len(head) if between else len(head) + 1))
    return found, truncated


def class_predictions(
    output: str,
) -> Callable[[Examples, Sequence[Features], Sequence[Outputs], TaskConfig, float | None], Predictions]:
    """Return a `Kind.predict`: the class of the highest logit of `output`, int `[n]`, and float `[n, classes]`."""

    def predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
        logits = in_order(features, [one[output] for one in outputs])
        return Predictions(logits.argmax(1), softmax(logits))

    return predict


def in_order(features: Sequence[Features], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return `values`, one per features, stacked in the order of the examples, of which each has one features."""
    return np.stack(values)[np.argsort([one.example for one in features])]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis."""
    likely = np.exp(logits - logits.max(-1, keepdims=True))
    return likely / likely.sum(-1, keepdims=True)


def rounded(probabilities: np.ndarray | Sequence[float]) -> list[float]:
    """Return probabilities for JSON, with 6 digits."""
    return [round(float(probability), 6) for probability in probabilities]
