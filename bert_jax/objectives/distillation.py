"""Distillation (DistilBERT, Sanh et al. 2019): a student learns masked tokens and the outputs of a frozen teacher.

The loss has three main terms. The first term of the loss is the loss of the masked tokens. The second term is the
divergence from the teacher's probabilities at the masked positions. A temperature T softens the probabilities of
student and teacher, and the divergence is scaled by T^2 (Hinton et al. 2015). The third term compares the directions of
each token's last hidden states in student and teacher. The code of DistilBERT's authors compares probabilities at every
token by default, and at masked tokens as an option. In bert_jax, only masked tokens have logits, so bert_jax compares
probabilities only at masked tokens.

A fourth term is the mean squared difference of hidden states (TinyBERT, Jiao et al. 2020). The fourth term compares
each student layer with a teacher layer; the teacher layers are evenly spaced from the embeddings to the last layer. If
the widths differ, a learned linear map adapts the student. A fifth term is the divergence of the attention weights of
heads with equal index in the layers that the fourth term compares (MobileBERT, Sun et al. 2020). A separate forward
pass without dropout computes the attention weights.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, fill_inherited_fields
from bert_jax.errors import UserError
from bert_jax.models import Head, Params, attention_weights, make_model, model_flops
from bert_jax.objectives import masked_tokens
from bert_jax.objectives.base import Batch, Ingredients, LossAndMetrics, Normalizers, Objective, Rngs
from bert_jax.objectives.losses import Mean, non_padding_mask, softened_kl_divergence

HEADS = (Head("masked_token"),)
COMPARED_HEADS = (*HEADS, Head("last_hidden_state"))
PROJECTION = "teacher_projection"  # a key of the run's parameters, not of the model's parameters
# A student that starts from its teacher's layers may differ from the teacher only in these fields.
MAY_DIFFER = {
    "family", "num_layers", "num_token_types", "max_positions", "dropout", "attention_dropout", "classifier_dropout",
    "initializer_range", "initialization", "pooler_dense", "pooler_activation", "sequence_activation", "pooler_dropout",
    "pooler_norm", "pooler_on_tokens", "pooling",
}  # fmt: skip
SMALLEST = 1e-12  # added to attention weights and, as in torch.nn.CosineEmbeddingLoss, to squared lengths


def make_distillation_objective(ingredients: Ingredients) -> Objective:
    """Return the objective: mean loss of the masked tokens, plus weighted means of the comparisons with the teacher.

    Raise UserError if there is no teacher, the teacher has another vocabulary, or sentence pairs have labels. Raise
    UserError, too, if angles are compared but the widths differ, or if a needed projection is missing in the initial
    weights. A comparison of attention raises UserError if the numbers of heads differ or sequences are packed.
    """
    settings, model, teacher = ingredients.distillation, ingredients.model, ingredients.teacher
    if teacher is None:
        raise UserError("config.objective=distillation needs config.distillation.teacher: a directory with a model")
    masked_tokens.refuse_labeled_pairs("distillation", ingredients.sentence_pairs)
    for name in ("vocab_size", *(("hidden_size",) if settings.cosine_weight else ())):
        ours, theirs = getattr(model, name), getattr(teacher, name)
        if ours != theirs:
            narrower = "; for a student of another width set config.distillation.cosine_weight=0 and copy_layers=False"
            advice = narrower if name == "hidden_size" else ""
            raise UserError(f"config.model.{name}={ours} differs from the teacher's {theirs}{advice}")
    compared = COMPARED_HEADS + ((Head("hidden_states"),) if settings.hidden_weight else ())
    student = make_model(model, ingredients.compute, compared)
    teacher_model = make_model(teacher, ingredients.compute, compared)
    widths = (model.hidden_size, teacher.hidden_size)
    projected = settings.hidden_weight > 0 and widths[0] != widths[1]
    if projected and ingredients.has_init_weights:
        raise UserError(
            f"config.distillation.hidden_weight learns a projection from {widths[0]} to {widths[1]} features, which "
            "config.init_from does not hold; remove one of them"
        )
    if settings.attention_weight and (model.num_heads != teacher.num_heads or ingredients.packing > 1):
        raise UserError(
            f"config.distillation.attention_weight needs as many heads as the teacher's {teacher.num_heads} (here "
            f"{model.num_heads}), and config.data.packing=1"
        )
    teacher_depths = np.array(compared_teacher_depths(model.num_layers, teacher.num_layers))

    def projection_subtree(kernel: Any) -> Params:
        """Return the projection as a part of the run's tree next to the model; {} without a projection."""
        return {PROJECTION: {"kernel": kernel}} if projected else {}

    def init(rng: jax.Array) -> Params:
        kernel = jax.random.normal(jax.random.fold_in(rng, 1), widths) / math.sqrt(widths[0])
        return student.init(rng) | projection_subtree(kernel)

    def normalizers(batch: Batch) -> Normalizers:
        """Return the weighted numbers of masked tokens and of all tokens, at least 1 to avoid a division by 0."""
        return {
            "masked": jnp.maximum(jnp.sum(batch["masked_weights"]), 1.0),
            "tokens": jnp.maximum(jnp.sum(non_padding_mask(batch)), 1.0),
        }

    def loss(params: Params, frozen: Params, batch: Batch, rngs: Rngs, normalizers: Normalizers) -> LossAndMetrics:
        outputs = student.apply(params, batch, rngs.dropout)
        known = jax.lax.stop_gradient(teacher_model.apply(frozen, batch, None))
        masked, log_z = masked_tokens.masked_targets(outputs["mlm_logits"], batch)
        taught, _ = masked_tokens.masked_targets(known["mlm_logits"], batch)
        soft = softened_kl_divergence(outputs["mlm_logits"], known["mlm_logits"], settings.temperature).reshape(-1)
        metrics = {
            "mlm_loss": Mean.of(masked.loss, masked.weights),
            "soft_loss": Mean.of(settings.soft_weight * soft, masked.weights),
            "mlm_accuracy": Mean.of(masked.correct, masked.weights),
            "teacher_accuracy": Mean.of(taught.correct, taught.weights),
        }
        value = (metrics["mlm_loss"].total + metrics["soft_loss"].total) / normalizers["masked"]
        if settings.cosine_weight:
            angles = 1.0 - cosine_similarity(outputs["last_hidden_state"], known["last_hidden_state"])
            metrics["cosine_loss"] = Mean.of(settings.cosine_weight * angles, non_padding_mask(batch))
            value += metrics["cosine_loss"].total / normalizers["tokens"]
        if settings.hidden_weight:
            states = outputs["hidden_states"].astype(jnp.float32)
            states = states @ params[PROJECTION]["kernel"] if projected else states
            differences = jnp.mean((states - known["hidden_states"][teacher_depths]) ** 2, axis=(0, 3))
            metrics["hidden_loss"] = Mean.of(settings.hidden_weight * differences, non_padding_mask(batch))
            value += metrics["hidden_loss"].total / normalizers["tokens"]
        if settings.attention_weight:
            ours = attention_weights(model, params["encoder"], batch)
            theirs = attention_weights(teacher, frozen["encoder"], batch)[teacher_depths[1:] - 1]
            divergences = jnp.mean(attention_divergence(ours, jax.lax.stop_gradient(theirs)), axis=(0, 2))
            metrics["attention_loss"] = Mean.of(settings.attention_weight * divergences, non_padding_mask(batch))
            value += metrics["attention_loss"].total / normalizers["tokens"]
        if ingredients.z_loss:
            metrics["z_loss"] = masked_tokens.z_loss(ingredients.z_loss, log_z, masked.weights)
            value += metrics["z_loss"].total / normalizers["masked"]
        return value, metrics

    def flops(seq_len: int, phase: int) -> float:
        """Return the FLOPs of student training and teacher's forward pass; an attention term adds another pass."""
        forward = masked_tokens.masked_training_flops(teacher, ingredients.mask_rates, seq_len, phase) / 3
        again = model_flops(model, seq_len, 0) + model_flops(teacher, seq_len, 0) / 3
        training = masked_tokens.masked_training_flops(model, ingredients.mask_rates, seq_len, phase) + forward
        return training + again if settings.attention_weight else training

    return Objective(
        init=init,
        normalizers=normalizers,
        loss=loss,
        shapes=student.shapes | projection_subtree(jax.ShapeDtypeStruct(widths, jnp.float32)),
        logical_axes=student.logical_axes | projection_subtree(("embed", "features")),
        sections=student.sections | projection_subtree("heads"),
        flops=flops,
        num_heads=math.gcd(model.num_heads, teacher.num_heads),
        frozen_axes=teacher_model.logical_axes,
        init_frozen=teacher_model.init,
    )


