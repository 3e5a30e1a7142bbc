"""Exact match and F1 of SQuAD, and the threshold below which a question is given an answer.

The rule is that of the official evaluation scripts, version 2.0 (Rajpurkar et al., 2016 and 2018); for questions that
all have answers it is the one of version 1.1.
"""

import collections
import functools
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tasks.row import Example
from bert_jax.tasks.span import Found

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@functools.lru_cache(maxsize=1 << 16)
def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact_match(answer: str, prediction: str) -> float:
    """1.0 where both normalise to the same."""
    return float(normalize(answer) == normalize(prediction))


def token_f1(answer: str, prediction: str) -> float:
    """Harmonic mean of precision and recall over normalised words; where one has none, whether the other has none."""
    gold, said = normalize(answer).split(), normalize(prediction).split()
    if not gold or not said:
        return float(gold == said)
    common = (collections.Counter(gold) & collections.Counter(said)).total()
    return 2 * common / (len(gold) + len(said))


class QuestionScores(NamedTuple):
    """float64 `[questions]`, each from 0 to 1."""

    exact: np.ndarray
    f1: np.ndarray


def question_scores(examples: Sequence[Example], predictions: Sequence[str]) -> QuestionScores:
    """Scores of each question: the highest over its answers, of which "" is the only one where it has none."""
    scores = np.zeros((2, len(examples)))
    for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        golds = {answer["text"] for answer in example["answers"] if normalize(answer["text"])} or {""}
        scores[0, number] = max(exact_match(gold, prediction) for gold in golds)
        scores[1, number] = max(token_f1(gold, prediction) for gold in golds)
    return QuestionScores(*scores)


def squad_scores(examples: Sequence[Example], predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact` and `f1` in percent, as the official script prints them.

    Where some questions have no answer also `HasAns_exact`, `HasAns_f1`, `NoAns_exact`, `NoAns_f1`, each where there
    are such questions. A question without a prediction scores 0, and `missing` says how many have none, if any.

    Args:
        examples: questions with "answers".
        predictions: id -> text, "" for no answer.
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


class Threshold(NamedTuple):
    """The best mean score over all questions, in percent, and the threshold for `Found.text` that gives it."""

    score: float
    threshold: float


def best_threshold(margins: np.ndarray, answered: np.ndarray, unanswered: np.ndarray) -> Threshold:
    """The threshold at which answering questions of margins up to it, and no other, scores best; the lowest of equals.

    Args:
        margins: float `[questions]`, `Found.null_margin`.
        answered: score of the best answer to each question.
        unanswered: score of "" as its answer.
    """
    order = np.argsort(margins, kind="stable")
    margins = margins[order]
    totals = unanswered.sum() + np.append(0.0, np.cumsum((answered - unanswered)[order]))
    # A threshold cannot tell equal margins apart: only what follows the last of them is reached.
    reached = np.append(True, np.append(margins[1:] != margins[:-1], True))
    best = int(np.where(reached, totals, -np.inf).argmax())
    threshold = margins[best - 1] if best else np.nextafter(margins[0], -np.inf)
    return Threshold(100.0 * float(totals[best]) / len(margins), float(threshold))


def tune_threshold(examples: Sequence[Example], found: Sequence[Found]) -> dict[str, Threshold]:
    """`exact` and `f1`: the best threshold on these questions for either score (evaluate-v2.0.py)."""
    margins = np.array([one.null_margin for one in found])
    answered = question_scores(examples, [one.text(None) for one in found])._asdict()
    unanswered = question_scores(examples, [""] * len(examples))._asdict()
    return {name: best_threshold(margins, answered[name], unanswered[name]) for name in answered}
