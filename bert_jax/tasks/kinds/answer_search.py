"""The best answers to questions, found with the start and end logits of windows."""

import itertools
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.tasks.features import Features
from bert_jax.tasks.task import Example


class Answer(NamedTuple):
    """An answer to a question, which is a piece of the context."""

    text: str  # context[start:end]
    start: int
    end: int
    score: float  # start logit of its first token plus end logit of its last token
    probability: float  # softmax over the scores of the returned answers, and of "no answer" if it is allowed


class AnswerCandidates(NamedTuple):
    """The best answers to a question."""

    answers: list[Answer]  # different texts, best first; may be empty
    null_score: float  # score of "no answer": the lowest sum of start and end logit at [CLS] among the windows
    null_probability: float  # probability of "no answer"; 0 if every question has an answer

    @property
    def null_margin(self) -> float:
        """The score of "no answer" minus the score of the best answer; infinite if no span can be an answer."""
        return self.null_score - self.answers[0].score if self.answers else np.inf

    def text(self, threshold: float | None) -> str:
        """Return the best answer; return "" if there is no answer, or if `null_margin` is above a given `threshold`."""
        if not self.answers or (threshold is not None and self.null_margin > threshold):
            return ""
        return self.answers[0].text


def find_answers(
    examples: Sequence[Example],
    features: Sequence[Features],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    settings: TaskConfig,
    may_have_no_answer: bool,
) -> list[AnswerCandidates]:
    """Return the `n_best` best answers to each question, found in all windows of the question's context.

    An answer begins and ends inside the context and has at most `max_answer_length` tokens. If several windows contain
    the first token of an answer, the window with the most context around this token is used. The script run_squad.py of
    google-research/bert has the same rules for the span and the window. The script searches only the `n_best` best
    starts and ends of a window; `find_answers` searches all spans. The text of an answer is a part of the context,
    without white space around it.

    Args:
        examples: questions with their contexts.
        features: windows of all examples, in any order.
        start_logits: for each window, a float array of at least the length of the window.
        end_logits: for each window, a float array of at least the length of the window.
        settings: settings of the task; the function reads `n_best` and `max_answer_length`.
        may_have_no_answer: True if a question may have no answer (SQuAD 2.0); "no answer" then also gets a probability.
    """
    windows: list[list[int]] = [[] for _ in examples]
    for window_index, window in enumerate(features):
        windows[window.example].append(window_index)
    answers_by_question = []
    for example, numbers in zip(examples, windows, strict=True):
        spans, offsets = [], []
        null_scores = []
        for window_index in numbers:
            start, end = (np.asarray(logits[window_index], np.float64) for logits in (start_logits, end_logits))
            scores, characters = _score_window_spans(features[window_index], start, end, settings.max_answer_length)
            spans.append(scores)
            offsets.append(characters)
            null_scores.append(start[0] + end[0])
        best = _best_distinct_spans(example["context"], np.concatenate(spans), np.concatenate(offsets), settings.n_best)
        null_score = float(min(null_scores))
        exponents = np.array([score for *_, score in best] + [null_score if may_have_no_answer else -np.inf])
        likely = np.exp(exponents - exponents.max()) if best or may_have_no_answer else np.zeros(1)
        *probabilities, null_probability = (likely / max(likely.sum(), 1.0)).tolist()
        answers = [Answer(*answer, probability) for answer, probability in zip(best, probabilities, strict=True)]
        answers_by_question.append(AnswerCandidates(answers, null_score, null_probability))
    return answers_by_question


class _WindowSpans(NamedTuple):
    """The scores of the spans of a window, and the offsets of the window's tokens in the context."""

    scores: np.ndarray
    offsets: np.ndarray


def _score_window_spans(window: Features, start: np.ndarray, end: np.ndarray, longest: int) -> _WindowSpans:
    """Return the scores of the spans of a window, and the offsets of the window's tokens in the context.

    The element scores[i, k] of a float64 array `[tokens, longest]` is the score of the span from token i of the context
    to token i + k. The score is -inf if the span cannot be an answer. The offsets are an int32 array `[tokens, 2]`.
    """
    offsets = window.alignment["context_offsets"]
    context = slice(int((offsets[:, 0] >= 0).argmax()), window.length - 1)
    starts = np.where(window.alignment["max_context"][context], start[context], -np.inf)
    ends = np.append(end[context], np.full(longest - 1, -np.inf))
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)
    return _WindowSpans(scores, offsets[context])


class _TextSpan(NamedTuple):
    """A span of the context, with the offsets of its characters and its score."""

    text: str
    start: int
    end: int
    score: float


def _best_distinct_spans(context: str, scores: np.ndarray, offsets: np.ndarray, n_best: int) -> list[_TextSpan]:
    """Return at most `n_best` of the best spans of a context, whose texts all differ."""
    looked_at = n_best
    while True:
        best = dict[str, _TextSpan]()
        for score, start, end in _best_character_spans(scores, offsets, looked_at):
            raw = context[start : _end_after_combining_marks(context, end)]
            text = raw.strip()
            start += len(raw) - len(raw.lstrip())
            if text and len(best) < n_best:
                best.setdefault(text, _TextSpan(text, start, start + len(text), score))
        if len(best) == n_best or looked_at >= scores.size:
            return list(best.values())
        looked_at *= 4


def _end_after_combining_marks(context: str, end: int) -> int:
    """Return the index `end`, moved past combining marks, such as accents, that the tokenizer may have dropped."""
    while end < len(context) and unicodedata.category(context[end]).startswith("M"):
        end += 1
    return end


class _CharacterSpan(NamedTuple):
    """The score of a span, and the offsets of its characters."""

    score: float
    start: int
    end: int


def _best_character_spans(scores: np.ndarray, offsets: np.ndarray, count: int) -> Iterator[_CharacterSpan]:
    """Yield the `count` best spans, best first; spans with equal scores keep the order of the windows."""
    flat, best_of_start = scores.ravel(), scores.max(1)
    # The best spans of the `count` best starts are `count` spans, so no span with a lower score is needed.
    least = np.partition(best_of_start, -count)[-count] if count < len(scores) else -np.inf
    chosen = np.flatnonzero((flat >= least) & (flat > -np.inf))
    chosen = chosen[np.argsort(-flat[chosen], kind="stable")][:count]
    first, further = np.divmod(chosen, scores.shape[1])
    characters = offsets[first, 0], offsets[first + further, 1]
    columns = (flat[chosen].tolist(), *(side.tolist() for side in characters))
    return itertools.starmap(_CharacterSpan, zip(*columns, strict=True))
