"""Vectors of tokens from their neighbors in a text, without training: the factors of a matrix of co-occurrences.

A token gets a row of numbers: for each context, a neighboring token at one of four distances, the positive pointwise
mutual information (PPMI) of token and context. The left singular vectors of all rows, times the roots of the singular
values, are the vectors (Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity with Lessons Learned from
Word Embeddings").
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from bert_jax.corpus.statistics import random_indices_within_cost
from bert_jax.corpus.store import ReadableSplit

WEIGHTS = {-1: 1.0, 1: 1.0, -2: 0.7, 2: 0.7}  # distance from a token to its context -> weight of the context's columns
CONTEXT_POWER = 0.75  # frequencies of contexts are smoothed by this power (Levy et al. 2015, 3.2)
DISCOUNT = 0.5  # of each count, because a pair that occurs once is often chance
MAX_TOKENS = 30_000_000  # of a larger text, a random sample of records is read
_RECORDS_AT_ONCE = 8_192


class Cooccurrence(NamedTuple):
    """The frequencies of the tokens of a text, and the mutual information of neighboring tokens."""

    frequencies: np.ndarray  # of tokens that have a neighbor, float64 [vocab_size]; their sum is 1, or 0 without pairs
    information: dict[int, scipy.sparse.csr_matrix]  # distance from token to context -> PPMI [tokens, contexts], nats


def count_cooccurrences(split: ReadableSplit, vocab_size: int, max_tokens: int = MAX_TOKENS) -> Cooccurrence:
    """Return the co-occurrences in at most `max_tokens` tokens of the text `split`."""
    counts = neighbor_counts(split, vocab_size, max_tokens)
    occurrences = np.asarray(counts[-1].sum(axis=1) + counts[1].sum(axis=1), np.float64).ravel()
    return Cooccurrence(
        occurrences / max(1.0, occurrences.sum()),
        {distance: positive_mutual_information(pairs) for distance, pairs in counts.items()},
    )


def cooccurrence_vectors(cooccurrence: Cooccurrence, size: int) -> np.ndarray:
    """Return a vector for each token of a vocabulary, float32 `[vocab_size, size]`.

    The vector of a token that occurs beside another token more often than by chance has the length 1. All other vectors
    are 0. A vocabulary of at most `size` tokens has fewer singular vectors; the other entries of its vectors are 0.
    """
    matrix = scipy.sparse.hstack(
        [WEIGHTS[distance] * information for distance, information in cooccurrence.information.items()]
    ).tocsr()
    vocab_size = matrix.shape[0]
    vectors = np.zeros((vocab_size, size), np.float32)
    if matrix.nnz:
        rank = min(size, vocab_size - 1)
        # A fixed start makes the result equal in all runs on a machine.
        left, values, _ = scipy.sparse.linalg.svds(matrix, rank, v0=np.ones(vocab_size))
        rows = np.flatnonzero(np.diff(matrix.indptr))
        scaled = (left * np.sqrt(values))[rows]
        vectors[rows, :rank] = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
    return vectors


def bilinear_factors(information: scipy.sparse.csr_matrix, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors `contexts` and `tokens` of the bilinear form of vectors that is nearest to `information`.

    The information of a token t and a context c is about `(contexts @ vectors[c]) @ (tokens @ vectors[t])`. The rows of
    the factors are in the order of their singular values, so the first r rows are the best form of rank r.

    Args:
        information: a matrix of numbers, `[vocab_size tokens, vocab_size contexts]`.
        vectors: vectors of the vocabulary, float32 `[vocab_size, size]`.

    Returns:
        Two matrices, float64 `[size, size]`.
    """
    inverse = np.linalg.pinv(vectors.astype(np.float64), rcond=1e-6)
    left, values, right = np.linalg.svd(inverse @ (information @ inverse.T))
    return np.sqrt(values)[:, None] * right, np.sqrt(values)[:, None] * left.T


def neighbor_counts(split: ReadableSplit, vocab_size: int, max_tokens: int) -> dict[int, scipy.sparse.csr_matrix]:
    """Return, for each distance of WEIGHTS, how often each pair of a token and a context at that distance occurs.

    Each matrix is `[vocab_size tokens, vocab_size contexts]`. Both tokens of a pair are in one record of `split`.
    """
    records = random_indices_within_cost(split.tokens_per_record, max_tokens)
    counts = {distance: scipy.sparse.csr_matrix((vocab_size, vocab_size)) for distance in WEIGHTS if distance > 0}
    for begin in range(0, len(records), _RECORDS_AT_ONCE):
        chunk = records[begin : begin + _RECORDS_AT_ONCE]
        tokens = split.read(chunk).tokens.astype(np.int64)
        record = np.repeat(np.arange(len(chunk)), split.tokens_per_record[chunk])
        for distance in counts:
            same = record[:-distance] == record[distance:]
            pairs, occurrences = np.unique(
                tokens[:-distance][same] * vocab_size + tokens[distance:][same], return_counts=True
            )
            places = np.divmod(pairs, vocab_size)
            counts[distance] += scipy.sparse.csr_matrix((occurrences, places), (vocab_size, vocab_size))
    return {distance: counts[distance] if distance > 0 else counts[-distance].T.tocsr() for distance in WEIGHTS}


def positive_mutual_information(counts: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Return max(0, log(p(token, context) / (p(token) p(context)))) of each pair in `counts`, in nats.

    DISCOUNT is subtracted from each count of a pair, and p(context) is proportional to its frequency to the power of
    CONTEXT_POWER.
    """
    pairs = counts.tocoo()
    token = np.asarray(counts.sum(axis=1)).ravel()
    context = np.asarray(counts.sum(axis=0)).ravel() ** CONTEXT_POWER
    expected = token[pairs.row] * context[pairs.col] / context.sum()
    values = np.maximum(0.0, np.log((pairs.data - DISCOUNT) / expected))
    result = scipy.sparse.csr_matrix((values, (pairs.row, pairs.col)), counts.shape)
    result.eliminate_zeros()
    return result
