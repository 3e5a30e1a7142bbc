"""Sentences of labelled words -> rows, and what a model says of tokens back to words."""

from collections.abc import Sequence

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError
from bert_jax.tasks.encoding import encode_distinct
from bert_jax.tasks.row import Example, Row

OVERLAP = 4  # two windows of one sentence share at most one token in so many


def tagging_rows(
    examples: Sequence[Example], tokenizer: Tokenizer, settings: TaskConfig
) -> tuple[list[Row], dict[str, int]]:
    """Rows of words split into pieces; a word is predicted, and its label counted, at its first piece (BERT, 5.3).

    A sentence longer than a row is split at words into windows that overlap, and each word is predicted in one of
    them: no word loses its label. Of a word longer than a row the first pieces are kept.

    Raises:
        UserError: not a label for each word, or `max_seq_len` holds no word.
    """
    room = settings.max_seq_len - 2
    if room < 1:
        raise UserError(f"config.task.max_seq_len={settings.max_seq_len} holds no word; give at least 16")
    ids = encode_distinct((word for example in examples for word in example["tokens"]), tokenizer.encode_words)
    made: list[Row] = []
    counts = {"split_sentences": 0, "truncated_words": 0}
    for number, example in enumerate(examples):
        labels = example.get("labels")
        if labels is not None and len(labels) != len(example["tokens"]):
            raise UserError(
                f"sentence '{example['id']}' has {len(example['tokens'])} words and {len(labels)} labels;"
                " give a label for each word"
            )
        pieces = [ids[word] for word in example["tokens"]]
        counts["truncated_words"] += sum(len(word) > room for word in pieces)
        pieces = [word[:room] for word in pieces]
        windows = word_windows([len(word) for word in pieces], room)
        counts["split_sentences"] += len(windows) > 1
        for window, predicted in windows:
            input_ids, words = [tokenizer.cls_id], [-1]
            for word in window:
                input_ids += pieces[word]
                words += [word if word in predicted else -1] + [-1] * (len(pieces[word]) - 1)
            places = np.array([*words, -1], np.int32)
            targets = {}
            if labels is not None:
                targets["labels"] = np.append(np.asarray(labels, np.int32), np.int32(-1))[places]
            input_ids.append(tokenizer.sep_id)
            made.append(Row(np.array(input_ids, np.int32), len(input_ids), number, targets, words=places))
    return made, counts


def word_windows(sizes: Sequence[int], room: int) -> list[tuple[range, range]]:
    """Windows of a sentence: the words in each, and those of them that it predicts.

    Each window takes as many words as fit. The next begins so that they share up to `room // OVERLAP` tokens; of the
    words shared, each is predicted where more of the sentence surrounds it.

    Args:
        sizes: tokens of each word, none above `room`.
        room: tokens of a window.
    """
    totals = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    windows: list[tuple[range, range]] = []
    start = predicted = 0
    while True:
        end = int(np.searchsorted(totals, totals[start] + room, side="right")) - 1
        if end == len(sizes):
            return [*windows, (range(start, end), range(predicted, end))]
        # The word after the window must fit into the next one, whatever is shared.
        shared = min(room // OVERLAP, room - sizes[end])
        following = int(np.searchsorted(totals, totals[end] - shared))
        middle = (following + end) // 2
        windows.append((range(start, end), range(predicted, middle)))
        start, predicted = following, middle


def word_labels(rows: Sequence[Row], token_labels: Sequence[np.ndarray], count: int) -> list[list[int]]:
    """The label of each word of each example.

    Args:
        rows: those of all examples, in any order.
        token_labels: for each row int `[>= n]`, the label that the model gives each token.
        count: examples.
    """
    found: list[dict[int, int]] = [{} for _ in range(count)]
    for row, labels in zip(rows, token_labels, strict=True):
        assert row.words is not None
        places = np.flatnonzero(row.words >= 0)
        found[row.example].update(zip(row.words[places].tolist(), labels[places].tolist(), strict=True))
    return [[words[word] for word in range(len(words))] for words in found]
