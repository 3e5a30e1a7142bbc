"""Similarity of two texts by the vectors of each: trained with the other pairs of a batch as negatives.

The loss of Henderson et al. 2017 and SimCSE (Gao et al. 2021): of all second texts of a batch, the right one is to have
the highest cosine with the first. Pairs whose label is below `task.positive_from` are left out of training.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds.kind import Counts, Examples, Kind, Loss, Outputs, Predictions
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.shared.texts import in_order, separate_features
from bert_jax.tasks.task import Example

OUTPUT = "sentence_vectors"


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> tuple[list[Features], Counts]:
    def target(example: Example) -> dict[str, Any]:
        if "label" not in example:
            return {}
        return {"positives": np.float32(example["label"] >= settings.positive_from)}

    return separate_features(examples, tokenizer, settings.max_seq_len, target)


def _predict(examples: Examples, features: Sequence[Features], outputs: Sequence[Outputs], *_: Any) -> Predictions:
    return Predictions(in_order(features, [one[OUTPUT].prod(0).sum() for one in outputs]))


SIMILARITY = Kind(
    fields=("text", "text_pair", "label"),
    optional_fields=("id",),
    label_fields=("label",),
    make=REGRESSION.make,
    features=_features,
    head="sentence_embedding",
    classes=0,
    loss=Loss("in_batch_negatives", ((OUTPUT, "positives"),), "positives", whole_batch=True),
    predict=_predict,
    to_json=lambda labels, example, value: {"label": float(value)},
    default_metrics=lambda labels: (("pearson", "spearman"), "spearman"),
)
