"""Vectors of tokens from their neighbors in a text, without training: the factors of a matrix of co-occurrences.

A context is a neighboring token at one of four distances. The matrix has a row for each token: the positive pointwise
mutual information (PPMI) of the token and each context. The left singular vectors of the matrix, times the roots of the
singular values, are the vectors (Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity with Lessons
Learned from Word Embeddings").
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from bert_jax.corpus.statistics import samples_of_sources
from bert_jax.corpus.store import ReadableSplit

WEIGHTS = {-1: 1.0, 1: 1.0, -2: 0.7, 2: 0.7}  # distance from a token to its context -> weight of the context's columns
CONTEXT_POWER = 0.75  # exponent that smooths the frequencies of contexts (Levy et al. 2015, 3.2)
DISCOUNT = 0.5  # subtracted from each count of a pair, because a pair that occurs once is often chance
MAX_TOKENS = 30_000_000  # maximum number of tokens to count; a larger text is sampled by records
NOISE = 1e-6  # a vector that explains a smaller fraction of the row's squared length is a rounding error
_RECORDS_AT_ONCE = 8_192


class Cooccurrence(NamedTuple):
    """The frequencies of the tokens of a text, and the mutual information of neighboring tokens."""

    frequencies: np.ndarray  # float64 [vocab_size], for tokens that have a neighbor; the sum is 1, or 0 without pairs
    information: dict[int, scipy.sparse.csr_matrix]  # distance from token to context -> PPMI [tokens, contexts], nats


def count_cooccurrences(
    split: ReadableSplit,
    vocab_size: int,
    passes_per_source: np.ndarray | None = None,
    max_distance: int = 2,
    max_tokens: int = MAX_TOKENS,
) -> Cooccurrence:
    """Return the co-occurrences of tokens in a text; each source counts as often as training reads the source.

    Args:
        split: the text.
        vocab_size: number of tokens of the vocabulary.
        passes_per_source: number of times that a token of each source counts, float64 `[sources]`; None: once.
        max_distance: largest distance between a token and its context, in both directions.
        max_tokens: maximum number of tokens that are counted; of a larger text, a random sample of records is read.
    """
    following = neighbor_counts(split, vocab_size, passes_per_source, max_distance, max_tokens)
    preceding = {-distance: NeighborCounts(*(x.T.tocsr() for x in counts)) for distance, counts in following.items()}
    pairs = following[1].pairs
    occurrences = np.asarray(pairs.sum(axis=1).ravel() + pairs.sum(axis=0), np.float64).ravel()
    return Cooccurrence(
        occurrences / (occurrences.sum() or 1.0),
        {distance: positive_mutual_information(counts) for distance, counts in (following | preceding).items()},
    )


def cooccurrence_vectors(cooccurrence: Cooccurrence, size: int) -> np.ndarray:
    """Return a vector for each token of a vocabulary, float32 `[vocab_size, size]`.

    A vector has the length 1 or 0. The length is 0 if the token occurs beside no other token more often than by chance,
    or if the first `size` singular vectors explain nothing of the token's row. A vocabulary of at most `size` tokens
    has fewer singular vectors; the other entries of its vectors are 0.
    """
    matrix = scipy.sparse.hstack(
        [weight * cooccurrence.information[distance] for distance, weight in WEIGHTS.items()]
    ).tocsr()
    vocab_size = matrix.shape[0]
    vectors = np.zeros((vocab_size, size), np.float32)
    rank = min(size, vocab_size - 1)
    if matrix.nnz and rank:
        # Left singular vectors are eigenvectors of the matrix times its transpose. The seed makes the result equal in
        # all runs on a machine.
        transposed = matrix.T.tocsr()
        product = scipy.sparse.linalg.LinearOperator(
            (vocab_size, vocab_size), lambda x: matrix @ (transposed @ x), dtype=np.float64
        )
        squares, left = scipy.sparse.linalg.eigsh(product, rank, rng=0)
        squares = np.maximum(squares, 0.0)
        row_squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        rows = np.flatnonzero((row_squares > 0) & (left**2 @ squares > NOISE * row_squares))
        scaled = left[rows] * squares**0.25
        vectors[rows, :rank] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
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


class NeighborCounts(NamedTuple):
    """Counts of the pairs of a token and a context, float64 sparse matrices `[vocab_size tokens, contexts]`."""

    pairs: scipy.sparse.csr_matrix
    discounted: scipy.sparse.csr_matrix  # `pairs`, after DISCOUNT is subtracted from each count of a source


def neighbor_counts(
    split: ReadableSplit, vocab_size: int, passes_per_source: np.ndarray | None, max_distance: int, max_tokens: int
) -> dict[int, NeighborCounts]:
    """Return the counts of the pairs whose context follows the token at each distance from 1 to `max_distance`.

    Both tokens of a pair are in one record of `split`; `count_cooccurrences` explains the arguments.
    """
    nothing = scipy.sparse.csr_matrix((vocab_size, vocab_size))
    totals = dict.fromkeys(range(1, max_distance + 1), NeighborCounts(nothing, nothing))
    for sample in samples_of_sources(split, passes_per_source, max_tokens):
        for distance, pairs in _count_pairs(split, sample.records, vocab_size, max_distance).items():
            discounted = pairs.copy()
            discounted.data = discounted.data - DISCOUNT
            total = totals[distance]
            totals[distance] = NeighborCounts(
                total.pairs + sample.weight * pairs, total.discounted + sample.weight * discounted
            )
    return totals


def _count_pairs(
    split: ReadableSplit, records: np.ndarray, vocab_size: int, max_distance: int
) -> dict[int, scipy.sparse.csr_matrix]:
    """Return, by distance, how often each context follows each token in some records, `[vocab_size, vocab_size]`."""
    counts = dict.fromkeys(range(1, max_distance + 1), scipy.sparse.csr_matrix((vocab_size, vocab_size)))
    for begin in range(0, len(records), _RECORDS_AT_ONCE):
        chunk = records[begin : begin + _RECORDS_AT_ONCE]
        tokens = split.read(chunk).tokens.astype(np.int64)
        record = np.repeat(np.arange(len(chunk)), split.tokens_per_record[chunk])
        for distance in counts:
            same = record[:-distance] == record[distance:]
            pairs, occurrences = np.unique(
                tokens[:-distance][same] * vocab_size + tokens[distance:][same], return_counts=True
            )
            indices = np.divmod(pairs, vocab_size)
            counts[distance] += scipy.sparse.csr_matrix((occurrences, indices), (vocab_size, vocab_size))
    return counts


def positive_mutual_information(counts: NeighborCounts) -> scipy.sparse.csr_matrix:
    """Return max(0, log(p(token, context) / (p(token) p(context)))) of each pair, in nats.

    DISCOUNT is subtracted from each count of a pair, and p(context) is proportional to its frequency to the power of
    CONTEXT_POWER.
    """
    pairs = counts.discounted.tocoo()
    token = np.asarray(counts.pairs.sum(axis=1)).ravel()
    context = np.asarray(counts.pairs.sum(axis=0)).ravel() ** CONTEXT_POWER
    expected = token[pairs.row] * context[pairs.col] / context.sum()
    values = np.maximum(0.0, np.log(pairs.data / expected))
    result = scipy.sparse.csr_matrix((values, (pairs.row, pairs.col)), counts.pairs.shape)
    result.eliminate_zeros()
    return result
