"""Scores of predictions, by scikit-learn, scipy, seqeval and benchmarks' rules: a metric is a row of `METRICS`."""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.benchmark_scores import CMRC, JAQUAD, KORQUAD, Rule, benchmark_scores
from bert_jax.tasks.kinds.kind import Values
from bert_jax.tasks.kinds.squad_score import squad_scores
from bert_jax.tasks.kinds.token_classification import ENTITY_TAGS
from bert_jax.tasks.task import Example, Task

Scores = dict[str, float]
# Labeled examples, a prediction for each (`Predictions.values`), the names of the labels -> scores; higher is better.
Metric = Callable[[Sequence[Example], Values, Sequence[str]], Scores]

PACKAGES = {"sklearn": "scikit-learn", "scipy": "scipy", "seqeval": "seqeval"}
SYNONYMS = {"L-": "E-", "U-": "S-"}  # of BILOU, which spaCy writes, in IOBES


def score(task: Task, examples: Sequence[Example], predictions: Values) -> Scores:
    """Return the scores of all metrics of a task: fractions and correlations, but percentages for answers.

    Args:
        task: a row of the table, or a custom one.
        examples: labeled.
        predictions: one value per example, as `Kind.predict` returns them.

    Raises:
        UserError: no examples, unlabeled ones, an unknown metric, a metric that does not fit the labels, or a missing
            library.
        ValueError: a number of predictions other than that of examples.
    """
    if not examples:
        raise UserError(f"task '{task.name}': the set to evaluate on is empty; give examples")
    label = KINDS[task.kind].label
    for example in examples:
        if label not in example:
            raise UserError(f"task '{task.name}': example '{example['id']}' has no {label}, so it cannot be scored")
    if len(predictions) != len(examples):
        raise ValueError(f"{len(predictions)} predictions for {len(examples)} examples")
    scores: Scores = {}
    for name in task.metrics:
        if name not in METRICS:
            raise UserError(f"no metric '{name}'{did_you_mean(name, METRICS)}; there are {', '.join(METRICS)}")
        scores |= METRICS[name](examples, predictions, task.labels)
    return scores


def accuracy(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Fraction of correct labels."""
    metrics = _library("sklearn.metrics")
    return {"accuracy": float(metrics.accuracy_score(_labels(examples), np.asarray(predictions)))}


def binary_f1(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """F1 of the second of two labels, as in GLUE for MRPC and QQP; 0 if it is never predicted."""
    if len(labels) != 2:
        raise UserError(f"metric 'f1' needs two labels, not {len(labels)}; use macro_f1")
    metrics = _library("sklearn.metrics")
    return {"f1": float(metrics.f1_score(_labels(examples), np.asarray(predictions), zero_division=0))}


def macro_f1(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Mean of the F1 of all labels; 0 for a label that neither occurs nor is predicted."""
    metrics = _library("sklearn.metrics")
    every = np.arange(len(labels))
    found = metrics.f1_score(_labels(examples), np.asarray(predictions), labels=every, average="macro", zero_division=0)
    return {"macro_f1": float(found)}


def matthews(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Matthews correlation (CoLA); 0 if all labels or all predictions are the same."""
    gold, found = _labels(examples), np.asarray(predictions)
    if _constant(gold, found):
        return {"matthews": 0.0}
    return {"matthews": float(_library("sklearn.metrics").matthews_corrcoef(gold, found))}


def pearson(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Pearson correlation (STS-B); 0 where it is undefined: all labels or all predictions are the same."""
    return {"pearson": _correlation("pearsonr", examples, predictions)}


def spearman(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Spearman rank correlation; 0 where it is undefined."""
    return {"spearman": _correlation("spearmanr", examples, predictions)}


def entities(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Precision, recall and F1 of entities with the correct type, start and end, by the rule of conlleval."""
    odd = [name for name in labels if name != "O" and name[:2] not in ENTITY_TAGS]
    if odd:
        raise UserError(
            f"metric 'entities' reads IOB labels such as B-PER, I-PER and O, not '{odd[0]}'; use token_accuracy"
        )
    metrics = _library("seqeval.metrics")
    labels = [SYNONYMS.get(name[:2], name[:2]) + name[2:] for name in labels]
    golds = [[labels[number] for number in example["labels"]] for example in examples]
    found = [[labels[number] for number in sentence] for sentence in predictions]
    return {
        f"entity_{name}": float(getattr(metrics, f"{name}_score")(golds, found, zero_division=0))
        for name in ("precision", "recall", "f1")
    }


def token_accuracy(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Fraction of words with the correct label."""
    golds = np.concatenate([np.asarray(example["labels"], np.int64) for example in examples])
    found = np.concatenate([np.asarray(sentence, np.int64) for sentence in predictions])
    if not len(golds):
        raise UserError("the sentences to evaluate on have no words; give some")
    return {"token_accuracy": float(_library("sklearn.metrics").accuracy_score(golds, found))}


def squad(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Exact match and F1 in percent: see answers/squad_score.py."""
    return squad_scores(examples, _by_id(examples, predictions))


def answers(rule: Rule, examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Exact match and F1 in percent: see answers/benchmark_scores.py."""
    return benchmark_scores(rule, examples, _by_id(examples, predictions))


CORRELATIONS = ("pearson", "spearman")  # undefined where all labels are equal
METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": binary_f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "entities": entities,
    "token_accuracy": token_accuracy,
    "squad": squad,
    "korquad": functools.partial(answers, KORQUAD),
    "cmrc": functools.partial(answers, CMRC),
    "jaquad": functools.partial(answers, JAQUAD),
}


def _by_id(examples: Sequence[Example], predictions: Values) -> dict[str, str]:
    return {example["id"]: text for example, text in zip(examples, predictions, strict=True)}


def _labels(examples: Sequence[Example]) -> np.ndarray:
    return np.array([example["label"] for example in examples])


def _correlation(name: str, examples: Sequence[Example], predictions: Values) -> float:
    gold, found = _labels(examples).astype(np.float64), np.asarray(predictions, np.float64)
    if _constant(gold, found):
        return 0.0
    return float(getattr(_library("scipy.stats"), name)(gold, found).statistic)


def _constant(gold: np.ndarray, found: np.ndarray) -> bool:
    """Return whether one of the arrays has a single value: no correlation is defined, and the libraries warn."""
    return bool(np.ptp(gold) == 0 or np.ptp(found) == 0)


def _library(name: str) -> Any:
    package = PACKAGES[name.partition(".")[0]]
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this metric needs {package}: pip install {package}") from None
