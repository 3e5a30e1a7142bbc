"""The initial weights of a new model that come from counts of its corpus, without training (`corpus_vectors`).

The token table holds vectors of co-occurrence, and the bias of the vocabulary head holds the log frequencies of the
tokens. Each neighbor head of the first block (models/init.py) reads one neighbor. The value and output maps of the head
start so that the head raises the scores of tokens that often occur beside this neighbor.
"""

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jax.experimental import multihost_utils

from bert_jax.config import EncoderConfig
from bert_jax.console import Console
from bert_jax.corpus.cooccurrence import bilinear_factors, cooccurrence_vectors, count_cooccurrences
from bert_jax.corpus.store import ReadableSplit
from bert_jax.models import Params
from bert_jax.models.init import VARIANCE, init_scales, offsets_of_neighbor_heads
from bert_jax.objectives import Objective
from bert_jax.training.step import random_params

HEAD_OUTPUT = 0.6  # root mean square of a neighbor head's output, as a fraction of the embeddings' root mean square
RARE = 1e-6  # added to each frequency, because a token may be absent from the text that is counted


def random_weights_with_corpus_vectors(
    seed: int,
    objective: Objective,
    model: EncoderConfig,
    text: ReadableSplit,
    passes_per_source: np.ndarray,
    console: Console,
) -> Params:
    """Return random initial parameters, with some of them replaced by counts of `text`.

    A token of source k of the text counts `passes_per_source[k]` times. Only the first process counts; all other
    processes receive its parameters. A line on the console says how many tokens have vectors.
    """
    params: Params = jax.device_get(jax.jit(functools.partial(random_params, seed, objective))())
    if jax.process_index() == 0:
        console.say("counting the neighbors of tokens in the text (usually less than a minute) ...")
        # A causal model predicts the next token, whose distance from the context is larger by 1.
        shift = 1 if model.causal else 0
        cooccurrence = count_cooccurrences(text, model.vocab_size, passes_per_source, max_distance=2 + shift)
        vectors = cooccurrence_vectors(cooccurrence, model.table_width - 1)
        count = int(np.count_nonzero(vectors.any(axis=1)))
        console.say(f"the token table starts with vectors of co-occurrence for {count:,} of {len(vectors):,} tokens")
        tables, head = params["encoder"]["embeddings"], params["next_token" if model.causal else "masked_token"]
        tables["token"] = table_with_vectors(tables["token"], vectors, model.initializer_range * math.sqrt(VARIANCE))
        head["bias"] = bias_with_frequencies(head["bias"], cooccurrence.frequencies)
        if init_scales(model).neighbors and model.table_width == model.hidden_size:
            attention = params["encoder"]["layers"]["attention"]
            size = HEAD_OUTPUT * (1.0 if model.embedding_norm else model.initializer_range * math.sqrt(1 + VARIANCE))
            kernels = HeadKernels(attention["value"]["kernel"], attention["output"]["kernel"])
            offsets = offsets_of_neighbor_heads(model)
            information = {offset: cooccurrence.information[offset - shift] for offset in offsets}
            kernels = predicting_kernels(
                kernels, model.head_dim, offsets, information, cooccurrence.frequencies, vectors, size
            )
            attention["value"]["kernel"], attention["output"]["kernel"] = kernels
    shared: Params = multihost_utils.broadcast_one_to_all(params)
    return shared


def vector_directions(width: int) -> np.ndarray:
    """Return orthonormal columns `[width, width - 1]`, which carry vectors into the rows of a token table.

    The columns are orthogonal to the direction that the neighbor heads read (models/init.py). Random columns spread the
    first, largest entries of the vectors over all features of the model.
    """
    random = np.random.default_rng(0).normal(size=(width, width - 1))
    basis, _ = np.linalg.qr(np.hstack([_common_direction(width)[:, None], random]))
    return basis[:, 1:]


def _common_direction(width: int) -> np.ndarray:
    return (-1.0) ** np.arange(width) / math.sqrt(width)


def table_with_vectors(table: np.ndarray, vectors: np.ndarray, deviation: float) -> np.ndarray:
    """Return a token table whose rows hold `vectors`.

    Args:
        table: initial token table, float32 `[at least vocab_size, width]`.
        vectors: vectors of the length 1, float32 `[vocab_size, width - 1]`. Where a vector is 0, the row stays.
        deviation: standard deviation of the entries of the new rows.
    """
    width = table.shape[1]
    common = _common_direction(width)
    rows = np.flatnonzero(vectors.any(axis=1))
    new = table.copy()
    new[rows] = deviation * math.sqrt(width) * vectors[rows] @ vector_directions(width).T
    new[rows] += np.outer(table[rows] @ common, common)
    return new


def bias_with_frequencies(bias: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return the bias of a vocabulary head, float32 `[at least vocab_size]`, that predicts tokens by frequency.

    The entries of the vocabulary are log frequencies, moved so that their mean is 0.
    """
    log_frequencies = np.log(frequencies + RARE)
    new = bias.copy()
    new[: len(log_frequencies)] = log_frequencies - log_frequencies.mean()
    return new


class HeadKernels(NamedTuple):
    """Kernels of the attention heads of all blocks, float32."""

    value: np.ndarray  # [blocks, width, heads * head_dim]
    output: np.ndarray  # [blocks, heads * head_dim, width]


def predicting_kernels(
    kernels: HeadKernels,
    head_dim: int,
    offsets: list[int],
    information: dict[int, scipy.sparse.csr_matrix],
    frequencies: np.ndarray,
    vectors: np.ndarray,
    size: float,
) -> HeadKernels:
    """Return kernels with which the neighbor heads of the first block predict tokens by their neighbors.

    A head that attends to the offset o maps the row of the token c at o to a direction. The product of this direction
    and the row of a token t is proportional to `information[o][t, c]`, as nearly as the rank of the head permits.
    Heads with equal offset share the approximation; the first of these heads has the largest singular values.

    Args:
        kernels: the initial kernels.
        head_dim: size of a head.
        offsets: offset that each neighbor head attends to. The other heads of the block stay as they are.
        information: by offset, the PPMI of the predicted token and the token at the offset, `[tokens, contexts]`.
        frequencies: relative frequencies of the tokens, float64 `[vocab_size]`.
        vectors: the vectors in the rows of the token table, float32 `[vocab_size, width - 1]`.
        size: root mean square of the output of the heads of an offset, for inputs with the root mean square 1.
    """
    value, output = (kernel.copy() for kernel in kernels)
    directions = vector_directions(value.shape[1])
    for offset in sorted(set(offsets)):
        heads = np.flatnonzero(np.array(offsets) == offset)
        features = (heads[:, None] * head_dim + np.arange(head_dim)).ravel()
        contexts, tokens = (factor[: len(features)] for factor in bilinear_factors(information[offset], vectors))
        predictions = vectors @ contexts.T @ tokens
        mean_square = frequencies @ np.sum(predictions**2, axis=1)
        scale = math.sqrt(size / math.sqrt(mean_square)) if mean_square else 0.0
        value[0][:, features], output[0][features] = 0.0, 0.0  # there may be more features than factors
        value[0][:, features[: len(contexts)]] = scale * directions @ contexts.T
        output[0][features[: len(tokens)]] = scale * tokens @ directions.T
    return HeadKernels(value, output)
