"""Replaced tokens (ELECTRA, Clark et al. 2020): a generator fills masks, and the encoder finds the replaced tokens.

The generator learns masked tokens. Samples from its probabilities (temperature 1) replace the masks; no gradient passes
through the samples. Then the encoder (the discriminator) classifies every token as original or replaced. The
parameters of the generator are under "generator" in the tree of a run. Both models share embeddings by a row of
EMBEDDING_SHARINGS.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import EncoderConfig, ReplacedTokensConfig
from bert_jax.errors import UserError, with_message
from bert_jax.models import Head, Params, make_model, model_flops
from bert_jax.models.dropout import dropout_seeds, random_uint32
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import (
    AuxiliaryModel,
    Batch,
    EmbeddingSharing,
    Ingredients,
    LossAndMetrics,
    ModelAndAuxiliary,
    Normalizers,
    Objective,
    Rngs,
)
from bert_jax.objectives.losses import Mean, non_padding_mask, write_at_masked_positions

GENERATOR = "generator"
HEADS, GENERATOR_HEADS = (Head("replaced_token"),), (Head("masked_token"),)
TABLES = ("token", "position")  # the embeddings that DeBERTa-v3 disentangles, if a model has them
RANDOM_BITS = 23  # bits of a uniform number, which plus 0.5 is exact in float32


def auxiliary_generator(model: EncoderConfig, settings: ReplacedTokensConfig) -> dict[str, AuxiliaryModel]:
    """Return a dict with the generator of `model` under the generator's name."""
    generator, sharing = generator_config(model, settings), EMBEDDING_SHARINGS[settings.embedding_sharing]
    init_from = settings.generator_from
    return {GENERATOR: AuxiliaryModel(generator, GENERATOR_HEADS, sharing, init_from)}


def generator_config(model: EncoderConfig, settings: ReplacedTokensConfig) -> EncoderConfig:
    """Return the generator's architecture: `generator_size` times as wide, with heads and tables of equal width.

    Raise UserError if the width is no multiple of the size of a head, or if blocks have two widths (a bottleneck).
    """
    if model.bottleneck_size or model.trigram_embeddings:
        raise UserError(
            "config.objective=replaced_tokens makes no generator on trigrams or with a bottleneck; choose another "
            "objective, or set config.model.trigram_embeddings=False and config.model.bottleneck_size=None"
        )
    size, num_layers = settings.generator_size, settings.generator_layers or model.num_layers
    width, features = round(model.hidden_size * size), model.head_dim
    num_heads, tables = max(1, width // features), model.table_width
    if width % num_heads or width // num_heads % 2:
        raise UserError(
            f"config.replaced_tokens.generator_size={size:g} makes a generator of {width} features, which are not "
            f"{num_heads} heads of equal, even width; choose a multiple of {features / model.hidden_size:g}"
        )
    return dataclasses.replace(
        model,
        hidden_size=width,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_size=max(1, round(model.mlp_size * size)),
        embedding_size=None if width == tables else tables,
        local_windows=model.local_windows and model.local_windows[:num_layers],
    )


def without_embeddings(tree: Any) -> Any:
    """Return a generator's tree without the embeddings, which it shares with the discriminator."""
    return tree | {"encoder": {name: x for name, x in tree["encoder"].items() if name != "embeddings"}}


def with_embeddings_of(model: Params, generator: Params) -> Params:
    """Return the tree of a generator with the embeddings of the model."""
    return _with_embeddings(generator, model["encoder"]["embeddings"])


def _with_embeddings(tree: Params, embeddings: Params) -> Params:
    return tree | {"encoder": tree["encoder"] | {"embeddings": embeddings}}


def _change_tables(params: Params, generator: Params, change: Callable[[Any, Any], Any]) -> Params:
    """Return a model's tree with `change(model's table, generator's table)` in place of each table."""
    tables, theirs = params["encoder"]["embeddings"], generator["encoder"]["embeddings"]
    return _with_embeddings(
        params, tables | {name: change(tables[name], theirs[name]) for name in TABLES if name in tables}
    )


def _join_disentangled(model: Params, generator: Params) -> Params:
    """Return the tree of a run, whose tables are the differences between the tables of both models."""
    return _change_tables(model, generator, lambda ours, theirs: ours - theirs) | {GENERATOR: generator}


def _split_disentangled(params: Params) -> ModelAndAuxiliary:
    """Return the parameters of both models; no gradient passes from the model's tables to the generator's."""
    generator = params[GENERATOR]
    model = _change_tables(params, generator, lambda difference, theirs: difference + jax.lax.stop_gradient(theirs))
    return ModelAndAuxiliary(model, generator)


EMBEDDING_SHARINGS: dict[str, EmbeddingSharing] = {
    # Clark et al. 2020: both models read and train the same embeddings.
    "tied": EmbeddingSharing(
        stored=without_embeddings,
        begin=with_embeddings_of,
        join=lambda model, generator: model | {GENERATOR: without_embeddings(generator)},
        split=lambda params: ModelAndAuxiliary(params, with_embeddings_of(params, params[GENERATOR])),
    ),
    # He et al. 2023 (arXiv 2111.09543), "gradient-disentangled embedding sharing" of DeBERTa-v3.
    "disentangled": EmbeddingSharing(
        stored=lambda tree: tree, begin=with_embeddings_of, join=_join_disentangled, split=_split_disentangled
    ),
}


def make_replaced_tokens_objective(ingredients: Ingredients) -> Objective:
    """Return the objective: mean loss of the masked tokens, plus `weight` times the loss of finding replaced tokens.

    Raise UserError if sentence pairs have labels, which no head would learn, or if the run has initial weights for the
    generator but no initial weights for the model.
    """
    masked_tokens.refuse_labeled_pairs("replaced_tokens", ingredients.sentence_pairs)
    model, settings = ingredients.model, ingredients.replaced_tokens
    if settings.generator_from and not ingredients.has_init_weights:
        raise UserError(
            "config.replaced_tokens.generator_from needs config.init_from, because a generator reads "
            "the embeddings of the model"
        )
    discriminator = make_model(model, ingredients.compute, HEADS)
    try:
        generator = make_model(generator_config(model, settings), ingredients.compute, GENERATOR_HEADS)
    except UserError as error:  # the user has not set the architecture of the generator
        raise with_message(error, f"the generator of config.objective=replaced_tokens: {error}") from None
    sharing = EMBEDDING_SHARINGS[settings.embedding_sharing]

    def init(rng: jax.Array) -> Params:
        ours, theirs = discriminator.init(rng), generator.init(jax.random.fold_in(rng, 1))
        return sharing.join(ours, sharing.begin(ours, theirs))

    def normalizers(batch: Batch) -> Normalizers:
        """Return the weighted numbers of masked tokens and of all tokens, at least 1 against a division by 0."""
        return {
            "mlm": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0),
            "replaced": jnp.maximum(jnp.sum(non_padding_mask(batch)), 1.0),
        }

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        dropouts = (None, None) if rngs.dropout is None else tuple(jax.random.split(rngs.dropout))
        ours, theirs = sharing.split(params)
        predictions = generator.apply(theirs, batch, dropouts[0])["mlm_logits"]
        masked, log_z = masked_tokens.masked_targets(predictions, batch)
        input_ids, replaced = replace_tokens(batch, predictions, rngs.sampling)
        logits = discriminator.apply(ours, {**batch, "input_ids": input_ids}, dropouts[1])["replaced_logits"]
        losses, weights = optax.sigmoid_binary_cross_entropy(logits, replaced), non_padding_mask(batch)
        correct = ((logits > 0) == (replaced > 0)).astype(jnp.float32)
        metrics = {
            "mlm_loss": Mean.of(masked.loss, masked.weights),
            "mlm_accuracy": Mean.of(masked.correct, masked.weights),
            "replaced_loss": Mean.of(settings.weight * losses, weights),
            "replaced_accuracy": Mean.of(correct, weights),
            "replaced_recall": Mean.of(correct, weights * replaced),
            "replaced_fraction": Mean.of(replaced, weights),
        }
        value = (
            metrics["mlm_loss"].total / normalizers["mlm"] + metrics["replaced_loss"].total / normalizers["replaced"]
        )
        if ingredients.z_loss:
            metrics["z_loss"] = masked_tokens.z_loss(ingredients.z_loss, log_z, masked.weights)
            value += metrics["z_loss"].total / normalizers["mlm"]
        return value, metrics

    def flops(seq_len: int, phase: int) -> float:
        head = 6.0 * seq_len * model.hidden_size**2
        return masked_tokens.masked_training_flops(generator.config, ingredients.mask_rates, seq_len, phase) + (
            model_flops(model, seq_len, 0) + head
        )

    return Objective(
        init=init,
        normalizers=normalizers,
        loss=loss,
        shapes=discriminator.shapes | {GENERATOR: sharing.stored(generator.shapes)},
        logical_axes=discriminator.logical_axes | {GENERATOR: sharing.stored(generator.logical_axes)},
        sections=discriminator.sections | {GENERATOR: sharing.stored(generator.sections)},
        flops=flops,
        num_heads=math.gcd(model.num_heads, generator.config.num_heads),
    )


