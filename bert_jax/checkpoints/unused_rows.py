"""Removal of the rows that no token of a tokenizer uses, from arrays over the vocabulary."""

import dataclasses
from typing import Any

import jax
import numpy as np

from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig
from bert_jax.console import Console
from bert_jax.models import make_model


def without_unused_rows(weights: Weights, num_tokens: int, console: Console) -> Weights:
    """Return weights for a vocabulary of `num_tokens` tokens; weights for as many tokens or fewer stay unchanged.

    Published tables may have more rows than the tokenizer has tokens, because a multiple of 64 rows is fast. No text
    uses these rows, and pretraining would learn that the rows are never right. The console prints the change.
    """
    num_rows = weights.config.vocab_size
    if num_rows <= num_tokens:
        return weights
    config = dataclasses.replace(weights.config, vocab_size=num_tokens)
    model = make_model(config, ComputeConfig(), weights.heads)

    def rows_of_tokens(x: np.ndarray, shape: jax.ShapeDtypeStruct, axes: tuple[str, ...]) -> Any:
        if "vocab" not in axes:
            return x
        used = (slice(None),) * axes.index("vocab") + (slice(num_tokens),)
        rows = np.zeros(shape.shape, np.float32)  # the rows that pad the vocabulary stay 0
        rows[used] = np.asarray(x)[used]
        return rows

    console.say(f"{num_rows:,} rows of the vocabulary cut to the {num_tokens:,} tokens of the tokenizer")
    params = jax.tree.map(rows_of_tokens, weights.params, model.shapes, model.logical_axes)
    return dataclasses.replace(weights, config=config, params=params)
