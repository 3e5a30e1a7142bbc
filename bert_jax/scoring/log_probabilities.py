"""Queries -> the log-probability of each token, by one jitted program for each of a few lengths."""

import functools
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
from bert_jax.scoring.queries import Queries

HEADS = (Head("masked_token"),)
BATCH_TOKENS = 8_192  # of a batch, padding included
SPACING = 4  # buckets per doubling of the length, so that padding is at most a fifth
SHORTEST = 8

MASKED, NEXT = "masked_token", "next_sentence"

Progress = Callable[[int, int], None]  # how many are done, and of how many
# (parameters of any heads, the queries of each text, progress) -> float64 [queries] for each text
Scorer = Callable[[Params, Sequence[Queries], Progress], list[np.ndarray]]


class Planned(NamedTuple):
    """One batch: the numbers of its queries, the length of its sequences, and how many there are with fillers."""

    indices: np.ndarray
    length: int
    batch_size: int


def make_scorer(
    config: EncoderConfig,
    dtype: str,
    mesh: jax.sharding.Mesh,
    pad_id: int,
    temperature: float = 1.0,
    head: str = MASKED,
) -> Scorer:
    """Return a function of parameters and queries; every process of the mesh calls it and gets all results.

    `head` is a row of READS, which answers the queries. Logits are divided by `temperature` before the softmax. Raises
    UserError for one that is not above 0.
    """
    if not temperature > 0:
        raise UserError(f"temperature {temperature}: give a number above 0")
    (apply, names), blocks = _compiled(config, dtype, mesh, temperature, head), sharding.batch_blocks(mesh)
    shards = mesh.shape["data"] * mesh.shape["fsdp"]

    def score(params: Params, queries: Sequence[Queries], progress: Progress) -> list[np.ndarray]:
        inputs = [one for text in queries for one in text.inputs]
        positions, targets = (
            np.concatenate([np.zeros(0, np.int32), *parts])
            for parts in ([text.positions for text in queries], [text.targets for text in queries])
        )
        found = np.zeros(len(inputs))
        used = {name: params[name] for name in names}
        done, waiting = 0, None  # one batch is computed while the next one is made

        def finish(indices: np.ndarray, launched: jax.Array) -> None:
            nonlocal done
            found[indices] = np.asarray(launched)[: len(indices)]
            done += len(indices)
            progress(done, len(inputs))

        with jax.set_mesh(mesh):
            for planned in plan(np.array([len(one) for one in inputs], np.int64), config.max_positions, shards):
                batch = _collate(planned, inputs, positions, targets, pad_id)
                size = planned.batch_size // blocks.num_blocks
                part = np.concatenate([np.arange(n * size, (n + 1) * size) for n in blocks.blocks])
                placed = sharding.place_batch({name: x[part] for name, x in batch.items()}, mesh)
                launched = planned.indices, apply(used, placed)
                if waiting:
                    finish(*waiting)
                waiting = launched
            if waiting:
                finish(*waiting)
        ends = np.cumsum([len(text.targets) for text in queries])
        return np.split(found, ends[:-1]) if len(queries) else []

    return score


def plan(lengths: np.ndarray, longest: int, shards: int) -> Iterator[Planned]:
    """Yield the batches of all inputs, the longest first, so that each length but the last has one batch size.

    Args:
        lengths: int `[queries]`, tokens of each input.
        longest: tokens that the model reads.
        shards: divides the size of each batch.
    """
    order, ends, start = np.argsort(-lengths, kind="stable"), buckets(longest), 0
    while start < len(order):
        length = int(ends[np.searchsorted(ends, lengths[order[start]])])
        indices = order[start : start + max(BATCH_TOKENS // length // shards, 1) * shards]
        full = start + len(indices) < len(order)
        size = len(indices) if full else shards * (1 << max(-(-len(indices) // shards) - 1, 0).bit_length())
        yield Planned(indices, length, size)
        start += len(indices)


def buckets(longest: int) -> np.ndarray:
    """Return the lengths that inputs are padded to: multiples of 4 up to 16, then 20, 24, 28, 32, 40, 48 ..."""
    found = [SHORTEST]
    while found[-1] < longest:
        found.append(found[-1] + max(SPACING, (1 << (found[-1].bit_length() - 1)) // SPACING))
    return np.array([*found[:-1], longest]) if found[-1] > longest else np.array(found)


def _collate(
    planned: Planned, inputs: Sequence[np.ndarray], positions: np.ndarray, targets: np.ndarray, pad_id: int
) -> Batch:
    """The arrays of a batch; fillers are copies of its first query."""
    indices = np.concatenate(
        [planned.indices, np.repeat(planned.indices[:1], planned.batch_size - len(planned.indices))]
    )
    chosen = [inputs[index] for index in indices]
    present = np.arange(planned.length) < np.array([len(one) for one in chosen])[:, None]
    input_ids = np.full(present.shape, pad_id, np.int32)
    input_ids[present] = np.concatenate(chosen)
    return {
        "input_ids": input_ids,
        "attention_mask": present.astype(np.int32),
        "masked_positions": positions[indices][:, None],
        "masked_labels": targets[indices][:, None],
    }


def _at_masks(batch: Batch, found: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return found["mlm_logits"][:, 0], batch["masked_labels"][:, 0]


def _of_pairs(batch: Batch, found: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    return found["nsp_logits"], batch["masked_labels"][:, 0]


def _second_texts(batch: Batch) -> jax.Array:
    """1 from `masked_positions` on, where the second text of a pair begins."""
    column = jnp.arange(batch["input_ids"].shape[1])
    return ((column >= batch["masked_positions"]) & (batch["attention_mask"] != 0)).astype(jnp.int32)


class Read(NamedTuple):
    """A row of READS: how a head answers a query."""

    token_types: Callable[[Batch], jax.Array]  # int32 [batch, length]
    answers: Callable[[Batch, Mapping[str, jax.Array]], tuple[jax.Array, jax.Array]]  # logits, and the class asked for


READS = {
    MASKED: Read(lambda batch: jnp.zeros_like(batch["input_ids"]), _at_masks),
    NEXT: Read(_second_texts, _of_pairs),
}


@functools.lru_cache(maxsize=8)
def _compiled(
    config: EncoderConfig, dtype: str, mesh: jax.sharding.Mesh, temperature: float, head: str
) -> tuple[Callable[[Params, Batch], jax.Array], tuple[str, ...]]:
    """A jitted function (params, batch) -> the log-probabilities of `masked_labels` by a head, float32 `[batch]`.

    And the names of the parts of the parameters that it reads.
    """
    # Of any length: the fused kernels of accelerators want longer sequences.
    model = make_model(config, ComputeConfig(dtype=dtype, attention="xla"), (Head(head),))
    read = READS[head]

    def log_probabilities(params: Params, batch: Batch) -> jax.Array:
        batch = {**batch, "token_type_ids": read.token_types(batch)}
        logits, asked = read.answers(batch, model.apply(params, batch, None))
        return jnp.take_along_axis(jax.nn.log_softmax(logits / temperature), asked[:, None], axis=-1)[:, 0]

    return jax.jit(log_probabilities, out_shardings=sharding.replicated(mesh)), tuple(model.shapes)
