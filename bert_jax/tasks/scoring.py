"""Scores of predictions by scikit-learn, scipy and the rules of benchmarks; a metric is a row of `METRICS`."""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import UserError, did_you_mean, needs_packages
from bert_jax.tasks.benchmark_scores import CMRC, JAQUAD, KORQUAD, SQUAD1, BenchmarkRule, benchmark_scores
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Values
from bert_jax.tasks.kinds.multilabel_score import multilabel_scores
from bert_jax.tasks.kinds.squad_score import squad_scores
from bert_jax.tasks.kinds.token_classification import ENTITY_TAGS, entity_spans
from bert_jax.tasks.task import Example, Task

Scores = dict[str, float]
# (labeled examples, predicted values of the examples, names of the labels) -> scores. Higher scores are better.
Metric = Callable[[Sequence[Example], Values, Sequence[str]], Scores]

PACKAGES = {"sklearn": "scikit-learn", "scipy": "scipy"}


def score_predictions(task: Task, examples: Sequence[Example], predictions: Values) -> Scores:
    """Return a dict from name to score for all metrics of a task: fractions, correlations, or percentages for answers.

    Args:
        task: a row of the table, or a custom task.
        examples: labeled examples.
        predictions: a value for each example, from `TaskKind.predict`.

    Raises:
        UserError: there are no examples, an example has no label, a metric is unknown or does not fit the labels, or a
            library that computes a metric is missing.
        ValueError: the numbers of predictions and of examples differ.
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
    """Return the fraction of examples whose predicted label is correct."""
    metrics = _import_library("sklearn.metrics")
    return {"accuracy": float(metrics.accuracy_score(_gold_labels(examples), np.asarray(predictions)))}


def binary_f1(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the F1 of the second of two labels, as GLUE does for MRPC and QQP; 0 if this label is never predicted."""
    if len(labels) != 2:
        raise UserError(f"metric 'f1' needs two labels, not {len(labels)}; use macro_f1")
    metrics = _import_library("sklearn.metrics")
    return {"f1": float(metrics.f1_score(_gold_labels(examples), np.asarray(predictions), zero_division=0))}


