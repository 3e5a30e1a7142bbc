"""Comparisons of vectors as rows of a table, and the regularization that keeps sparse vectors sparse."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

# (vectors of queries [queries, ...], vectors of documents [documents, ...]) -> float32 [queries, documents]
Scores = Callable[[jax.Array, jax.Array], jax.Array]


def inner_products(queries: jax.Array, documents: jax.Array) -> jax.Array:
    """Return the inner products of vectors `[queries, width]` and `[documents, width]`."""
    return jnp.matmul(queries, documents.T, precision=jax.lax.Precision.HIGHEST)


def max_sim(queries: jax.Array, documents: jax.Array) -> jax.Array:
    """Return MaxSim: the sum over a query's tokens of the largest inner product with a token of the document.

    A vector of zeros is no token (Khattab and Zaharia 2020). Memory holds the inner products of all queries with one
    document; the backward pass computes these products again. The documents are compared one after another, so that
    devices may share the queries.

    Args:
        queries: float32 `[queries, tokens, width]`.
        documents: float32 `[documents, tokens, width]`.
    """

    @jax.checkpoint
    def scores_of_document(document: jax.Array) -> jax.Array:
        is_token = jnp.any(document != 0, axis=-1)
        products = jnp.einsum("nqw,tw->nqt", queries, document, precision=jax.lax.Precision.HIGHEST)
        best = jnp.where(is_token, products, -jnp.inf).max(-1)
        return jnp.where(is_token.any(), best, 0.0).sum(-1)

    by_document: jax.Array = jax.lax.map(scores_of_document, documents)
    return by_document.T


SCORES: dict[str, Scores] = {"inner_product": inner_products, "max_sim": max_sim}


def flops_regularization(vectors: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the squared length of the mean of all sparse vectors (FLOPS; Paria et al. 2020), a float32 scalar.

    Args:
        vectors: float32 `[examples, texts, vocab]`.
        weights: float32 `[examples]`, 0 for an absent example.
    """
    total = weights.sum() * vectors.shape[1]
    mean = jnp.einsum("e,etv->v", weights, vectors) / jnp.where(total > 0, total, 1.0)
    return jnp.sum(mean**2)


def quadratic_warmup_factor(step: jax.Array, warmup_steps: float) -> jax.Array:
    """Return the factor of the regularization at a step: (step / warmup_steps)^2, and 1 from `warmup_steps` on."""
    return jnp.minimum(step / max(warmup_steps, 1.0), 1.0) ** 2
