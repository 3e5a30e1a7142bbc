"""Token classification: a label for each word of a sentence, such as named entities."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import SPELLED, Features, FeaturesAndCounts, encode_distinct
from bert_jax.tasks.kinds import records
from bert_jax.tasks.kinds.kind import Examples, Loss, Outputs, Predictions, TaskKind
from bert_jax.tasks.kinds.texts import round_for_json, softmax
from bert_jax.tasks.task import SUFFIXES_OF_TOKENS, Example, Record, Task
from bert_jax.tokenizer import Tokenizer

OUTPUT = "token_logits"
OVERLAP = 4  # two windows of a sentence share at most a quarter of their tokens
SYNONYMS_OF_TAGS = {"L": "E", "U": "S"}  # prefix of BILOU, which spaCy writes -> prefix of IOBES
ENTITY_TAGS = {"B-", "I-", "E-", "S-", "L-", "U-"}  # prefixes of labels in IOB, IOBES and BILOU
IOB1 = "I- labels that begin an entity are read as B- (IOB1)"


def _make_example(record: Record, task: Task, tally: Counter[str]) -> dict[str, Any]:
    tokens = records.words_field(record, "tokens")
    if not tokens and not task.published:
        raise UserError(f"{record.where}: a sentence without tokens; leave it out")
    tally[records.EMPTY] += not tokens
    if record.fields.get("labels") is None:
        text = record.fields.get("text")  # `predict` has split it into words
        return {"tokens": tokens} | ({"text": text} if text else {})
    published = records.label_names_field(record, "labels")
    if len(published) != len(tokens):
        raise UserError(f"{record.where}: {len(tokens)} tokens but {len(published)} labels; give each token its own")
    labels = iob1_to_iob2(published)
    # The labels of a scheme without B- (IO) stay as they are.
    labels = [new if new in task.labels else old for old, new in zip(published, labels, strict=True)]
    tally[IOB1] += sum(old != new for old, new in zip(published, labels, strict=True))
    return {"tokens": tokens, "labels": [records.class_index(record, task, label) for label in labels]}


def iob1_to_iob2(labels: Sequence[str]) -> list[str]:
    """Return the labels of a sentence in IOB2, in which each entity begins with B-.

    The function converts IOB1 (Ramshaw and Marcus, 1995) and does not change valid IOB2. As in conlleval, a label I-
    begins an entity if the previous label has another type or is O.
    """
    fixed = []
    before = "O"
    for label in labels:
        starts = label.startswith("I-") and before[2:] != label[2:]
        fixed.append("B-" + label[2:] if starts else label)
        before = label
    return fixed


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return the features of sentences; the first piece of a word carries the label and the prediction of the word.

    Section 5.3 of the BERT paper describes the use of first pieces. A sentence that is too long is split between words
    into overlapping windows. Each word is predicted in exactly one window, so no word loses its label. If a word is too
    long for a window, only its first pieces are kept.

    The targets are `token_labels`, int32 `[n]`, and `token_weights`, float32 `[n]`; the weight is 1 for a token at
    which a word is predicted, else 0. The alignment has the array `words`, int32 `[n]`: for each token, the index of
    the word that is predicted at this token, or -1.

    Raises:
        UserError: the numbers of labels and of words differ, or `max_seq_len` is too small for a word.
    """
    capacity = settings.max_seq_len - 2
    if capacity < 1:
        raise UserError(f"config.task.max_seq_len={settings.max_seq_len} is too short for a word; set at least 16")
    ids = encode_distinct((word for example in examples for word in example["tokens"]), tokenizer.encode_words)
    features: list[Features] = []
    counts = {"split_sentences": 0, "truncated_words": 0, SPELLED: 0}
    for example_index, example in enumerate(examples):
        labels = example.get("labels")
        if labels is not None and len(labels) != len(example["tokens"]):
            raise UserError(
                f"sentence '{example['id']}' has {len(example['tokens'])} words and {len(labels)} labels;"
                " give each word a label"
            )
        pieces = [ids[word] for word in example["tokens"]]
        counts[SPELLED] += any(map(tokenizer.spells_special_token, pieces))
        counts["truncated_words"] += sum(len(word) > capacity for word in pieces)
        pieces = [word[:capacity] for word in pieces]
        windows = word_windows([len(word) for word in pieces], capacity)
        counts["split_sentences"] += len(windows) > 1
        for window, predicted in windows:
            input_ids, words = [tokenizer.cls_id], [-1]
            for word in window:
                input_ids += pieces[word]
                words += [word if word in predicted else -1] + [-1] * (len(pieces[word]) - 1)
            input_ids.append(tokenizer.sep_id)
            at = np.array([*words, -1], np.int32)
            targets = {}
            if labels is not None:
                token_labels = np.append(np.asarray(labels, np.int32), np.int32(0))[at]
                targets = {"token_labels": token_labels, "token_weights": (at >= 0).astype(np.float32)}
            features.append(
                Features(np.array(input_ids, np.int32), len(input_ids), example_index, targets, {"words": at})
            )
    return FeaturesAndCounts(features, counts)


