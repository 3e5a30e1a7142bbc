"""Features of texts and pairs of texts, and predictions of a class for each example."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import SPELLED, UNKNOWN, Features, FeaturesAndCounts, TokenSequence, encode_distinct
from bert_jax.tasks.kinds.kind import Counts, Examples, Outputs, Predictions, Threshold
from bert_jax.tasks.task import Example
from bert_jax.tokenizer import Tokenizer

Pair = tuple[str, str | None]


def text_features(
    examples: Examples,
    tokenizer: Tokenizer,
    max_seq_len: int,
    target: Callable[[Example], Mapping[str, Any]] = lambda example: {},
) -> FeaturesAndCounts:
    """Return features, each a sequence [CLS] text [SEP] or [CLS] text [SEP] text_pair [SEP], and counts of problems.

    The keys of the counts are `truncated_texts`, `SPELLED` and, if this count is not 0, `UNKNOWN`.

    Args:
        examples: examples with `text`, and perhaps `text_pair`.
        tokenizer: tokenizer of the model.
        max_seq_len: maximum length; longer inputs are truncated and counted; in a pair, the longer text is cut first.
        target: function that returns `Features.targets` of an example.

    Raises:
        UserError: `max_seq_len` is too small for two texts.
    """
    pairs = [(example["text"], example.get("text_pair")) for example in examples]
    laid_out, counts = _encode_pairs(pairs, tokenizer, max_seq_len)
    features = [
        Features(ids, type_1_start, example_index, target(example))
        for example_index, (example, (ids, type_1_start)) in enumerate(zip(examples, laid_out, strict=True))
    ]
    return FeaturesAndCounts(features, counts)


def choice_features(
    examples: Examples, tokenizer: Tokenizer, max_seq_len: int, target: Callable[[Example], Mapping[str, Any]]
) -> FeaturesAndCounts:
    """Return features with a sequence [CLS] text [SEP] choice [SEP] for each choice, and counts as in `text_features`.

    Raises:
        UserError: `max_seq_len` is too small for two texts, or the examples have different numbers of choices.
    """
    sizes = [len(example["choices"]) for example in examples]
    for example, size in zip(examples, sizes, strict=True):
        if size != sizes[0] or not size:
            raise UserError(
                f"example '{example['id']}' has {size} choices, the first has {sizes[0]};"
                " every example of a task needs the same number"
            )
    pairs = [[(example["text"], choice) for choice in example["choices"]] for example in examples]
    return _features_of_pair_groups(examples, pairs, tokenizer, max_seq_len, target)


def features_per_field(
    examples: Examples,
    fields: Sequence[str],
    tokenizer: Tokenizer,
    max_seq_len: int,
    target: Callable[[Example], Mapping[str, Any]],
) -> FeaturesAndCounts:
    """Return features with a sequence [CLS] text [SEP] for each given field, and counts as in `text_features`."""
    pairs = [[(example[field], None) for field in fields] for example in examples]
    return _features_of_pair_groups(examples, pairs, tokenizer, max_seq_len, target)


def _features_of_pair_groups(
    examples: Examples,
    pairs: Sequence[Sequence[Pair]],
    tokenizer: Tokenizer,
    max_seq_len: int,
    target: Callable[[Example], Mapping[str, Any]],
) -> FeaturesAndCounts:
    """Return the features of each example, with a sequence for each of the example's pairs of texts."""
    laid_out, counts = _encode_pairs(list(itertools.chain.from_iterable(pairs)), tokenizer, max_seq_len)
    sequences = iter(laid_out)
    features = []
    for example_index, (example, group) in enumerate(zip(examples, pairs, strict=True)):
        ids, starts = zip(*itertools.islice(sequences, len(group)), strict=True)
        features.append(Features(list(ids), list(starts), example_index, target(example)))
    return FeaturesAndCounts(features, counts)


def make_label_target(key: str, dtype: type[np.generic]) -> Callable[[Example], dict[str, Any]]:
    """Return a function that returns {key: label} of an example, or {} for an example without a label."""
    return lambda example: {key: dtype(example["label"])} if "label" in example else {}


class TruncatedLengths(NamedTuple):
    """The numbers of tokens of two texts after truncation."""

    first: int
    second: int


def truncated_pair_lengths(first: int, second: int, limit: int) -> TruncatedLengths:
    """Return the lengths of two texts after truncation: the longer text loses its last token until both texts fit.

    If both texts are equally long, the second text loses a token, as in google-research/bert. For a single text, the
    argument `second` is 0.
    """
    return TruncatedLengths(
        min(first, max(limit - second, limit - limit // 2)), min(second, max(limit - first, limit // 2))
    )


class _SequencesAndCounts(NamedTuple):
    """The token sequences of pairs of texts, and the counts that `text_features` describes."""

    sequences: list[TokenSequence]
    counts: Counts


def _encode_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer, max_seq_len: int) -> _SequencesAndCounts:
    """Return the token sequence of each pair of texts, and the counts that `text_features` describes."""
    if max_seq_len < tokenizer.separators + 4:
        raise UserError(f"max_seq_len={max_seq_len} is too short for two texts; set at least 16")
    ids = encode_distinct((text for pair in pairs for text in pair if text is not None), tokenizer.encode_inputs)
    spelling = {text for text, tokens in ids.items() if tokenizer.spells_special_token(tokens)}
    sequences, truncated = [], 0
    for text, text_pair in pairs:
        first, second = ids[text], [] if text_pair is None else ids[text_pair]
        between = [] if text_pair is None else [tokenizer.sep_id] * tokenizer.separators
        lengths = truncated_pair_lengths(len(first), len(second), max_seq_len - 2 - len(between))
        truncated += lengths != (len(first), len(second))
        head = [tokenizer.cls_id, *first[: lengths[0]], *between]
        tail = [*second[: lengths[1]], tokenizer.sep_id]
        has_types = bool(between) and tokenizer.second_type
        type_1_start = len(head) if has_types else len(head) + len(tail)
        sequences.append(TokenSequence(np.array(head + tail, np.int32), type_1_start))
    spelled = sum(not spelling.isdisjoint(pair) for pair in pairs) if spelling else 0
    unknown = {text for text, tokens in ids.items() if tokenizer.is_mostly_unknown(tokens)}
    num_unknown = sum(not unknown.isdisjoint(pair) for pair in pairs) if unknown else 0
    counts = {"truncated_texts": truncated, SPELLED: spelled} | ({UNKNOWN: num_unknown} if num_unknown else {})
    return _SequencesAndCounts(sequences, counts)


def make_class_predictor(
    output: str,
) -> Callable[[Examples, Sequence[Features], Sequence[Outputs], TaskConfig, Threshold], Predictions]:
    """Return a function that predicts the class with the highest logit of the head's output `output`.

    The `Predictions` of the returned function have the classes, int `[n]`, as values, and the probabilities, float `[n,
    classes]`, as details.
    """

    def predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
        logits = stack_in_example_order(features, [output_of_input[output] for output_of_input in outputs])
        return Predictions(logits.argmax(1), softmax(logits))

    return predict


def stack_in_example_order(features: Sequence[Features], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the values, one per feature, as an array in the order of the examples; an example has only one feature."""
    return np.stack(values)[np.argsort([feature.example for feature in features])]


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits over the last axis."""
    likely = np.exp(logits - logits.max(-1, keepdims=True))
    return likely / likely.sum(-1, keepdims=True)


def round_for_json(probabilities: np.ndarray | Sequence[float]) -> list[float]:
    """Return probabilities as a list of numbers with 6 decimals, for JSON."""
    return [round(float(probability), 6) for probability in probabilities]
