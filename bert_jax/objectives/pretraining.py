"""Masked language model plus next sentence prediction (Devlin et al. 2019)."""

import jax
import jax.numpy as jnp

from bert_jax.config import Config
from bert_jax.metrics import Mean
from bert_jax.models import Model, model_flops, pretraining_model
from bert_jax.objectives.base import Batch, Counts, Objective, Params
from bert_jax.objectives.losses import cross_entropy


def pretraining(config: Config) -> Objective:
    """The objective of `config.model`: the mean masked-token loss plus the mean next-sentence loss, unweighted."""
    model = pretraining_model(config.model, config.compute)

    def loss(params: Params, batch: Batch, rng: jax.Array | None, counts: Counts) -> tuple[jax.Array, dict[str, Mean]]:
        return pretraining_loss(model, params, batch, rng, counts)

    return Objective(
        init=model.init,
        counts=pretraining_counts,
        loss=loss,
        logical_axes=model.logical_axes,
        flops=lambda length: model_flops(config.model, length, round(config.data.mask_probability * length)),
    )


def pretraining_counts(batch: Batch) -> Counts:
    """How many masked tokens and how many sentence pairs carry weight; at least 1 each, so that none divides by 0."""
    return {
        "mlm": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0),
        "nsp": jnp.maximum(jnp.sum(batch["example_weights"]), 1.0),
    }


def pretraining_loss(
    model: Model, params: Params, batch: Batch, rng: jax.Array | None, counts: Counts
) -> tuple[jax.Array, dict[str, Mean]]:
    """float32 share of the loss and its metrics; weights, not label values, say which targets count (0 is a token)."""
    outputs = model.apply(params, batch, rng)
    mlm_weights, nsp_weights = batch["masked_weights"].reshape(-1), batch["example_weights"]
    # As a matrix, which is how the head made them: another form would be a copy of the largest array of the step.
    mlm_logits = outputs["mlm_logits"].reshape(mlm_weights.size, -1)
    mlm_loss, mlm_hits = cross_entropy(mlm_logits, batch["masked_labels"].reshape(-1))
    nsp_loss, nsp_hits = cross_entropy(outputs["nsp_logits"], batch["next_sentence_labels"])
    mlm, nsp = Mean.of(mlm_loss, mlm_weights), Mean.of(nsp_loss, nsp_weights)
    metrics = {
        "mlm_loss": mlm,
        "mlm_accuracy": Mean.of(mlm_hits, mlm_weights),
        "nsp_loss": nsp,
        "nsp_accuracy": Mean.of(nsp_hits, nsp_weights),
        # Above one half where documents are too short for a pair of their own; accuracy is to be judged against it.
        "nsp_random_share": Mean.of(batch["next_sentence_labels"].astype(jnp.float32), nsp_weights),
    }
    return mlm.total / counts["mlm"] + nsp.total / counts["nsp"], metrics
