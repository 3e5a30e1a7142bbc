"""Masked tokens (Devlin et al. 2019), also with next-sentence or sentence-order prediction (Lan et al. 2020)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import PRETRAINING_HEADS, Head, make_model, model_flops
from bert_jax.objectives.base import Batch, Ingredients, LossAndMetrics, Normalizers, Objective, Params, Rngs
from bert_jax.objectives.losses import Mean, Targets, cross_entropy, cross_entropy_and_log_z


class PairLabels(NamedTuple):
    """The names that metrics give to labeled sentence pairs, and to a pair with label 1."""

    metric: str
    label: str


# The values of config.data.sentence_pairs that have labels; with any other value, a run trains only masked tokens.
PAIR_LABELS = {"next_sentence": PairLabels("nsp", "random"), "sentence_order": PairLabels("sop", "swapped")}


def refuse_labeled_pairs(objective: str, sentence_pairs: str) -> None:
    """Raise UserError if sentence pairs have labels, which an objective without a head for pairs would ignore."""
    if sentence_pairs in PAIR_LABELS:
        raise UserError(
            f"config.objective={objective} has no head for config.data.sentence_pairs={sentence_pairs}; set "
            "full_sentences, document_sentences, full_text or none"
        )


def pretraining_heads(sentence_pairs: str) -> tuple[Head, ...]:
    """Return the heads that a row of SENTENCE_PAIRS trains."""
    return PRETRAINING_HEADS if sentence_pairs in PAIR_LABELS else (Head("masked_token"),)


def make_masked_tokens_objective(ingredients: Ingredients) -> Objective:
    """Return the objective: mean loss of the masked tokens, plus mean loss of labeled sentence pairs.

    With a weight `z_loss`, the loss includes the mean of log(Z)^2 over the masked tokens, which keeps logits near 0
    (Chowdhery et al. 2022: PaLM; as in T5X).
    """
    z_loss_weight = ingredients.z_loss
    model = make_model(ingredients.model, ingredients.compute, pretraining_heads(ingredients.sentence_pairs))
    pairs = PAIR_LABELS.get(ingredients.sentence_pairs)

    def normalizers(batch: Batch) -> Normalizers:
        """Return the weighted numbers of masked tokens and of pairs, at least 1 to avoid a division by 0."""
        counts = {"mlm": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0)}
        if pairs:
            counts[pairs.metric] = jnp.maximum(jnp.sum(batch["example_weights"]), 1.0)
        return counts

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        outputs = model.apply(params, batch, rngs.dropout)
        masked, log_z = masked_targets(outputs["mlm_logits"], batch)
        terms = {"mlm": masked}
        if pairs:
            terms[pairs.metric] = _sentence_pair_targets(outputs["nsp_logits"], batch)
        means = {name: Mean.of(term.loss, term.weights) for name, term in terms.items()}
        metrics = {}
        for name, term in terms.items():
            metrics[f"{name}_loss"] = means[name]
            metrics[f"{name}_accuracy"] = Mean.of(term.correct, term.weights)
        if pairs:  # the fraction is a baseline of the accuracy, above 0.5 if some documents are too short for a pair
            labels = batch["next_sentence_labels"].reshape(-1).astype(jnp.float32)
            metrics[f"{pairs.metric}_{pairs.label}_fraction"] = Mean.of(labels, terms[pairs.metric].weights)
        parts = [mean.total / normalizers[name] for name, mean in means.items()]
        if z_loss_weight:
            metrics["z_loss"] = z_loss(z_loss_weight, log_z, masked.weights)
            parts.append(metrics["z_loss"].total / normalizers["mlm"])
        return sum(parts[1:], start=parts[0]), metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        shapes=model.shapes,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=functools.partial(masked_training_flops, model.config, ingredients.mask_rates),
        num_heads=model.config.num_heads,
    )


def z_loss(weight: float, log_z: jax.Array, target_weights: jax.Array) -> Mean:
    """Return `weight` times the square of the log of the partition function, averaged over the targets."""
    return Mean.of(weight * jnp.square(log_z), target_weights)


def masked_training_flops(model: EncoderConfig, mask_rates: tuple[float, ...], seq_len: int, phase: int) -> float:
    """Return the model FLOPs of training on the masked tokens of a sequence, at the mean masking rate of its phase."""
    return model_flops(model, seq_len, round(mask_rates[phase] * seq_len))


# The weights show which targets count; label values do not, as 0 is a token and a label.


class TargetsAndLogZ(NamedTuple):
    """The targets, and the log of the partition function at each target."""

    targets: Targets
    log_z: jax.Array


def masked_targets(logits: jax.Array, batch: Batch) -> TargetsAndLogZ:
    """Return the targets, and the log of the partition function at each target.

    The logits at the masked positions are float32 `[batch, predictions, vocabulary]`.
    """
    weights = batch["masked_weights"].reshape(-1)
    # The logits become a matrix, as in the head, because another shape would copy the largest array of the step.
    logits = logits.reshape(weights.size, -1)
    loss, correct, log_z = cross_entropy_and_log_z(logits, batch["masked_labels"].reshape(-1))
    return TargetsAndLogZ(Targets(loss, correct, weights), log_z)


def _sentence_pair_targets(logits: jax.Array, batch: Batch) -> Targets:
    """Return the targets of labeled sentence pairs; in packed sequences, every example is a target.

    The logits are float32 `[batch * examples, 2]`. In packed batches, labels and weights are `[batch, examples]`.
    """
    labels, weights = batch["next_sentence_labels"].reshape(-1), batch["example_weights"].reshape(-1)
    return Targets(*cross_entropy(logits, labels), weights)
