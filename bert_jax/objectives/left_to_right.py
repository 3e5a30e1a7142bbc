"""Causal language modeling: each token is predicted from the tokens before it (LTR in Devlin et al. 2019)."""

import dataclasses

import jax
import jax.numpy as jnp

from bert_jax.config import PhaseConfig
from bert_jax.errors import UserError, with_message
from bert_jax.models import Head, Params, make_model, model_flops
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import Batch, Ingredients, LossAndMetrics, Normalizers, Objective, Rngs
from bert_jax.objectives.losses import Mean, cross_entropy_and_log_z, non_padding_mask, original_tokens

HEADS = (Head("next_token"),)


def make_left_to_right_objective(ingredients: Ingredients) -> Objective:
    """Return the objective: the mean loss of all tokens except the first token of each example, without masks.

    Raise UserError if sentence pairs have labels.
    """
    masked_tokens.refuse_labeled_pairs("left_to_right", ingredients.sentence_pairs)
    model = make_model(ingredients.model, ingredients.compute, HEADS)

    def normalizers(batch: Batch) -> Normalizers:
        return {"next_token": jnp.maximum(jnp.sum(has_next_token(batch)), 1.0)}

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        input_ids, weights = original_tokens(batch), has_next_token(batch).reshape(-1)
        logits = model.apply(params, {**batch, "input_ids": input_ids}, rngs.dropout)["next_logits"]
        losses, correct, log_z = cross_entropy_and_log_z(logits.reshape(weights.size, -1), input_ids[:, 1:].reshape(-1))
        metrics = {"next_token_loss": Mean.of(losses, weights), "next_token_accuracy": Mean.of(correct, weights)}
        total = metrics["next_token_loss"].total
        if ingredients.z_loss:
            metrics["z_loss"] = masked_tokens.z_loss(ingredients.z_loss, log_z, weights)
            total += metrics["z_loss"].total
        return total / normalizers["next_token"], metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        shapes=model.shapes,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=lambda seq_len, phase: model_flops(model.config, seq_len, seq_len - 1),
        num_heads=model.config.num_heads,
    )


def make_left_to_right_phase(ingredients: Ingredients, run: Objective, phase: PhaseConfig) -> Objective:
    """Return the objective of a left-to-right phase in a run of masked tokens: causal attention, and no masks.

    The masked-token head predicts the next token in this phase (as in GPT-BERT: Charpentier and Samuel 2024). So both
    objectives train the same parameters. Raise UserError if the model cannot be causal.
    """
    model = dataclasses.replace(ingredients.model, causal=True)
    try:
        causal = make_left_to_right_objective(dataclasses.replace(ingredients, model=model))
    except UserError as error:  # the user has not set model.causal
        raise with_message(error, f"a phase with objective={phase.objective} has a causal model: {error}") from None

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        renamed = {"next_token" if name == "masked_token" else name: part for name, part in params.items()}
        return causal.loss(renamed, frozen, batch, rngs, normalizers)

    return dataclasses.replace(run, loss=loss, normalizers=causal.normalizers, flops=causal.flops)


def has_next_token(batch: Batch) -> jax.Array:
    """Return 1 for each token with a next token in its example, else 0, float32 `[batch, length - 1]`."""
    weights = non_padding_mask(batch)[:, 1:]
    segments = batch.get("segment_ids")
    return weights if segments is None else weights * (segments[:, 1:] == segments[:, :-1])
