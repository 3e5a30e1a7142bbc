"""Features of question answering: windows of a context, and the tokens at which the answer begins and ends."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import IN_NO_WINDOW, SPELLED, Features, FeaturesAndCounts, encode_distinct
from bert_jax.tasks.task import Example
from bert_jax.tokenizer import Tokenizer

COUNTS = (
    "split_contexts",
    "truncated_questions",
    "questions_with_answers_above_max_answer_length",
    IN_NO_WINDOW,
    "contexts_with_unknown_words_of_more_than_100_characters",
    "questions_left_out_for_their_answers",
    SPELLED,
)
MAX_WORD = 100  # characters of the longest word that WordPiece splits, as in transformers; 200 in google-research/bert


def window_features(examples: Sequence[Example], tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return sequences [CLS] question [SEP] window [SEP], as run_squad.py of google-research/bert makes them.

    The targets `starts` and `ends`, int32, are the first and the last token of the first answer. The targets are 0 if
    there is no answer, or if the window does not contain the whole answer. In a set that is only scored, answers have
    no field `start`, and windows have no targets. The alignment has two arrays. The array `context_offsets`, int32 `[n,
    2]`, has the first and the last character + 1 of each token in the context, or (-1, -1) for a token outside of the
    context. The array `max_context`, bool `[n]`, is True if no other window shows more context around the token. The
    constant `COUNTS` has the names of the counts. The count `split_contexts` is the number of questions whose context
    has several windows. A question is counted as above `max_answer_length` if all its answers have more tokens than
    this setting allows. The count `IN_NO_WINDOW` is the number of questions whose answer crosses the borders of
    windows, so that no window contains the whole answer. WordPiece does not split words of more than 100 characters; a
    context that contains such words is counted once.

    Raises:
        UserError: a question leaves no space for its context, the context of a question with `answers` has no token, or
            an answer is not at its `start` in the context or has no token. The message names the id of the question.
    """
    questions = encode_distinct((example["question"] for example in examples), tokenizer.encode_inputs)
    encoded_contexts = encode_distinct(
        (example["context"] for example in examples), tokenizer.encode_inputs_with_offsets
    )
    contexts = {
        text: (np.array(tokens.ids, np.int32), np.array(tokens.offsets, np.int32).reshape(-1, 2))
        for text, tokens in encoded_contexts.items()
    }
    answers = encode_distinct(
        (answer["text"] for example in examples for answer in example.get("answers", ())), tokenizer.encode_inputs
    )
    trained = all("start" in answer for example in examples for answer in example.get("answers", ()))
    features: list[Features] = []
    counts = dict.fromkeys(COUNTS, 0)
    counts["contexts_with_unknown_words_of_more_than_100_characters"] = sum(
        bool((np.diff(offsets[ids == tokenizer.unk_id], axis=1) > MAX_WORD).any()) for ids, offsets in contexts.values()
    )
    spelling = {text for text, (ids, _) in contexts.items() if tokenizer.spells_special_token(ids.tolist())}
    for example_index, example in enumerate(examples):
        ids, offsets = contexts[example["context"]]
        if not len(ids) and "answers" in example:
            raise UserError(
                f"question '{example['id']}' has a context without words; add a context, or leave the question out"
            )
        question = questions[example["question"]]
        counts[SPELLED] += tokenizer.spells_special_token(question) or example["context"] in spelling
        lengths = [len(answers[answer["text"]]) for answer in example.get("answers", ())]
        counts["questions_with_answers_above_max_answer_length"] += min(lengths, default=0) > settings.max_answer_length
        counts["truncated_questions"] += len(question) > settings.max_query_length
        question = question[: settings.max_query_length]
        head = np.array([tokenizer.cls_id, *question, *[tokenizer.sep_id] * tokenizer.separators], np.int32)
        capacity = settings.max_seq_len - len(head) - 1
        if capacity < 1:
            raise UserError(
                f"question '{example['id']}' has {len(question)} tokens, which leaves no room for its context in"
                f" config.task.max_seq_len={settings.max_seq_len}; raise it, or lower config.task.max_query_length"
            )
        try:
            answer = _answer_tokens(example, offsets) if trained else None
        except UserError:
            if not settings.skip_unusable_answers:
                raise
            counts["questions_left_out_for_their_answers"] += 1
            continue
        bounds = window_bounds(len(ids), capacity, settings.doc_stride)
        counts["split_contexts"] += len(bounds) > 1
        if answer is not None and answer.first >= 0:
            inside = any(start <= answer.first and answer.last < end for start, end in bounds)
            counts[IN_NO_WINDOW] += not inside
        for (start, end), most in zip(bounds, max_context_masks(bounds), strict=True):
            size = len(head) + end - start + 1
            context_offsets = np.full((size, 2), -1, np.int32)
            context_offsets[len(head) : -1] = offsets[start:end]
            max_context = np.zeros(size, bool)
            max_context[len(head) : -1] = most
            ids_of_window = np.concatenate([head, ids[start:end], np.array([tokenizer.sep_id], np.int32)])
            targets = {} if answer is None else _answer_targets_in_window(answer, start, end, len(head))
            alignment = {"context_offsets": context_offsets, "max_context": max_context}
            type_1_start = len(head) if tokenizer.second_type else size
            features.append(Features(ids_of_window, type_1_start, example_index, targets, alignment))
    return FeaturesAndCounts(features, counts)


