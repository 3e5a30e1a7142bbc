"""Left to right: each token is predicted from those before it, as in the ablations of Devlin et al. 2019 (LTR)."""

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.models import Head, Params, make_model, model_flops
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import Batch, Normalizers, Objective, Rngs
from bert_jax.objectives.losses import Targets, cross_entropy_and_log_z
from bert_jax.objectives.means import Mean
from bert_jax.objectives.tokens import original_tokens, token_weights


def heads(config: PretrainConfig) -> tuple[Head, ...]:
    """Return the head of the next token."""
    return (Head("next_token"),)


def make(config: PretrainConfig, teacher: EncoderConfig | None = None) -> Objective:
    """Return the mean loss of every token after the first of its example, of sequences without masks.

    Raises UserError with sentence pairs that have labels.
    """
    masked_tokens.refuse_pairs(config)
    model = make_model(config.model, config.compute, heads(config))

    def normalizers(batch: Batch) -> Normalizers:
        return {"next_token": jnp.maximum(jnp.sum(predicted(batch)), 1.0)}

    def loss(
        params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers
    ) -> tuple[jax.Array, dict[str, Mean]]:
        input_ids, weights = original_tokens(batch), predicted(batch).reshape(-1)
        logits = model.apply(params, {**batch, "input_ids": input_ids}, rngs.dropout)["next_logits"]
        each, correct, log_z = cross_entropy_and_log_z(logits.reshape(weights.size, -1), input_ids[:, 1:].reshape(-1))
        metrics = {"next_token_loss": Mean.of(each, weights), "next_token_accuracy": Mean.of(correct, weights)}
        total = metrics["next_token_loss"].total
        if config.train.z_loss:
            metrics["z_loss"] = masked_tokens.z_loss(config, Targets(each, correct, weights), log_z)
            total += metrics["z_loss"].total
        return total / normalizers["next_token"], metrics

    return Objective(
        init=model.init,
        normalizers=normalizers,
        loss=loss,
        shapes=model.shapes,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=lambda seq_len, phase: model_flops(config.model, seq_len, seq_len - 1),
        num_heads=config.model.num_heads,
    )


def predicted(batch: Batch) -> jax.Array:
    """Return float32 `[batch, length - 1]`: 1 where a token is followed by one of the same example."""
    weights = token_weights(batch)[:, 1:]
    segments = batch.get("segment_ids")
    return weights if segments is None else weights * (segments[:, 1:] == segments[:, :-1])
