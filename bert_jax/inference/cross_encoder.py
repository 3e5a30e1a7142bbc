"""Cross-encoders: models with a classification head whose output is the score of a pair of texts."""

from collections.abc import Callable, Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.predict import Predictor, features_to_predict
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.regression import OUTPUT, REGRESSION
from bert_jax.tasks.kinds.texts import stack_in_example_order

PairScores = Callable[[Sequence[tuple[str, str]]], np.ndarray]  # pairs of texts -> float32 [pairs]

# Names of the label that means that a document answers a query, in lower case.
RELEVANT_LABELS = frozenset(
    (
        *("1", "yes", "true", "label_1", "relevant", "positive", "match", "entailment", "answer"),
        *("duplicate", "is_duplicate", "paraphrase", "equivalent", "similar", "same"),
    )
)


def index_of_relevant_label(labels: Sequence[str]) -> int:
    """Return the index of the label that means "the second text answers the first", by its name.

    Raises:
        UserError: no label, or several labels, have a name in RELEVANT_LABELS.
    """
    relevant = [index for index, label in enumerate(labels) if label.strip().lower() in RELEVANT_LABELS]
    if len(relevant) != 1:
        raise UserError(
            f"the cross-encoder has the labels {' and '.join(map(repr, labels))}, and it is not known which of them "
            "means that a document answers; name this label 'relevant' in task.json and config.json of the model"
        )
    return relevant[0]


def make_cross_encoder_scorer(predictor: Predictor) -> PairScores:
    """Return a function that scores pairs of texts by a model with a classification head.

    If the head has a single output, the score is this output. If the head has two classes, the score is the logit of
    the relevant class minus the logit of the other class.

    Raises:
        UserError: the model has another head, or the names of its labels do not tell which label is relevant.
    """
    kind = KINDS[predictor.task.kind]
    num_outputs = kind.classes or len(predictor.task.labels)
    if kind.head != REGRESSION.head or kind.problem or num_outputs > 2:
        raise UserError(
            f"the cross-encoder answers the task {predictor.task.kind} with {num_outputs} outputs; give a model with "
            "one score or two labels for a pair of texts"
        )
    relevant = index_of_relevant_label(predictor.task.labels) if num_outputs == 2 else 0

    def scores_of_text_pairs(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        examples = [{"id": str(n), "text": text, "text_pair": other} for n, (text, other) in enumerate(pairs)]
        features, _ = features_to_predict(predictor, examples)
        outputs = predictor.outputs_of(features, lambda num_done: None)
        logits = stack_in_example_order(features, [output[OUTPUT] for output in outputs]).reshape(len(pairs), -1)
        return logits[:, relevant] - logits[:, 1 - relevant] if num_outputs == 2 else logits[:, 0]

    return scores_of_text_pairs
