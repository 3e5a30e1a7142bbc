"""Texts -> vectors, or features of each token, from the layers of a model directory of any family."""

import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError
from bert_jax.inference.feature_files import token_file, vector_file
from bert_jax.inference.inputs import read_texts
from bert_jax.inference.load import open_model
from bert_jax.models import Head, make_model
from bert_jax.tasks.batching import choose_buckets, plan
from bert_jax.tasks.features import Features, collate
from bert_jax.tasks.kinds.texts import text_features

HEADS = (Head("hidden_states"),)
CHUNK = 8_192  # texts in memory at once; their rows are sorted into batches of like length
LAST = 4  # layers that BERT's feature-based tagger reads


def _mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    weights = mask[..., None].astype(x.dtype)
    return (x * weights).sum(1) / weights.sum(1)


# Hidden states [layers + 1, batch, length, hidden] -> [batch, length, width]. The four together: Devlin et al. 2018,
# table 7; concatenated from the lowest of them to the last layer.
LAYERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "last": lambda states: states[-1],
    "sum4": lambda states: states[-LAST:].sum(0),
    "concat4": lambda states: jnp.concatenate(list(states[-LAST:]), axis=-1),
}
# [batch, length, width] and the mask of what is no padding -> one vector a text; None: one a token.
POOLINGS: dict[str, Callable[[jax.Array, jax.Array], jax.Array] | None] = {
    "mean": _mean,
    "cls": lambda x, mask: x[:, 0],
    "tokens": None,
}


class Summary(NamedTuple):
    """What was written."""

    texts: int
    tokens: int  # special ones included, padding not
    truncated: int  # texts that were cut
    empty: int  # texts without a character, which are special tokens alone
    width: int


def embed(
    directory: pathlib.Path,
    source: pathlib.Path,
    output: pathlib.Path,
    pooling: str = "mean",
    layers: str = "last",
    batch_size: int = 32,
    max_seq_len: int = 0,
    truncate: bool = False,
    dtype: str = "float32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Summary:
    """Writes the embeddings of the texts of a file, in their order; memory does not grow with their number.

    Args:
        directory: a model of any family.
        source: a text file, one text a line; or with the suffix .jsonl, objects with `text`, perhaps `text_pair`.
        output: `.npy`, float32 `[texts, width]`; or for `tokens` `.safetensors`: `features` float32 `[tokens, width]`,
            `input_ids` int32 `[tokens]`, and `offsets` int64 `[texts + 1]`: text i is at `offsets[i]:offsets[i + 1]`,
            special tokens included.
        pooling: `mean` over all tokens that are no padding, special tokens included, which is the mean of
            sentence-transformers; `cls`, the first token, without the pooler; or `tokens`, which pools nothing.
        layers: `last`; `sum4` or `concat4`, of the last four; or the number of one, 0 for what enters the first block
            and -1 for the last.
        batch_size: texts that are computed at once.
        max_seq_len: tokens of the longest text; 0 takes what the model reads.
        truncate: cut and count longer texts, the longer of a pair first; otherwise they are refused before any work.
        dtype: of matrix products, float32 or bfloat16.
        progress: is told how many texts are done, and of how many.

    Raises:
        UserError: an unknown way to pool, a layer the model does not have, a file that cannot be read or written or is
            not as said, texts that are too long.
    """
    if pooling not in POOLINGS:
        raise UserError(f"--pooling {pooling}: choose from {', '.join(POOLINGS)}")
    if batch_size < 1:
        raise UserError(f"--batch_size {batch_size}: at least 1")
    config, _, params, _, tokenizer = open_model(directory, HEADS)
    select, width = _layers(layers, config.num_layers, config.hidden_size)
    if not 0 <= max_seq_len <= config.max_positions:
        raise UserError(f"--max_seq_len {max_seq_len}: this model reads up to {config.max_positions} tokens")
    max_seq_len = max_seq_len or config.max_positions
    lengths, truncated, empty = _measure(source, tokenizer, max_seq_len)
    if truncated and not truncate:
        raise UserError(
            f"{source}: {truncated:,} of {len(lengths):,} texts are longer than {max_seq_len} tokens; "
            "--truncate cuts them"
            + (", a higher --max_seq_len reads more" if max_seq_len < config.max_positions else "")
        )
    model = make_model(config, ComputeConfig(dtype=dtype), HEADS)
    pool, weights = POOLINGS[pooling], jax.device_put(params)

    @jax.jit
    def compute(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        features = select(model.apply(params, batch, None)["hidden_states"])
        return pool(features, batch["attention_mask"]) if pool else features

    buckets = choose_buckets(lengths, int(lengths.max()))
    with (vector_file if pool else token_file)(output, lengths, width) as put:
        done = 0
        for chunk in _chunks(source, tokenizer, max_seq_len):
            found = np.array([row.length for row in chunk])
            if not np.array_equal(found, lengths[done : done + len(chunk)]):
                raise UserError(f"{source} changed while it was read; run again")
            for indices, length in plan(found, buckets, batch_size, seed=0, epoch=0, shuffle=False):
                batch_rows = [chunk[index] for index in indices]
                batch = collate(batch_rows, length, config.num_token_types, tokenizer.pad_id, batch_size)
                del batch["example_weights"]
                values = np.asarray(compute(weights, batch))
                for index, row, value in zip(indices, batch_rows, values, strict=False):  # fillers come last
                    put(done + int(index), np.asarray(row.input_ids), value)
            done += len(chunk)
            progress(done, len(lengths))
    return Summary(len(lengths), int(lengths.sum()), truncated, empty, width)


def _layers(layers: str, number: int, hidden: int) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """What `layers` takes of the hidden states, and how wide that is."""
    if layers in LAYERS:
        if layers != "last" and number < LAST:
            raise UserError(f"--layers {layers}: this model has {number} layers, not {LAST}")
        return LAYERS[layers], hidden * (LAST if layers == "concat4" else 1)
    try:
        index = int(layers)
    except ValueError:
        raise UserError(f"--layers {layers}: choose from {', '.join(LAYERS)}, or give a layer's number") from None
    if not -number - 1 <= index <= number:
        raise UserError(f"--layers {layers}: this model has {number} layers: give 0 to {number}, or -1 for the last")
    return lambda states: states[index], hidden


def _chunks(source: pathlib.Path, tokenizer: Tokenizer, max_seq_len: int) -> Iterator[list[Features]]:
    """The rows of the file, `CHUNK` at a time."""
    texts = read_texts(source)
    while examples := list(itertools.islice(texts, CHUNK)):
        yield text_features(examples, tokenizer, max_seq_len)[0]


def _measure(source: pathlib.Path, tokenizer: Tokenizer, max_seq_len: int) -> tuple[np.ndarray, int, int]:
    """Tokens of each text, int64 `[texts]`, after the cut; how many are cut, and how many are empty."""
    lengths, truncated, empty, texts = [], 0, 0, read_texts(source)
    while examples := list(itertools.islice(texts, CHUNK)):
        made, counts = text_features(examples, tokenizer, max_seq_len)
        lengths.append(np.array([row.length for row in made]))
        truncated += counts["truncated_texts"]
        empty += sum(not example["text"] for example in examples)
    if not lengths:
        raise UserError(f"{source} holds no text")
    return np.concatenate(lengths), truncated, empty
