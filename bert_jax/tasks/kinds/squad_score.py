"""Exact match and F1 of SQuAD, and the best threshold for "no answer".

The rule for both scores is from the official evaluation script of SQuAD, version 2.0 (Rajpurkar et al., 2018). The rule
of SQuAD 1.1 (`SQUAD1` in tasks/benchmark_scores.py) gives other scores only if an answer or a prediction is empty after
normalization, or has a character of a script without spaces. Such texts are compared by the rule of MLQA for Chinese.
"""

import collections
import functools
import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.languages import UNSPACED
from bert_jax.tasks.kinds.answer_search import AnswerCandidates
from bert_jax.tasks.task import Example

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer(text: str) -> str:
    """Return a text in lower case and with single spaces, without ASCII punctuation and English articles."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


@functools.lru_cache(maxsize=1 << 16)
def normalize_answer_of_any_script(text: str) -> str:
    """Return `normalize_answer(text)`; in a script without spaces, each character becomes a word.

    A text with such a character is normalized by the rule of MLQA for Chinese (Lewis et al., 2020), which removes all
    punctuation of Unicode, and no articles. MLQA splits only Chinese characters; this function splits all characters of
    `UNSPACED`.
    """
    if text.isascii() or not UNSPACED_CHARACTER.search(text):
        return normalize_answer(text)
    characters = (c for c in text.lower().translate(NO_PUNCTUATION) if not unicodedata.category(c).startswith("P"))
    return " ".join(UNSPACED_CHARACTER.sub(r" \g<0> ", "".join(characters)).split())


Normalize = Callable[[str], str]


def exact_match(answer: str, prediction: str, normalize: Normalize = normalize_answer) -> float:
    """Return 1.0 if both texts are equal after normalization, otherwise 0.0."""
    return float(normalize(answer) == normalize(prediction))


def token_f1(answer: str, prediction: str, normalize: Normalize = normalize_answer) -> float:
    """Return the F1 over the normalized words of two texts; 1.0 for two empty texts."""
    gold, predicted = normalize(answer).split(), normalize(prediction).split()
    if not gold or not predicted:
        return float(gold == predicted)
    common = (collections.Counter(gold) & collections.Counter(predicted)).total()
    return 2 * common / (len(gold) + len(predicted))


class QuestionScores(NamedTuple):
    """Scores of questions, float64 `[questions]`, from 0 to 1."""

    exact: np.ndarray
    f1: np.ndarray


def question_scores(examples: Sequence[Example], predictions: Sequence[str]) -> QuestionScores:
    """Return the best score of each prediction over the answers of its question.

    For a question that has no answer, the prediction "" scores 1.
    """
    scores, normalize = np.zeros((2, len(examples))), normalize_answer_of_any_script
    for question_index, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        golds = {answer["text"] for answer in example["answers"] if normalize(answer["text"])} or {""}
        scores[0, question_index] = max(exact_match(gold, prediction, normalize) for gold in golds)
        scores[1, question_index] = max(token_f1(gold, prediction, normalize) for gold in golds)
    return QuestionScores(*scores)


def squad_scores(examples: Sequence[Example], predictions: Mapping[str, str]) -> dict[str, float]:
    """Return the scores `exact` and `f1` in percent, as the official script of SQuAD prints them for English.

    If some questions have no answer, also return the scores `NoAns_exact` and `NoAns_f1` for these questions, and the
    scores `HasAns_exact` and `HasAns_f1` for any questions that have an answer. A question without a prediction scores
    0; if there are such questions, `missing` is their number.

    Args:
        examples: questions with "answers".
        predictions: predicted text of each question by the id of the question; "" for no answer.
    """
    given = np.array([example["id"] in predictions for example in examples])
    answerable = np.array([bool(example["answers"]) for example in examples])
    scores = question_scores(examples, [predictions.get(example["id"], "") for example in examples])
    groups = {"": np.ones_like(given)}
    if not answerable.all():
        groups |= {"HasAns_": answerable, "NoAns_": ~answerable}
    result = {
        prefix + name: 100.0 * float((values * given)[group].mean())
        for prefix, group in groups.items()
        if group.any()
        for name, values in scores._asdict().items()
    }
    return result if given.all() else result | {"missing": float((~given).sum())}


class ScoreAtThreshold(NamedTuple):
    """The best mean score over all questions, in percent, and the threshold for "no answer" that reaches it."""

    score: float
    threshold: float


def best_no_answer_threshold(margins: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> ScoreAtThreshold:
    """Return the lowest threshold for "no answer" with the best mean score over all questions, and this score.

    A question gets an answer if its margin is at most the threshold. The threshold is midway between the highest margin
    of an answered question and the lowest margin of an unanswered question, so that rounding in another batch changes
    no answer. The official script returns the highest margin of an answered question.

    Args:
        margins: float `[questions]`, the score of "no answer" minus the score of the best answer; infinite for a
            question without a possible answer.
        answered: score of each question if its best answer is given.
        unanswered: score of each question if "" is given.
    """
    order = np.argsort(margins, kind="stable")
    highest = margins[np.isfinite(margins)].max(initial=0.0)
    margins = np.minimum(margins[order], highest + 1.0)  # a threshold is finite
    totals = unanswered.sum() + np.append(0.0, np.cumsum((answered - unanswered)[order]))
    # No threshold separates equal margins, so only the total after the last of them is possible.
    reached = np.append(True, np.append(margins[1:] != margins[:-1], True))
    best = int(np.where(reached, totals, -np.inf).argmax())
    bounds = np.concatenate([margins[:1] - 1.0, margins, margins[-1:] + 1.0])
    threshold = bounds[best] / 2 + bounds[best + 1] / 2
    return ScoreAtThreshold(100.0 * float(totals[best]) / len(margins), float(threshold))


def tune_no_answer_thresholds(
    examples: Sequence[Example], results: Sequence[AnswerCandidates]
) -> dict[str, ScoreAtThreshold]:
    """Return the thresholds for "no answer" with the best exact match and the best F1.

    The scores equal the scores of evaluate-v2.0.py. The thresholds differ from the thresholds of this script, as
    `best_no_answer_threshold` explains.
    """
    margins = np.array([result.null_margin for result in results])
    answered = question_scores(examples, [result.text(None) for result in results])._asdict()
    unanswered = question_scores(examples, [""] * len(examples))._asdict()
    return {name: best_no_answer_threshold(margins, answered[name], unanswered[name]) for name in answered}
