"""Vectors of tokens from their neighbors in a text, without training: the factors of a matrix of co-occurrences.

A token gets a row of numbers: for each context, a neighboring token at one of four distances, the positive pointwise
mutual information (PPMI) of token and context. The left singular vectors of all rows, times the roots of the singular
values, are the vectors (Levy, Goldberg and Dagan 2015, "Improving Distributional Similarity with Lessons Learned from
Word Embeddings").
"""

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


def cooccurrence_vectors(split: ReadableSplit, vocab_size: int, size: int, max_tokens: int = MAX_TOKENS) -> np.ndarray:
    """Return a vector for each token of a vocabulary, float32 `[vocab_size, size]`.

    The vector of a token that occurs beside another token more often than by chance has the length 1. All other vectors
    are 0.

    Args:
        split: the text.
        vocab_size: size of the vocabulary.
        size: size of the vectors. A vocabulary of at most `size` tokens has fewer singular vectors; the other entries
            of its vectors are 0.
        max_tokens: number of tokens that are read from a larger text.
    """
    matrix = scipy.sparse.hstack(
        [
            WEIGHTS[distance] * positive_mutual_information(counts)
            for distance, counts in neighbor_counts(split, vocab_size, max_tokens).items()
        ]
    ).tocsr()
    vectors = np.zeros((vocab_size, size), np.float32)
    if matrix.nnz:
        rank = min(size, vocab_size - 1)
        # A fixed start makes the result equal in all runs on a machine.
        left, values, _ = scipy.sparse.linalg.svds(matrix, rank, v0=np.ones(vocab_size))
        rows = np.flatnonzero(np.diff(matrix.indptr))
        scaled = (left * np.sqrt(values))[rows]
        vectors[rows, :rank] = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
    return vectors


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