class WindowBounds(NamedTuple):
    """The bounds of a window: the index of its first token, and the index of its last token + 1."""

    start: int
    end: int


def window_bounds(num_tokens: int, capacity: int, step: int) -> list[WindowBounds]:
    """Return the bounds of windows of `capacity` tokens over a text; a window begins every `step` tokens.

    Windows do not overlap if `step` is at least `capacity`. Together, the windows always contain every token.
    """
    step = min(capacity, step)
    count = 1 + max(0, -(-(num_tokens - capacity) // step))
    return [WindowBounds(start, min(start + capacity, num_tokens)) for start in range(0, count * step, step)]


def max_context_masks(bounds: Sequence[WindowBounds]) -> list[np.ndarray]:
    """Return a mask for each window, bool `[tokens]`: True if no other window shows more context around the token.

    The amount of context around a token is the number of tokens before it or after it in the window, whichever is
    smaller, plus a hundredth of the length of the window. If two windows show the same amount of context, the first
    window is used, as in google-research/bert.
    """
    if len(bounds) == 1:
        return [np.ones(bounds[0][1] - bounds[0][0], bool)]
    tokens = np.arange(bounds[-1][1])
    starts, ends = np.array(bounds)[:, :, None].swapaxes(0, 1)
    around = np.minimum(tokens - starts, ends - 1 - tokens)
    context = np.where(around >= 0, around + 0.01 * (ends - starts), -1.0)
    best = context.argmax(0)
    return [best[start:end] == window_index for window_index, (start, end) in enumerate(bounds)]


class _AnswerTokens(NamedTuple):
    """The indices of the first and the last token of an answer; both are -1 if there is no answer."""

    first: int
    last: int


def _answer_tokens(example: Example, offsets: np.ndarray) -> _AnswerTokens | None:
    """Return the first and last token of an example's first answer, (-1, -1) for no answer, or None without a label."""
    if "answers" not in example:
        return None
    if not example["answers"]:
        return _AnswerTokens(-1, -1)
    text, start = example["answers"][0]["text"], example["answers"][0]["start"]
    end = start + len(text)
    if not text or start < 0 or example["context"][start:end] != text:
        raise UserError(
            f"question '{example['id']}': the answer '{text}' is not in the context at character {start};"
            " fix the start of the answer, which counts characters from 0"
        )
    first = int(np.searchsorted(offsets[:, 1], start, side="right"))  # the first token that ends after the start
    last = int(np.searchsorted(offsets[:, 0], end, side="left")) - 1  # the last token that starts before the end
    if first > last:
        raise UserError(
            f"question '{example['id']}': the answer '{text}' has no token of the vocabulary; leave the question out"
        )
    return _AnswerTokens(first, last)


def _answer_targets_in_window(answer: tuple[int, int], start: int, end: int, shift: int) -> dict[str, np.int32]:
    """Return the first and last token of the answer in a window; both are 0 unless the whole answer is inside."""
    first, last = answer
    inside = start <= first and last < end
    starts, ends = (first - start + shift, last - start + shift) if inside else (0, 0)
    return {"starts": np.int32(starts), "ends": np.int32(ends)}
