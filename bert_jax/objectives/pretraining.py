"""Masked language model plus next sentence prediction (Devlin et al. 2019)."""

import jax
import jax.numpy as jnp

from bert_jax.config import Config
from bert_jax.metrics import Mean
from bert_jax.models import Model, model_flops, pretraining_model
from bert_jax.objectives.base import Batch, Counts, Objective, Params


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
    mlm_weights, nsp_weights = batch["masked_weights"], batch["example_weights"]
    mlm_loss, mlm_hits = _cross_entropy(outputs["mlm_logits"], batch["masked_labels"])
    nsp_loss, nsp_hits = _cross_entropy(outputs["nsp_logits"], batch["next_sentence_labels"])
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


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Per target: negative log likelihood in float32, and 1.0 where the likeliest class is the label."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    hits = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
    return jax.nn.logsumexp(logits, axis=-1) - chosen, hits