def cosine_similarity(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the cosine of the angle between vectors along the last axis."""
    lengths = (jnp.sum(v * v, axis=-1) + SMALLEST for v in (x, y))
    return jnp.sum(x * y, axis=-1) / jnp.sqrt(math.prod(lengths))


def attention_divergence(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return the divergence, in nats, of the teacher's attention weights `[..., keys]` from the student's weights."""
    return jnp.sum(teacher * (jnp.log(teacher + SMALLEST) - jnp.log(student + SMALLEST)), axis=-1)


def copied_teacher_layers(num_layers: int, teacher_layers: int) -> list[int]:
    """Return the evenly spaced teacher layers from which a student starts, such as 0, 2, 4, 7, 9, 11 for 6 of 12."""
    return [round(layer * (teacher_layers - 1) / max(1, num_layers - 1)) for layer in range(num_layers)]


def compared_teacher_depths(num_layers: int, teacher_layers: int) -> list[int]:
    """Return the index of the teacher's hidden state for each hidden state of the student; 0 is the embeddings."""
    return [round(depth * teacher_layers / num_layers) for depth in range(num_layers + 1)]


def student_params_from_teacher(params: Params, teacher: EncoderConfig, model: EncoderConfig) -> Params:
    """Return the initial parameters of a student: the teacher's parameters with the layers of `copied_teacher_layers`.

    For a student without token types (DistilBERT), the teacher's first token type is added to the token table. The code
    of DistilBERT's authors adds no token type.

    Args:
        params: parameters of the teacher, with the masked-token head.
        teacher: architecture of the teacher.
        model: architecture of the student.

    Raises:
        UserError: the student differs from the teacher in more than depth.
    """
    shapes = make_model(model, ComputeConfig(), HEADS).shapes
    layers = np.array(copied_teacher_layers(model.num_layers, teacher.num_layers))
    params = jax.tree.map(lambda x: x, params)  # the caller's dictionaries stay as they are
    embeddings = params["encoder"]["embeddings"]
    params["encoder"]["layers"] = jax.tree.map(
        lambda x: x if model.share_layers else np.asarray(x)[layers], params["encoder"]["layers"]
    )
    if "token_type" in embeddings and not model.num_token_types and not model.trigram_embeddings:
        embeddings["token"] = embeddings["token"] + embeddings.pop("token_type")[0]
    params = {name: params[name] for name in shapes if name in params}
    copied_shapes, needed_shapes = (jax.tree.map(np.shape, tree) for tree in (params, shapes))
    must_match = {field.name for field in dataclasses.fields(teacher)} - MAY_DIFFER
    ours, theirs = fill_inherited_fields(model), fill_inherited_fields(teacher)
    unlike = sorted(name for name in must_match if getattr(ours, name) != getattr(theirs, name))
    advice = "set config.distillation.copy_layers=False for random weights"
    if model.num_layers > teacher.num_layers:
        raise UserError(
            f"config.model.num_layers={model.num_layers}, more than the teacher's {teacher.num_layers}, from "
            f"which a student starts; {advice}"
        )
    if unlike or copied_shapes != needed_shapes:
        raise UserError(
            "config.distillation.copy_layers needs a student that differs from its teacher in the number of layers "
            f"alone{f' (here also in {unlike[0]})' if unlike else ''}; {advice}"
        )
    return params