def macro_f1(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the mean of the F1 of all labels; a label that neither occurs nor is predicted has the F1 0."""
    metrics = _import_library("sklearn.metrics")
    every = np.arange(len(labels))
    score = metrics.f1_score(
        _gold_labels(examples), np.asarray(predictions), labels=every, average="macro", zero_division=0
    )
    return {"macro_f1": float(score)}


def multilabel_f1(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return micro, macro and sample F1 of sets of labels, and the fraction of examples whose set is right."""
    return multilabel_scores(np.stack([example["label"] for example in examples]), np.stack(list(predictions)))


def matthews(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the Matthews correlation, as for CoLA; 0 if all labels or all predictions are the same."""
    gold, predicted = _gold_labels(examples), np.asarray(predictions)
    if _is_constant(gold, predicted):
        return {"matthews": 0.0}
    return {"matthews": float(_import_library("sklearn.metrics").matthews_corrcoef(gold, predicted))}


def pearson(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the Pearson correlation, as for STS-B; 0 if all labels or all predictions are equal."""
    return {"pearson": _correlation_or_zero("pearsonr", examples, predictions)}


def spearman(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the Spearman rank correlation; 0 if all labels or all predictions are equal."""
    return {"spearman": _correlation_or_zero("spearmanr", examples, predictions)}


def entity_scores(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Precision, recall and F1 of entities, by the rule of conlleval: type, start and end must be correct."""
    odd = [name for name in labels if name != "O" and name[:2] not in ENTITY_TAGS]
    if odd:
        raise UserError(
            f"metric 'entities' reads IOB labels such as B-PER, I-PER and O, not '{odd[0]}'; use token_accuracy"
        )
    num_gold = num_predicted = num_correct = 0
    for example, sentence in zip(examples, predictions, strict=True):
        gold = {*entity_spans([labels[label_index] for label_index in example["labels"]])}
        predicted = {*entity_spans([labels[label_index] for label_index in sentence])}
        num_gold += len(gold)
        num_predicted += len(predicted)
        num_correct += len(gold & predicted)
    return {
        "entity_precision": num_correct / num_predicted if num_predicted else 0.0,
        "entity_recall": num_correct / num_gold if num_gold else 0.0,
        "entity_f1": 2 * num_correct / (num_gold + num_predicted) if num_gold + num_predicted else 0.0,
    }


def token_accuracy(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the fraction of words whose predicted label is correct."""
    golds = np.concatenate([np.asarray(example["labels"], np.int64) for example in examples])
    predicted = np.concatenate([np.asarray(sentence, np.int64) for sentence in predictions])
    if not len(golds):
        raise UserError("the sentences to evaluate on have no words; give some")
    return {"token_accuracy": float(_import_library("sklearn.metrics").accuracy_score(golds, predicted))}


def squad2_scores(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return exact match and F1 in percent by the rule of SQuAD 2.0 (kinds/squad_score.py)."""
    return squad_scores(examples, _predictions_by_id(examples, predictions))


def answer_scores(
    rule: BenchmarkRule, examples: Sequence[Example], predictions: Values, labels: Sequence[str]
) -> Scores:
    """Return exact match and F1 in percent by the rule of a benchmark (benchmark_scores.py)."""
    return benchmark_scores(rule, examples, _predictions_by_id(examples, predictions))


def positive_rank(examples: Sequence[Example], predictions: Values, labels: Sequence[str]) -> Scores:
    """Return the mean reciprocal rank of the right document, and the fraction of examples where this document is first.

    The first score of an example is the score of the right document. Of equal scores, this score ranks last.
    """
    ranks = [1 + sum(score >= scores[0] for score in scores[1:]) for scores in predictions]
    return {"mrr": float(np.mean([1 / rank for rank in ranks])), "accuracy": float(np.mean([r == 1 for r in ranks]))}


CORRELATIONS = ("pearson", "spearman")  # metrics that are undefined if all labels are equal
METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": binary_f1,
    "macro_f1": macro_f1,
    "multilabel": multilabel_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "positive_rank": positive_rank,
    "entities": entity_scores,
    "token_accuracy": token_accuracy,
    "squad": squad2_scores,
    "squad1": functools.partial(answer_scores, SQUAD1),
    "korquad": functools.partial(answer_scores, KORQUAD),
    "cmrc": functools.partial(answer_scores, CMRC),
    "jaquad": functools.partial(answer_scores, JAQUAD),
}


def _predictions_by_id(examples: Sequence[Example], predictions: Values) -> dict[str, str]:
    return {example["id"]: text for example, text in zip(examples, predictions, strict=True)}


def _gold_labels(examples: Sequence[Example]) -> np.ndarray:
    return np.array([example["label"] for example in examples])


def _correlation_or_zero(name: str, examples: Sequence[Example], predictions: Values) -> float:
    """Return the correlation of labels and predictions by the function `name` of scipy.stats; 0 if it is undefined."""
    gold, predicted = _gold_labels(examples).astype(np.float64), np.asarray(predictions, np.float64)
    if _is_constant(gold, predicted):
        return 0.0
    return float(getattr(_import_library("scipy.stats"), name)(gold, predicted).statistic)


def _is_constant(gold: np.ndarray, predicted: np.ndarray) -> bool:
    """Return whether any of the two arrays is constant, so that the correlation of the arrays is undefined."""
    return bool(np.ptp(gold) == 0 or np.ptp(predicted) == 0)


def _import_library(name: str) -> Any:
    """Import and return a module that computes metrics; raise UserError if its package is missing."""
    package = PACKAGES[name.partition(".")[0]]
    with needs_packages("this metric", package):
        return importlib.import_module(name)
