"""Masked language model, and where rows are sentence pairs, next sentence (Devlin et al. 2019) or sentence order.

Sentence order is of Lan et al. 2020. Liu et al. 2019 train on masked tokens alone.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import Config
from bert_jax.models import PRETRAINING_HEADS, Head, make_model, model_flops
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params
from bert_jax.objectives.losses import Targets, cross_entropy
from bert_jax.objectives.means import Mean


class Pairs(NamedTuple):
    """What is learned of sentence pairs: the names of its metrics, and of a pair with label 1."""

    metric: str
    label: str


# The pairings that have a label; those that are not here train masked tokens alone.
PAIRS = {"next_sentence": Pairs("nsp", "random"), "sentence_order": Pairs("sop", "swapped")}


def pretraining_heads(config: Config) -> tuple[Head, ...]:
    """The heads that `config.data.sentence_pairs` trains."""
    return PRETRAINING_HEADS if config.data.sentence_pairs in PAIRS else (Head("masked_token"),)


def pretraining(config: Config) -> Objective:
    """The mean masked-token loss of `config.model`, plus that of the pairs where `config.data.sentence_pairs` has labels."""
    model = make_model(config.model, config.compute, pretraining_heads(config))
    pairs = PAIRS.get(config.data.sentence_pairs)

    def normalizers(batch: Batch) -> Normalizers:
        """How many masked tokens and pairs carry weight; at least 1 each, so that none divides by 0."""
        found = {"mlm": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0)}
        if pairs:
            found[pairs.metric] = jnp.maximum(jnp.sum(batch["example_weights"]), 1.0)
        return found

    def loss(
        params: Params, batch: Batch, rng: jax.Array | None, normalizers: Normalizers
    ) -> tuple[jax.Array, dict[str, Mean]]:
        outputs = model.apply(params, batch, rng)
        terms = {"mlm": _masked_tokens(outputs["mlm_logits"], batch)}
        if pairs:
            terms[pairs.metric] = _sentence_pairs(outputs["nsp_logits"], batch)
        means = {name: Mean.of(term.loss, term.weights) for name, term in terms.items()}
        metrics = {}
        for name, term in terms.items():
            metrics[f"{name}_loss"] = means[name]
            metrics[f"{name}_accuracy"] = Mean.of(term.correct, term.weights)
        if pairs:  # above one half where documents are too short for a pair of their own; accuracy is judged against it
            labels = batch["next_sentence_labels"].reshape(-1).astype(jnp.float32)
            metrics[f"{pairs.metric}_{pairs.label}_share"] = Mean.of(labels, terms[pairs.metric].weights)
        first, *others = (mean.total / normalizers[name] for name, mean in means.items())
        return sum(others, start=first), metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        logical_axes=model.logical_axes,
        flops=lambda length: model_flops(config.model, length, round(config.data.mask_probability * length)),
    )


# Weights, not label values, say which targets count: 0 is a token, and a label.


def _masked_tokens(logits: jax.Array, batch: Batch) -> Targets:
    weights = batch["masked_weights"].reshape(-1)
    # As a matrix, which is how the head made them: another form would be a copy of the largest array of the step.
    logits = logits.reshape(weights.size, -1)
    return Targets(*cross_entropy(logits, batch["masked_labels"].reshape(-1)), weights)


def _sentence_pairs(logits: jax.Array, batch: Batch) -> Targets:
    """Of packed rows, whose labels and weights are `[batch, examples]`, every example is a target."""
    labels, weights = batch["next_sentence_labels"].reshape(-1), batch["example_weights"].reshape(-1)
    return Targets(*cross_entropy(logits, labels), weights)
