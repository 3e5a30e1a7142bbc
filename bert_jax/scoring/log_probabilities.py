"""Log-probabilities of the tokens that queries ask for.

Queries are padded to a few lengths, so that only a few programs are compiled.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.scoring.queries import Queries, join_queries

BATCH_TOKENS = 8_192  # tokens in a batch, padding included
SPACING = 4  # padded lengths per doubling of the length, so that at most a fifth of the tokens is padding
MIN_LENGTH = 8
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.001, 1_000  # else float32 logits overflow, or all probabilities are equal

MASKED, NEXT = "masked_token", "next_sentence"
HEADS = (Head(MASKED),)

Progress = Callable[[int, int], None]  # (number of finished queries, number of all queries)
# (parameters, the queries of each text, progress) -> log-probabilities of each text's queries, float64 [queries]
Scorer = Callable[[Params, Sequence[Queries], Progress], list[np.ndarray]]


class QueryBatch(NamedTuple):
    """The plan of a batch: the indices of its queries, the padded length, and the number of sequences with filler."""

    indices: np.ndarray
    length: int
    batch_size: int


class QueryHead(NamedTuple):
    """A row of QUERY_HEADS: the token types that an output head reads, and the logits that answer a query."""

    token_types: Callable[[Batch], jax.Array]  # int32 [batch, length]
    logits: Callable[[Mapping[str, jax.Array]], jax.Array]  # arrays of the model -> float [batch, classes]


def _pair_token_type_ids(batch: Batch) -> jax.Array:
    """Return 1 for each token of the second text of a pair, else 0, int32 `[batch, length]`.

    The second text begins at the batch's `masked_positions`.
    """
    column = jnp.arange(batch["input_ids"].shape[1])
    return ((column >= batch["masked_positions"]) & (batch["attention_mask"] != 0)).astype(jnp.int32)


QUERY_HEADS = {
    MASKED: QueryHead(lambda batch: jnp.zeros_like(batch["input_ids"]), lambda arrays: arrays["mlm_logits"][:, 0]),
    NEXT: QueryHead(_pair_token_type_ids, lambda arrays: arrays["nsp_logits"]),
}


def make_log_probability_scorer(
    config: EncoderConfig,
    dtype: str,
    mesh: jax.sharding.Mesh,
    pad_id: int,
    temperature: float = 1.0,
    head: str = MASKED,
) -> Scorer:
    """Return a function from (parameters, queries, progress) to log-probabilities, which all processes must call.

    The argument `head` is a key of QUERY_HEADS. The argument `temperature` divides the logits before the softmax. Raise
    UserError unless the temperature lies from MIN_TEMPERATURE to MAX_TEMPERATURE.
    """
    if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise UserError(f"temperature {temperature}: give a number from {MIN_TEMPERATURE} to {MAX_TEMPERATURE:,}")
    (apply, names), blocks = (
        _compile_log_probabilities(config, dtype, mesh, temperature, head),
        sharding.batch_blocks(mesh),
    )
    shards = mesh.shape["data"] * mesh.shape["fsdp"]

    def query_log_probabilities(params: Params, queries: Sequence[Queries], progress: Progress) -> list[np.ndarray]:
        joined = join_queries(queries)
        scores = np.zeros(len(joined.inputs))
        used = {name: params[name] for name in names}
        num_done, pending = 0, None  # a batch is computed while the next batch is made

        def store_batch_scores(indices: np.ndarray, launched: jax.Array) -> None:
            nonlocal num_done
            scores[indices] = np.asarray(launched)[: len(indices)]
            num_done += len(indices)
            progress(num_done, len(scores))

        with jax.set_mesh(mesh):
            lengths = np.array([len(input_ids) for input_ids in joined.inputs], np.int64)
            for batch in plan_query_batches(lengths, config.max_positions, shards, config.max_dense_length):
                arrays = _collate(batch, joined, pad_id)
                size = batch.batch_size // blocks.num_blocks
                rows = np.concatenate([np.arange(n * size, (n + 1) * size) for n in blocks.blocks])
                placed = sharding.place_batch({name: x[rows] for name, x in arrays.items()}, mesh)
                launched = batch.indices, apply(used, placed)
                if pending:
                    store_batch_scores(*pending)
                pending = launched
            if pending:
                store_batch_scores(*pending)
        ends = np.cumsum([len(text.targets) for text in queries])
        return np.split(scores, ends[:-1]) if len(queries) else []

    return query_log_probabilities


def plan_query_batches(
    lengths: np.ndarray, max_length: int, shards: int, max_dense_length: float = math.inf
) -> Iterator[QueryBatch]:
    """Yield plans of batches for inputs with the given lengths; the longest inputs come first.

    All batches with the same padded length have the same size, except the last batch, which may be smaller.
    Block-sparse attention depends on the padded length, so inputs with dense attention are in batches of their own.

    Args:
        lengths: number of tokens of each input, int `[queries]`.
        max_length: maximum number of tokens of the model.
        shards: number of shards of a batch; the number of sequences in each batch is a multiple of this number.
        max_dense_length: number of tokens above which attention is block-sparse.
    """
    order = np.argsort(-lengths, kind="stable")
    num_sparse = int((lengths > max_dense_length).sum())
    dense_limit = int(min(max_length, max_dense_length))
    for group, limit in ((order[:num_sparse], max_length), (order[num_sparse:], dense_limit)):
        padded, start = padded_lengths(limit), 0
        while start < len(group):
            length = int(padded[np.searchsorted(padded, lengths[group[start]])])
            indices = group[start : start + max(BATCH_TOKENS // length // shards, 1) * shards]
            is_last = start + len(indices) == len(group)
            size = shards * (1 << max(-(-len(indices) // shards) - 1, 0).bit_length()) if is_last else len(indices)
            yield QueryBatch(indices, length, size)
            start += len(indices)


def padded_lengths(max_length: int) -> np.ndarray:
    """Return the lengths to which inputs may be padded: 8, 12, 16, 20, 24, 28, 32, 40, 48 ... up to `max_length`."""
    lengths = [MIN_LENGTH]
    while lengths[-1] < max_length:
        lengths.append(lengths[-1] + max(SPACING, (1 << (lengths[-1].bit_length() - 1)) // SPACING))
    return np.array([*lengths[:-1], max_length]) if lengths[-1] > max_length else np.array(lengths)


def _collate(batch: QueryBatch, queries: Queries, pad_id: int) -> Batch:
    """Return the padded arrays of a planned batch; copies of its first query fill the batch."""
    fillers = np.repeat(batch.indices[:1], batch.batch_size - len(batch.indices))
    indices = np.concatenate([batch.indices, fillers])
    inputs = [queries.inputs[index] for index in indices]
    present = np.arange(batch.length) < np.array([len(input_ids) for input_ids in inputs])[:, None]
    input_ids = np.full(present.shape, pad_id, np.int32)
    input_ids[present] = np.concatenate(inputs)
    return {
        "input_ids": input_ids,
        "attention_mask": present.astype(np.int32),
        "masked_positions": queries.positions[indices][:, None],
        "masked_labels": queries.targets[indices][:, None],
    }


class _LogProbabilityProgram(NamedTuple):
    """A jitted function for log-probabilities, and the names of the parameter sections that this function reads."""

    log_probabilities: Callable[[Params, Batch], jax.Array]
    parameter_names: tuple[str, ...]


@functools.lru_cache(maxsize=8)
def _compile_log_probabilities(
    config: EncoderConfig, dtype: str, mesh: jax.sharding.Mesh, temperature: float, head: str
) -> _LogProbabilityProgram:
    """Return a jitted function (params, batch) -> log-probabilities of the batch's `masked_labels`, float32 `[batch]`.

    The second result names the sections of the parameters that the jitted function reads.
    """
    # The attention "xla" accepts any sequence length; the fused kernels of accelerators need longer sequences.
    model = make_model(config, ComputeConfig(dtype=dtype, attention="xla"), (Head(head),))
    query_head = QUERY_HEADS[head]

    def log_probabilities(params: Params, batch: Batch) -> jax.Array:
        batch = {**batch, "token_type_ids": query_head.token_types(batch)}
        logits, labels = query_head.logits(model.apply(params, batch, None)), batch["masked_labels"]
        return jnp.take_along_axis(jax.nn.log_softmax(logits / temperature), labels, axis=-1)[:, 0]

    return _LogProbabilityProgram(
        jax.jit(log_probabilities, out_shardings=sharding.replicated(mesh)), tuple(model.shapes)
    )
