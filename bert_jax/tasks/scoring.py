"""How good predictions are: a table of metrics, by scikit-learn, scipy, seqeval and SQuAD's rule."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.row import LABEL, Example
from bert_jax.tasks.squad_score import squad_scores
from bert_jax.tasks.task import Task

Scores = dict[str, float]
# Labelled examples, predictions in the same order (SQuAD: id -> text), the names of the labels.
Metric = Callable[[Sequence[Example], Any, Sequence[str]], Scores]

PACKAGES = {"sklearn": "scikit-learn", "scipy": "scipy", "seqeval": "seqeval"}
CHUNK_TAGS = ("B-", "I-", "E-", "S-")


def score(task: Task, examples: Sequence[Example], predictions: Any) -> Scores:
    """All metrics of a task: fractions and correlations, but percent for SQuAD, as its official script.

    Args:
        task: a row of the table.
        examples: labelled.
        predictions: classification and choice int `[n]`, regression float `[n]`, tagging for each example a list of
            one int a word, span a dict of id -> text.

    Raises:
        UserError: no examples, unlabelled ones, a metric that the table does not know or that does not fit the
            labels, or whose library is not installed.
    """
    if not examples:
        raise UserError(f"task '{task.name}': the set to evaluate on is empty; give examples")
    key = LABEL[task.kind]
    for example in examples:
        if key not in example:
            raise UserError(f"task '{task.name}': example '{example['id']}' has no {key}, so it cannot be scored")
    if task.kind != "span" and len(predictions) != len(examples):
        raise ValueError(f"{len(predictions)} predictions for {len(examples)} examples")
    scores: Scores = {}
    for name in task.metrics:
        if name not in METRICS:
            raise UserError(f"there is no metric '{name}'{did_you_mean(name, METRICS)}; there are {', '.join(METRICS)}")
        scores |= METRICS[name](examples, predictions, task.labels)
    return scores


def accuracy(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Share of labels that are right."""
    metrics = _library("sklearn.metrics")
    return {"accuracy": float(metrics.accuracy_score(_labels(examples), np.asarray(predictions)))}


def binary_f1(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """F1 of the second of two labels, as GLUE has it for MRPC and QQP; 0 where nothing is found."""
    if len(labels) != 2:
        raise UserError(f"metric 'f1' is of two labels, not of {len(labels)}; take macro_f1")
    metrics = _library("sklearn.metrics")
    return {"f1": float(metrics.f1_score(_labels(examples), np.asarray(predictions), zero_division=0))}


def macro_f1(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Mean of the F1 of every label; 0 for one that is neither there nor predicted."""
    metrics = _library("sklearn.metrics")
    every = np.arange(len(labels))
    found = metrics.f1_score(_labels(examples), np.asarray(predictions), labels=every, average="macro", zero_division=0)
    return {"macro_f1": float(found)}


def matthews(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Matthews correlation (CoLA); 0 where all labels or all predictions are the same."""
    gold, found = _labels(examples), np.asarray(predictions)
    if _constant(gold, found):
        return {"matthews": 0.0}
    return {"matthews": float(_library("sklearn.metrics").matthews_corrcoef(gold, found))}


def pearson(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Pearson correlation (STS-B); 0 where it is undefined, which is where all numbers of a side are the same."""
    return {"pearson": _correlation("pearsonr", examples, predictions)}


def spearman(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Spearman rank correlation; 0 where it is undefined."""
    return {"spearman": _correlation("spearmanr", examples, predictions)}


def entities(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Precision, recall and F1 of entities that are right in type, begin and end, by the rule of conlleval."""
    odd = [name for name in labels if name != "O" and not name.startswith(CHUNK_TAGS)]
    if odd:
        raise UserError(
            f"metric 'entities' reads IOB labels such as B-PER, I-PER and O, not '{odd[0]}'; take token_accuracy"
        )
    metrics = _library("seqeval.metrics")
    golds = [[labels[number] for number in example["labels"]] for example in examples]
    found = [[labels[number] for number in sentence] for sentence in predictions]
    return {
        f"entity_{name}": float(getattr(metrics, f"{name}_score")(golds, found, zero_division=0))
        for name in ("precision", "recall", "f1")
    }


def token_accuracy(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Share of words whose label is right."""
    golds = np.concatenate([np.asarray(example["labels"], np.int64) for example in examples])
    found = np.concatenate([np.asarray(sentence, np.int64) for sentence in predictions])
    if not len(golds):
        raise UserError("the sentences to evaluate on have no words; give some")
    return {"token_accuracy": float(_library("sklearn.metrics").accuracy_score(golds, found))}


def squad(examples: Sequence[Example], predictions: Any, labels: Sequence[str]) -> Scores:
    """Exact match and F1 in percent: see `squad_score`."""
    return squad_scores(examples, predictions)


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
}


def _labels(examples: Sequence[Example]) -> np.ndarray:
    return np.array([example["label"] for example in examples])


def _correlation(name: str, examples: Sequence[Example], predictions: Any) -> float:
    gold, found = _labels(examples).astype(np.float64), np.asarray(predictions, np.float64)
    if _constant(gold, found):
        return 0.0
    return float(getattr(_library("scipy.stats"), name)(gold, found).statistic)


def _constant(gold: np.ndarray, found: np.ndarray) -> bool:
    """Whether a side has one value only: no correlation is defined, and the libraries warn."""
    return bool(np.ptp(gold) == 0 or np.ptp(found) == 0)


def _library(name: str) -> Any:
    package = PACKAGES[name.partition(".")[0]]
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(f"this metric needs {package}; install it with: pip install 'bert-jax[tasks]'") from None