class ReplacedTokens(NamedTuple):
    """Sequences with samples at the masks, int32 `[batch, length]`, and a float32 mask of the changed tokens."""

    input_ids: jax.Array
    replaced: jax.Array


def replace_tokens(batch: Batch, logits: jax.Array, rng: jax.Array) -> ReplacedTokens:
    """Return the sequences with a sample from `logits` at each mask, and a mask of the changed tokens.

    Args:
        batch: batch with positions, original tokens and weights of the masks, `[batch, predictions]`.
        logits: logits of the generator, float32 `[batch, predictions, vocabulary]`.
        rng: random key; a row's samples depend only on the key and the index of the row, on every mesh.

    Returns:
        input ids, int32 `[batch, length]`, and 1 for each replaced token, float32 `[batch, length]`. A sample that
        equals the original token counts as original.
    """
    sampled = sample_tokens(logits, rng)
    differs = (sampled != batch["masked_labels"]).astype(jnp.float32)
    input_ids = write_at_masked_positions(batch, batch["input_ids"], sampled)
    return ReplacedTokens(input_ids, write_at_masked_positions(batch, jnp.zeros(input_ids.shape, jnp.float32), differs))


def sample_tokens(logits: jax.Array, rng: jax.Array) -> jax.Array:
    """Return samples from the softmax by Gumbel noise, without a gradient, int32 `logits.shape[:-1]`."""
    words = random_uint32(dropout_seeds(rng, ()), logits.shape)
    uniform = ((words >> (32 - RANDOM_BITS)).astype(jnp.float32) + 0.5) * 2.0**-RANDOM_BITS
    noise = -jnp.log(-jnp.log(uniform))
    return jnp.argmax(jax.lax.stop_gradient(logits) + noise, axis=-1).astype(jnp.int32)
