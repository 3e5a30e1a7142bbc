"""Attention over all layers (rollout, and relevance by weights and gradients), and attention between words."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.models import Head, Params, attention_weights
from bert_jax.models.model import apply_with_attention_weights
from bert_jax.objectives import Batch


class RelevanceTarget(NamedTuple):
    """The model output that is explained by the relevance of tokens, and the description of this output."""

    logits: Callable[[Mapping[str, jax.Array]], jax.Array]  # output arrays of the model -> logits, float [classes]
    description: str


class Relevance(NamedTuple):
    """The relevance of each token for an answer of the model, float `[tokens]`, and this answer."""

    tokens: np.ndarray
    target: str  # description of the output, such as "the class"
    answer: str  # a token, or a class
    probability: float | None  # probability of the answer; None for a head of one output
    is_token: bool  # the answer is the token at the first mask


# Head -> the logits of its answers; the score is the largest logit.
TARGETS: dict[str, RelevanceTarget] = {
    "masked_token": RelevanceTarget(lambda arrays: arrays["mlm_logits"][0, 0], "the token at the first mask"),
    "sequence_classification": RelevanceTarget(lambda arrays: arrays["sequence_logits"][0], "the class"),
}

# Pooling of a classifier -> function from the relevance for each token, `[tokens, tokens]`, to the relevance for the
# pooled vector, `[tokens]`.
POOLED_RELEVANCE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "first": lambda relevance: relevance[0],
    "mean": lambda relevance: relevance.mean(0),
}


def attention_rollout(weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the fraction of each input token in each output token, float `[tokens, tokens]`; a row sums to 1.

    Attention rollout (Abnar and Zuidema 2020) averages the heads of a layer, takes half of each token from the residual
    connection, and multiplies the matrices of the layers.

    Args:
        weights: float `[heads, queries, keys]` per layer, first layer first.
    """
    reached = np.eye(weights[0].shape[-1])
    for layer in weights:
        reached = (layer.mean(0) + np.eye(len(reached))) / 2 @ reached
    return reached


def gradient_relevance(weights: Sequence[np.ndarray], gradients: Sequence[np.ndarray]) -> np.ndarray:
    """Return the relevance of each input token for each output token, float `[tokens, tokens]`.

    The method is gradient-weighted relevance for self-attention (Chefer et al. 2021, "Generic Attention-model
    Explainability"). The relevance matrix R starts as the identity. Each layer adds A @ R to R, where A is the mean
    over heads of max(0, gradient * weight).

    Args:
        weights: as in `attention_rollout`.
        gradients: gradients of the score with respect to each weight, in the shapes of `weights`.
    """
    relevance = np.eye(weights[0].shape[-1])
    for layer, gradient in zip(weights, gradients, strict=True):
        relevance = relevance + np.maximum(layer * gradient, 0).mean(0) @ relevance
    return relevance


def attention_weights_by_layer(model: OpenModel, batch: Batch, queries: slice = slice(None)) -> list[np.ndarray]:
    """Return the attention weights of the heads of each layer, as a float32 array `[heads, queries, keys]` per layer.

    Args:
        model: a model of any kind.
        batch: a batch of one sequence.
        queries: the tokens whose attention is returned; the attention of all tokens of a long text would fill the
            memory.
    """
    compute = jax.jit(lambda params, batch: attention_weights(model.config, params, batch, queries))
    return list(np.asarray(compute(model.params["encoder"], batch))[:, 0])


class WeightsAndRelevance(NamedTuple):
    """The attention weights of each layer, and the relevance of each token for the answer of the head."""

    weights: list[np.ndarray]
    relevance: Relevance | None


