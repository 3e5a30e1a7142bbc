"""Rare labels: weights of labels in the loss, and training examples that are repeated."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.labels import labels_text
from bert_jax.tasks.task import Example

# Name of a scheme -> function from a ratio to the weight of a label. The ratio is n / count if each example has exactly
# one label, else (n - count) / count, for n examples of which `count` have the label.
SCHEMES: dict[str, Callable[[float], float]] = {
    "balanced": lambda ratio: ratio,
    "inverse_square_root": math.sqrt,
}


def label_weights(
    spec: str, labels: Sequence[str], counts: Mapping[int, int], total: int, exclusive: bool
) -> np.ndarray:
    """Return the weight of each label in the loss, float32 `[labels]`.

    Let n be the number of all examples, and let `count` be the number of examples that have a given label. If each
    example has exactly one label, the weight of a label is n / count, or the square root of n / count in the scheme
    `inverse_square_root`. The weights are scaled so that the mean weight of the examples is 1; the scheme `balanced`
    then equals scikit-learn's n / (labels * count). If an example has a set of labels, the weight of the examples with
    a label is (n - count) / count or the square root of this ratio, like the argument `pos_weight` of torch. A label
    without examples has the weight 1.

    Args:
        spec: a key of `SCHEMES`, or weights such as 'spam=5,ham=1'; labels that are not named have the weight 1.
        labels: names of the labels.
        counts: index of a label -> number of training examples (or words) with the label.
        total: number of training examples (or words).
        exclusive: True if each example has exactly one label.

    Raises:
        UserError: a label is unknown or does not occur, or a weight is not above 0.
    """
    weights = np.ones(len(labels))
    if spec not in SCHEMES:
        for index, weight in _parse_user_weights(spec, labels, counts).items():
            weights[index] = weight
        return weights.astype(np.float32)
    for index, count in counts.items():
        weights[index] = SCHEMES[spec](total / count if exclusive else max(total - count, 1) / count)
    if exclusive:
        weights[list(counts)] *= total / sum(count * weights[index] for index, count in counts.items())
    return weights.astype(np.float32)


def _parse_user_weights(spec: str, labels: Sequence[str], counts: Mapping[int, int]) -> dict[int, float]:
    """Return a dict from a label's index to its weight, parsed from the user's weights, such as 'spam=5,ham=1'."""
    weights, parts = dict[int, float](), list[str]()
    for piece in spec.split(","):  # a label may contain commas, so a part ends with its weight
        if parts and "=" not in parts[-1]:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    for part in parts:
        name, equals, written = (piece.strip() for piece in part.rpartition("="))
        if not equals:
            raise UserError(
                f"config.task.class_weights={spec}: give {', '.join(SCHEMES)}, or weights such as '{labels[0]}=2'"
                f"{did_you_mean(spec, SCHEMES)}"
            )
        if name not in labels:
            known = labels_text(labels)
            raise UserError(f"config.task.class_weights: '{name}' is not among {known}{did_you_mean(name, labels)}")
        try:
            weight = float(written)
        except ValueError:
            weight = math.nan
        if not (0 < weight < math.inf):
            raise UserError(f"config.task.class_weights: the weight of '{name}' is '{written}'; give a number above 0")
        index = labels.index(name)
        if index in weights:
            raise UserError(f"config.task.class_weights: '{name}' has two weights; remove a weight")
        if not counts.get(index):
            raise UserError(f"config.task.class_weights: no training example has the label '{name}'; leave it out")
        weights[index] = weight
    return weights


def add_label_weights(kind: TaskKind, features: Sequence[Features], weights: np.ndarray) -> list[Features]:
    """Return the features with the weights of their labels added to the targets, so that the loss uses these weights.

    The weight of a target is multiplied by the weight of its label, so that the loss is a weighted mean, as with the
    argument `weight` of torch's cross entropy. If an example has a set of labels, a further target `label_weights`
    multiplies the loss of each label. The factor in `label_weights` is the weight of the label if the example has the
    label, else 1.
    """
    label_key, weight_key = kind.loss.targets[0][1], kind.loss.weights

    def with_label_weight(feature: Features) -> Features:
        labels = feature.targets[label_key]
        if kind.problem:
            added = {"label_weights": np.where(labels > 0, weights, np.float32(1))}
        else:
            added = {weight_key: weights[labels] * feature.targets.get(weight_key, np.float32(1))}
        return feature._replace(targets={**feature.targets, **added})

    return [with_label_weight(feature) for feature in features]


def oversample_rare_labels(kind: TaskKind, examples: Sequence[Example], features: Sequence[Features]) -> list[Features]:
    """Repeat the features of examples with rare labels until each label is as frequent as the most frequent label.

    The rarest label of an example decides how often the example is repeated. If the number of repetitions is not an
    integer, a hash of the index of an example decides whether the example is repeated once more. The result does not
    depend on the seed of a training, so all trainings of a run have the same training set.
    """
    counts = Counter(label for example in examples for label in set(kind.label_indices(example)))
    most = max(counts.values(), default=1)
    rarest = [min((counts[label] for label in kind.label_indices(example)), default=most) for example in examples]
    ratios = most / np.array(rarest)
    repeats = np.floor(ratios + uniform_floats(random_bits(0, Stream.ORDER, 1, np.arange(len(examples))))).astype(int)
    return [feature for feature in features for _ in range(repeats[feature.example])]
