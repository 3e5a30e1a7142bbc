"""Replaced tokens (ELECTRA, Clark et al. 2020): a small generator fills masks, the encoder says which tokens it filled.

The generator trains on masked tokens. Its guesses, sampled at temperature 1, replace the masks; no gradient passes
through the sample. The encoder (the discriminator) then classifies every token. Both read the same embeddings, as in
Google's code; the parameters of the generator that are its own are under "generator" in the tree.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, Params, make_model, model_flops
from bert_jax.models.dropout import dropout_seeds, random_words
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import Batch, Normalizers, Objective, Rngs
from bert_jax.objectives.means import Mean
from bert_jax.objectives.parts import Part
from bert_jax.objectives.tokens import at_masks, token_weights

GENERATOR = "generator"
RANDOM_BITS = 23  # of a uniform number, which with a half added is exact in float32


def heads(config: PretrainConfig) -> tuple[Head, ...]:
    """Return the head of the discriminator."""
    return (Head("replaced_token"),)


def parts(config: PretrainConfig) -> dict[str, Part]:
    """Return the generator, with what it shares."""
    place = config.replaced_tokens.generator_from
    return {GENERATOR: Part(generator_config(config), (Head("masked_token"),), own, whole, place)}


def generator_config(config: PretrainConfig) -> EncoderConfig:
    """Return the generator's architecture: narrower blocks with heads as wide, on the tables of `config.model`.

    Raises UserError where the narrower width does not divide into such heads, and where blocks have two widths.
    """
    model, size = config.model, config.replaced_tokens.generator_size
    if model.bottleneck_size or model.trigram_embeddings:
        raise UserError(
            "config.objective=replaced_tokens makes no generator on trigrams or with a bottleneck; choose another "
            "objective, or set config.model.trigram_embeddings=False and config.model.bottleneck_size=None"
        )
    width, features = round(model.hidden_size * size), model.head_dim
    number, tables = max(1, width // features), model.table_width
    if width % number or width // number % 2:
        raise UserError(
            f"config.replaced_tokens.generator_size={size:g} makes a generator of {width} features, which are not "
            f"{number} heads of equal, even width; choose a multiple of {features / model.hidden_size:g}"
        )
    return dataclasses.replace(
        model,
        hidden_size=width,
        num_heads=number,
        mlp_size=max(1, round(model.mlp_size * size)),
        embedding_size=None if width == tables else tables,
    )


def own(tree: Any) -> Any:
    """Return what of a generator's tree is its own: all but the embeddings."""
    return tree | {"encoder": {name: x for name, x in tree["encoder"].items() if name != "embeddings"}}


def whole(params: Params) -> Params:
    """Return the generator's tree out of that of a run."""
    generator = params[GENERATOR]
    return generator | {"encoder": generator["encoder"] | {"embeddings": params["encoder"]["embeddings"]}}


def make(config: PretrainConfig, teacher: EncoderConfig | None = None) -> Objective:
    """Return the mean loss of the masked tokens plus `weight` times that of all tokens, each replaced or not.

    Raises UserError with sentence pairs that have labels: nothing would learn them.
    """
    masked_tokens.refuse_pairs(config)
    discriminator = make_model(config.model, config.compute, heads(config))
    generator = make_model(generator_config(config), config.compute, (Head("masked_token"),))
    weight = config.replaced_tokens.weight

    def init(rng: jax.Array) -> Params:
        return discriminator.init(rng) | {GENERATOR: own(generator.init(jax.random.fold_in(rng, 1)))}

    def normalizers(batch: Batch) -> Normalizers:
        """The masked tokens and all tokens that carry weight; at least 1 each, against a division by 0."""
        return {
            "mlm": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0),
            "replaced": jnp.maximum(jnp.sum(token_weights(batch)), 1.0),
        }

    def loss(
        params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers
    ) -> tuple[jax.Array, dict[str, Mean]]:
        dropouts = (None, None) if rngs.dropout is None else tuple(jax.random.split(rngs.dropout))
        guesses = generator.apply(whole(params), batch, dropouts[0])["mlm_logits"]
        masked, log_z = masked_tokens.masked_targets(guesses, batch)
        input_ids, replaced = replace_tokens(batch, guesses, rngs.sampling)
        logits = discriminator.apply(params, {**batch, "input_ids": input_ids}, dropouts[1])["replaced_logits"]
        each, weights = optax.sigmoid_binary_cross_entropy(logits, replaced), token_weights(batch)
        correct = ((logits > 0) == (replaced > 0)).astype(jnp.float32)
        metrics = {
            "mlm_loss": Mean.of(masked.loss, masked.weights),
            "mlm_accuracy": Mean.of(masked.correct, masked.weights),
            "replaced_loss": Mean.of(weight * each, weights),
            "replaced_accuracy": Mean.of(correct, weights),
            "replaced_recall": Mean.of(correct, weights * replaced),
            "replaced_fraction": Mean.of(replaced, weights),
        }
        value = (
            metrics["mlm_loss"].total / normalizers["mlm"] + metrics["replaced_loss"].total / normalizers["replaced"]
        )
        if config.train.z_loss:
            metrics["z_loss"] = masked_tokens.z_loss(config, masked, log_z)
            value += metrics["z_loss"].total / normalizers["mlm"]
        return value, metrics

    def flops(seq_len: int, phase: int) -> float:
        head = 6.0 * seq_len * config.model.hidden_size**2
        return masked_tokens.flops(generator.config, config, seq_len, phase) + (
            model_flops(config.model, seq_len, 0) + head
        )

    return Objective(
        init=init,
        normalizers=normalizers,
        loss=loss,
        shapes=discriminator.shapes | {GENERATOR: own(generator.shapes)},
        logical_axes=discriminator.logical_axes | {GENERATOR: own(generator.logical_axes)},
        sections=discriminator.sections | {GENERATOR: own(generator.sections)},
        flops=flops,
        num_heads=math.gcd(config.model.num_heads, generator.config.num_heads),
    )


def replace_tokens(batch: Batch, logits: jax.Array, rng: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the sequences with a sample from `logits` at each mask, and which tokens differ from the original.

    Args:
        batch: with the masks' positions, original tokens and weights, `[batch, predictions]`.
        logits: float32 `[batch, predictions, vocabulary]` of the generator.
        rng: key; the sample of a row follows from it and the row's number, on every mesh.

    Returns:
        int32 and float32 `[batch, length]`: input ids, and 1 where a token was replaced. A guess that is the original
        counts as original.
    """
    sampled = sample(logits, rng)
    differs = (sampled != batch["masked_labels"]).astype(jnp.float32)
    input_ids = at_masks(batch, batch["input_ids"], sampled)
    return input_ids, at_masks(batch, jnp.zeros(input_ids.shape, jnp.float32), differs)


def sample(logits: jax.Array, rng: jax.Array) -> jax.Array:
    """Return int32 `logits.shape[:-1]`, drawn from their softmax by Gumbel's noise; no gradient passes."""
    words = random_words(dropout_seeds(rng, ()), logits.shape)
    uniform = ((words >> (32 - RANDOM_BITS)).astype(jnp.float32) + 0.5) * 2.0**-RANDOM_BITS
    noise = -jnp.log(-jnp.log(uniform))
    return jnp.argmax(jax.lax.stop_gradient(logits) + noise, axis=-1).astype(jnp.int32)