class WordWindow(NamedTuple):
    """The words in a window of a sentence, and the words that are predicted in this window."""

    words: range
    predicted: range


def word_windows(sizes: Sequence[int], capacity: int) -> list[WordWindow]:
    """Return the windows of a sentence; a window has its words, and the words that are predicted in this window.

    Each window has as many words as fit. Two neighboring windows share up to `capacity // OVERLAP` tokens. A word that
    two windows share is predicted in the window that has more words around this word.

    Args:
        sizes: number of tokens of each word, at most `capacity`.
        capacity: number of tokens of a window.
    """
    totals = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    windows: list[WordWindow] = []
    start = predicted = 0
    while True:
        end = int(np.searchsorted(totals, totals[start] + capacity, side="right")) - 1
        if end == len(sizes):
            return [*windows, WordWindow(range(start, end), range(predicted, end))]
        # The next window must hold the shared words and also the word after this window.
        shared = min(capacity // OVERLAP, capacity - sizes[end])
        following = int(np.searchsorted(totals, totals[end] - shared))
        middle = (following + end) // 2
        windows.append(WordWindow(range(start, end), range(predicted, middle)))
        start, predicted = following, middle


def word_values_from_tokens(
    features: Sequence[Features], token_values: Sequence[np.ndarray], num_examples: int
) -> list[list[Any]]:
    """Return a value for each word of each example, taken from the token that predicts the word.

    Args:
        features: features of all examples, in any order.
        token_values: for each item of `features`, an array `[>= n]`, such as the predicted label of each token.
        num_examples: number of examples.
    """
    value_of_word: list[dict[int, Any]] = [{} for _ in range(num_examples)]
    for feature, values in zip(features, token_values, strict=True):
        words = feature.alignment["words"]
        at = np.flatnonzero(words >= 0)
        value_of_word[feature.example].update(zip(words[at].tolist(), values[at].tolist(), strict=True))
    return [[words[word] for word in range(len(words))] for words in value_of_word]


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    every = [softmax(item[OUTPUT]) for item in outputs]
    labels = word_values_from_tokens(features, [item.argmax(1) for item in every], len(examples))
    return Predictions(labels, word_values_from_tokens(features, [item.max(1) for item in every], len(examples)))


class EntitySpan(NamedTuple):
    """An entity: the index of its first word, the index of its last word + 1, and its type."""

    first_word: int
    end: int
    type: str


def entity_spans(labels: Sequence[str]) -> list[EntitySpan]:
    """Return the entities of a sentence with labels in IOB, IOBES or BILOU, in the order of their words.

    As in conlleval (CoNLL-2000), a tag other than O begins an entity in three cases: the tag is B- or S-, the previous
    tag is O, E- or S-, or the previous tag has another type.
    """
    spans = list[EntitySpan]()
    begin, previous_tag, previous_type = 0, "O", ""
    for index, label in enumerate([*labels, "O"]):
        tag, entity_type = SYNONYMS_OF_TAGS.get(label[:1], label[:1]), label[2:]
        begins = tag != "O" and (tag in "BS" or previous_tag in "OES" or entity_type != previous_type)
        if previous_tag != "O" and (begins or tag == "O"):
            spans.append(EntitySpan(begin, index, previous_type))
        begin = index if begins else begin
        previous_tag, previous_type = tag, entity_type
    return spans


def _to_json(labels: Sequence[str], example: Example, value: Sequence[int]) -> dict[str, Any]:
    """Return the words and their labels; for labels of entities also the entities.

    An entity has its type, the indices of its first word and of the word after it and, if `predict` split a text into
    the words, the characters of the entity in the text.
    """
    names, tokens = [labels[label] for label in value], list(example["tokens"])
    entities: dict[str, Any] = {}
    if _are_entity_labels(labels):
        places = _word_places(example["text"], tokens) if "text" in example else None
        entities["entities"] = [_entity_json(span, places, example) for span in entity_spans(names)]
    return {"tokens": tokens} | entities | {"labels": names}


def _entity_json(span: EntitySpan, places: Sequence[range] | None, example: Example) -> dict[str, Any]:
    """Return an entity as JSON values; `places` has the characters of each word, if the text is known."""
    entity: dict[str, Any] = {"type": span.type, "first_word": span.first_word, "end_word": span.end}
    if places is None:
        return entity
    start, end = places[span.first_word].start, places[span.end - 1].stop
    return entity | {"start": start, "end": end, "text": example["text"][start:end]}


def _word_places(text: str, words: Sequence[str]) -> list[range]:
    """Return the characters of each word in the text; the words occur in the text in this order."""
    places, end = list[range](), 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        places.append(range(start, end))
    return places


def _are_entity_labels(labels: Sequence[str]) -> bool:
    """Return whether labels mark entities, by prefixes such as B- and I-."""
    tags = {label[:2] for label in labels if label != "O"}
    return bool(tags & {"B-", "I-"}) and tags <= ENTITY_TAGS


class _DefaultMetrics(NamedTuple):
    """The default metrics of a custom task, and the name of the score that selects the best checkpoint."""

    metrics: tuple[str, ...]
    main_score: str


def _default_metrics(labels: Sequence[str]) -> _DefaultMetrics:
    if _are_entity_labels(labels):
        return _DefaultMetrics(("entities", "token_accuracy"), "entity_f1")
    return _DefaultMetrics(("token_accuracy",), "token_accuracy")


TOKEN_CLASSIFICATION = TaskKind(
    fields=("tokens", "labels"),
    label_fields=("labels",),
    numbered_columns={"tokens": "0", "labels": "-1"},
    suffixes={".tsv": "conll_tab", ".txt": "conll", **SUFFIXES_OF_TOKENS},
    make_example=_make_example,
    features=_features,
    head="token_classification",
    settings=("labels", "class_weights", "focal_gamma", "oversample", "soft_temperature"),
    recipe="token_classification",
    fits_file=lambda text, labels, separator: isinstance(text, list),
    pipeline_tag="token-classification",
    purpose="tagging texts like those it was trained on",
    classes=None,
    loss=Loss("cross_entropy", ((OUTPUT, "token_labels"),), weights="token_weights"),
    predict=_predict,
    to_json=_to_json,
    details=lambda labels, probabilities: {"probabilities": round_for_json(probabilities)},
    gold=lambda example: example["labels"],
    default_metrics=_default_metrics,
    label_names=lambda record, task: iob1_to_iob2(records.label_names_field(record, "labels")),
    label_indices=lambda example: example["labels"],
)