def weights_and_relevance(model: OpenModel, batch: Batch) -> WeightsAndRelevance:
    """Return the result of `attention_weights_by_layer`, and the relevance of each token for the most probable answer.

    The answer of a masked-token head is the token that this head predicts at the first mask of the text. The answer of
    a classifier is the predicted class. The relevance is None if the model has no masked-token head and no classifier,
    or if a masked-token head gets a text without a mask.

    Args:
        model: a model with its heads.
        batch: a batch of one sequence.
    """
    masks = np.flatnonzero(batch["input_ids"][0] == model.tokenizer.mask_id)
    heads = [head for head in model.heads if head.name in TARGETS]
    head = next((head for head in heads if head.classes), heads[0] if heads and masks.size else None)
    if head is None:
        return WeightsAndRelevance(attention_weights_by_layer(model, batch), None)
    position = int(masks[0]) if masks.size and not head.classes else 0
    batch = {**batch, "masked_positions": np.array([[position]], np.int32)}
    names = model.labels if head.classes else model.tokenizer.tokens
    weights, gradients, logits = _weights_and_gradients(model, head, batch)
    relevance = gradient_relevance(weights, gradients)
    relevance -= np.eye(len(relevance), dtype=relevance.dtype)  # the relevance starts as the identity
    row = POOLED_RELEVANCE[model.config.pooling](relevance) if head.classes else relevance[position]
    answer = int(logits.argmax())
    name = names[answer] if answer < len(names) else str(answer)
    probability = _answer_probability(logits, answer, is_multi_label=bool(model.problem))
    description = TARGETS[head.name].description
    return WeightsAndRelevance(weights, Relevance(row, description, name, probability, not head.classes))


def token_to_word_attention(matrix: np.ndarray, words: np.ndarray, first: int = 0) -> np.ndarray:
    """Return the attention between words, computed from the attention between tokens; row sums do not change.

    As in Clark et al. 2019, the attention to a word is the sum of the attention to its tokens, and the attention of a
    word is the mean of the attention of its tokens. A word gets a row only if all tokens of the word are queries.

    Args:
        matrix: float `[..., queries, tokens]`.
        words: int `[tokens]`, the index of each token's word, ascending from 0.
        first: index of the first query among the tokens.
    """
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    spans = zip(starts - first, np.append(starts[1:], len(words)) - first, strict=True)
    inside = [slice(begin, end) for begin, end in spans if begin >= 0 and end <= matrix.shape[-2]]
    rows = [matrix[..., span, :].mean(-2) for span in inside]
    return np.add.reduceat(np.stack(rows, -2), starts, -1)


class _WeightsAndGradients(NamedTuple):
    """Attention weights, the gradients of the largest logit by these weights, and all logits, float `[classes]`."""

    weights: list[np.ndarray]
    gradients: list[np.ndarray]
    logits: np.ndarray


def _weights_and_gradients(model: OpenModel, head: Head, batch: Batch) -> _WeightsAndGradients:
    """Return attention weights, the gradients of the largest logit by these weights, and all logits."""

    def largest_and_all_logits(probes: jax.Array, params: Params) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """Return the largest logit, and (all logits, attention weights); attention weights include `probes`."""
        arrays, weights = apply_with_attention_weights(model.config, (head,), params, batch, probes)
        logits = TARGETS[head.name].logits(arrays)
        return logits.max(), (logits, weights)

    config, length = model.config, batch["input_ids"].shape[1]
    zeros = jnp.zeros((config.num_layers, 1, config.num_heads, length, length), jnp.float32)
    # The parameters are an argument, because the compiler would fold constants.
    gradients, (logits, weights) = jax.jit(jax.grad(largest_and_all_logits, has_aux=True))(zeros, model.params)
    return _WeightsAndGradients(list(np.asarray(weights)[:, 0]), list(np.asarray(gradients)[:, 0]), np.asarray(logits))


def _answer_probability(logits: np.ndarray, answer: int, is_multi_label: bool) -> float | None:
    """Return the probability of an answer; None for a head with only one output, which gives no probabilities."""
    if len(logits) == 1:
        return None
    return float((jax.nn.sigmoid if is_multi_label else jax.nn.softmax)(jnp.asarray(logits))[answer])
