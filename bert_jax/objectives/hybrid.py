"""Masked tokens and left to right in one batch, with one encoder and one head (GPT-BERT: Charpentier and Samuel 2024).

GPT-BERT predicts a masked token at the position before the token. Here, a masked token is predicted at its own
position, as in every export to `transformers`.
"""

import dataclasses
import fractions

import jax

from bert_jax.config import PhaseConfig
from bert_jax.models import Params
from bert_jax.objectives.base import Batch, Ingredients, LossAndMetrics, Normalizers, Objective, Rngs
from bert_jax.objectives.left_to_right import make_left_to_right_phase
from bert_jax.objectives.losses import Mean, merge_means
from bert_jax.parallel.sharding import constrain

LEFT_TO_RIGHT, MASKED = "left_to_right", "masked"  # the parts of a batch


def split_batch(batch: Batch, fraction: float) -> Batch:
    """Return the sequences to train left to right and the other sequences, as two batches by name.

    If `fraction` is p/m in lowest terms, the first p of every m sequences are left to right. So the part of a sequence
    depends only on its index in the batch, not on the numbers of devices and micro-batches, and no sequence leaves its
    device.
    """
    num_sequences = len(batch["input_ids"])
    num_first, period = fractions.Fraction(round(fraction * num_sequences), num_sequences).as_integer_ratio()

    def part(x: jax.Array, columns: slice) -> jax.Array:
        chosen = x.reshape(-1, period, *x.shape[1:])[:, columns]
        return constrain(chosen.reshape(-1, *x.shape[1:]), "batch")

    parts = {LEFT_TO_RIGHT: slice(num_first), MASKED: slice(num_first, None)}
    return {name: {key: part(x, columns) for key, x in batch.items()} for name, columns in parts.items()}


def make_hybrid_phase(ingredients: Ingredients, run: Objective, phase: PhaseConfig) -> Objective:
    """Return the objective of a hybrid phase: the mean of both losses, weighted by the fractions of their sequences.

    Each part of the batch has its own pass through the encoder, so the masked part keeps the fast attention kernels.
    Raise UserError if the model cannot be causal.
    """
    fraction = phase.left_to_right_fraction
    causal = make_left_to_right_phase(ingredients, run, phase)

    def normalizers(batch: Batch) -> Normalizers:
        return causal.normalizers(batch[LEFT_TO_RIGHT]) | run.normalizers(batch[MASKED])

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        dropouts = (None, None) if rngs.dropout is None else jax.random.split(rngs.dropout)
        causal_loss, causal_metrics = causal.loss(
            params, frozen, batch[LEFT_TO_RIGHT], rngs._replace(dropout=dropouts[0]), normalizers
        )
        masked_loss, masked_metrics = run.loss(
            params, frozen, batch[MASKED], rngs._replace(dropout=dropouts[1]), normalizers
        )
        value = fraction * causal_loss + (1 - fraction) * masked_loss
        metrics = causal_metrics | merge_means(causal_metrics, masked_metrics)  # both metrics may have z_loss
        # The weights of the micro-batches of a step add up to 1.
        causal_weight = metrics["next_token_loss"].weight / normalizers["next_token"]
        masked_weight = metrics["mlm_loss"].weight / normalizers["mlm"]
        return value, metrics | {"loss": Mean(value, fraction * causal_weight + (1 - fraction) * masked_weight)}

    def flops(seq_len: int, index: int) -> float:
        return fraction * causal.flops(seq_len, index) + (1 - fraction) * run.flops(seq_len, index)

    return dataclasses.replace(run, loss=loss, normalizers=normalizers, flops=flops, left_to_right_fraction=fraction)
