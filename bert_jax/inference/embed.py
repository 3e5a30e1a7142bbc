"""Texts -> vectors, or features of each token, from the layers of a model directory of any family."""

import dataclasses
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.inference.batching import fixed_buckets
from bert_jax.inference.feature_files import token_file, vector_file
from bert_jax.inference.inputs import Input, name_of, read_inputs, readable_twice, texts_of
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models import Head, Params, make_model
from bert_jax.models.heads import unit_length
from bert_jax.objectives.base import Batch
from bert_jax.tasks.batching import choose_buckets, plan
from bert_jax.tasks.features import Features, collate
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tokenizer import Tokenizer

HEADS = (Head("hidden_states"),)
CHUNK = 8_192  # texts in memory at once; they are sorted into batches of similar length
LAST = 4  # layers that BERT's feature-based tagger reads

Compute = Callable[[Params, Batch], jax.Array]
Text = str | tuple[str, str]  # a text, or a pair of texts


def _mean(x: jax.Array, mask: jax.Array) -> jax.Array:
    weights = mask[..., None].astype(x.dtype)
    return (x * weights).sum(1) / weights.sum(1)


def _max(x: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask[..., None] != 0, x, -jnp.inf).max(1)


# Hidden states [layers + 1, batch, length, hidden] -> [batch, length, width]. The last four layers: Devlin et al. 2018,
# table 7; concatenated from the lowest of them to the last.
LAYERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "last": lambda states: states[-1],
    "sum4": lambda states: states[-LAST:].sum(0),
    "concat4": lambda states: jnp.concatenate(list(states[-LAST:]), axis=-1),
}
# [batch, length, width] and the attention mask -> one vector per text; None: one per token.
POOLINGS: dict[str, Callable[[jax.Array, jax.Array], jax.Array] | None] = {
    "mean": _mean,
    "cls": lambda x, mask: x[:, 0],
    "max": _max,
    "tokens": None,
}


class Summary(NamedTuple):
    """Counts of what was written."""

    texts: int
    tokens: int  # special tokens included, padding not
    truncated: int  # texts that were cut
    empty: int  # texts without a character, which are special tokens alone
    width: int


def encode(
    model: OpenModel,
    texts: Sequence[Text],
    pooling: str | None = None,
    layers: str = "last",
    batch_size: int = 32,
    max_seq_len: int | None = None,
    truncate: bool = False,
    dtype: str = "float32",
    normalize: bool | None = None,
    prompt_name: str | None = None,
) -> np.ndarray:
    """Return the vectors of texts, float32 `[texts, width]`, in their order.

    Args:
        model: with any heads, which are not used.
        texts: each a string, or a pair of strings.
        pooling: `mean` over all tokens, special tokens included, as in sentence-transformers; `max` likewise; or `cls`,
            the first token without the pooler. None: as `modules.json` of sentence-transformers says, else `mean`.
        layers: `last`; `sum4` or `concat4`, of the last four; or the number of a layer, 0 for the input of the first
            block and -1 for the last.
        batch_size: texts that are computed at once.
        max_seq_len: maximum tokens of a text; None: as sentence-transformers' files say, else as many as the model
            reads.
        truncate: cut longer texts, the longer of a pair first; False: they are refused.
        dtype: of matrix products, float32 or bfloat16.
        normalize: give the vectors the length 1; None: as `modules.json` says, else no. Lower case, which such a
            directory may ask for, always applies.
        prompt_name: which of the directory's prompts comes before each text, such as `query`; None: its default one,
            if it has one.

    Raises:
        UserError: an unknown pooling, a layer that the model does not have, or a text that is too long.
    """
    if isinstance(texts, str):
        raise UserError("texts is one string; give a list of them")
    how = _resolved(model, pooling, normalize, max_seq_len, prompt_name)
    if POOLINGS[how.pooling] is None:
        raise UserError(f"pooling {pooling}: gives no vector per text; choose another, or use `bert-jax embed`")
    limit = _limit(model, how, batch_size)
    compute, width = _make_compute(model.config, how.pooling, how.normalize, layers, dtype)
    inputs = [Input(f"text {number}", number, _fields(text)) for number, text in enumerate(texts)]
    made, truncated = _tokenized(inputs, model.tokenizer, how, limit)
    _check_truncation("texts", truncated, len(texts), limit, model.config.max_positions, truncate)
    batch_size = min(batch_size, 1 << max(len(texts) - 1, 0).bit_length())  # few sizes, so that few are compiled
    found = np.empty((len(texts), width), np.float32)
    for number, _, values in _computed(compute, model, made, fixed_buckets(limit), batch_size):
        found[number] = values
    return found


def embed(
    directory: str | os.PathLike[str],
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    pooling: str | None = None,
    layers: str = "last",
    batch_size: int = 32,
    max_seq_len: int | None = None,
    truncate: bool = False,
    dtype: str = "float32",
    normalize: bool | None = None,
    prompt_name: str | None = None,
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> Summary:
    """Write the embeddings of the texts of a file, in their order; memory does not grow with their number.

    Args:
        directory: a model of any family.
        source: as in `read_inputs`; objects have a `text` and may have a `text_pair`.
        output: `.npy`, float32 `[texts, width]`; or for `tokens` `.safetensors`: `features` float32 `[tokens, width]`,
            `input_ids` int32 `[tokens]`, and `offsets` int64 `[texts + 1]`: text i is at `offsets[i]:offsets[i + 1]`,
            special tokens included.
        pooling: as in `encode`, or `tokens`, which pools nothing.
        layers: as in `encode`, like the arguments that follow.
        batch_size: texts that are computed at once.
        max_seq_len: as in `encode`.
        truncate: cut and count longer texts; False: they are refused before any work.
        dtype: of matrix products, float32 or bfloat16.
        normalize: as in `encode`, like `prompt_name`.
        progress: is called with "counting", the texts counted so far and None, then with "embedding", those done and
            all.

    Raises:
        UserError: as `encode`; a file that cannot be read or written, or a line that is no text.
    """
    if pooling not in (None, *POOLINGS):  # before the weights are read
        raise UserError(f"pooling {pooling}: choose from {', '.join(POOLINGS)}")
    model = open_model(directory, HEADS)
    how = _resolved(model, pooling, normalize, max_seq_len, prompt_name)
    limit = _limit(model, how, batch_size)
    compute, width = _make_compute(model.config, how.pooling, how.normalize, layers, dtype)
    name = name_of(source)
    with readable_twice(source) as source:
        lengths, truncated, empty = _measure(read_inputs(source, name), model.tokenizer, how, limit, progress)
        if not len(lengths):
            raise UserError(f"{name} holds no text")
        _check_truncation(name, truncated, len(lengths), limit, model.config.max_positions, truncate)
        buckets = choose_buckets(lengths, int(lengths.max()))
        with (vector_file if POOLINGS[how.pooling] else token_file)(pathlib.Path(output), lengths, width) as put:
            done = 0
            for chunk, _ in _chunks(read_inputs(source, name), model.tokenizer, how, limit):
                if not np.array_equal([one.length for one in chunk], lengths[done : done + len(chunk)]):
                    raise UserError(f"{name} changed while it was read; run again")
                computed = _computed(compute, model, chunk, buckets, batch_size)
                for count, (number, row, values) in enumerate(computed, done + 1):
                    put(done + number, np.asarray(row.input_ids), values)
                    progress("embedding", count, len(lengths))
                done += len(chunk)
    return Summary(len(lengths), int(lengths.sum()), truncated, empty, width)


@functools.lru_cache(maxsize=16)
def _make_compute(config: EncoderConfig, pooling: str, normalize: bool, layers: str, dtype: str) -> tuple[Compute, int]:
    """A jitted function (params, batch) -> features, and their width."""
    select, width = _layers(layers, config.num_layers, config.hidden_size)
    model, pool = make_model(config, ComputeConfig(dtype=dtype), HEADS), POOLINGS[pooling]

    def compute(params: Params, batch: Batch) -> jax.Array:
        features = select(model.apply(params, batch, None)["hidden_states"])
        features = pool(features, batch["attention_mask"]) if pool else features
        return unit_length(features) if normalize else features

    return jax.jit(compute), width


def _computed(
    compute: Compute, model: OpenModel, made: Sequence[Features], buckets: Sequence[int], batch_size: int
) -> Iterator[tuple[int, Features, np.ndarray]]:
    """The index, the tokens and the features of each text, in the order of their lengths."""
    lengths = np.array([one.length for one in made], np.int64)
    encoder = {"encoder": model.params["encoder"]}
    for indices, length in plan(lengths, buckets, batch_size, seed=0, epoch=0, shuffle=False):
        of_batch = [made[index] for index in indices]
        batch = collate(of_batch, length, model.config.num_token_types, model.tokenizer.pad_id, batch_size)
        del batch["example_weights"]
        values = np.asarray(compute(encoder, batch))
        yield from zip(map(int, indices), of_batch, values, strict=False)  # fillers come last


def _layers(layers: str, number: int, hidden: int) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """The function of `layers` over the hidden states, and its width."""
    if layers in LAYERS:
        if layers != "last" and number < LAST:
            raise UserError(f"layers {layers}: this model has {number} layers, not {LAST}")
        return LAYERS[layers], hidden * (LAST if layers == "concat4" else 1)
    try:
        index = int(layers)
    except ValueError:
        raise UserError(f"layers {layers}: choose from {', '.join(LAYERS)}, or give the number of a layer") from None
    if not -number - 1 <= index <= number:
        raise UserError(f"layers {layers}: this model has {number} layers: give 0 to {number}, or -1 for the last")
    return lambda states: states[index], hidden


def _resolved(
    model: OpenModel, pooling: str | None, normalize: bool | None, max_seq_len: int | None, prompt_name: str | None
) -> SentenceModules:
    """What the directory says, except for what is asked for; UserError for what cannot be."""
    how, longest = model.sentences, model.config.max_positions
    if max_seq_len is not None and not 1 <= max_seq_len <= longest:
        raise UserError(f"max_seq_len {max_seq_len}: this model reads up to {longest} tokens")
    pooling = how.pooling if pooling is None else pooling
    if pooling not in POOLINGS:
        raise UserError(f"pooling {pooling}: choose from {', '.join(POOLINGS)}")
    if POOLINGS[pooling] is None and normalize:
        raise UserError(f"pooling {pooling}: gives features of tokens, which are not normalized")
    if prompt_name is not None and prompt_name not in how.prompts:
        there = f"there are {', '.join(how.prompts)}" if how.prompts else "this model has none"
        raise UserError(f"prompt_name {prompt_name}: no prompt of that name; {there}")
    of_texts = POOLINGS[pooling] is not None
    return dataclasses.replace(
        how,
        pooling=pooling,
        normalize=of_texts and (how.normalize if normalize is None else normalize),
        max_seq_len=max_seq_len or how.max_seq_len,
        default_prompt=how.default_prompt if prompt_name is None else prompt_name,
    )


def _limit(model: OpenModel, how: SentenceModules, batch_size: int) -> int:
    """The maximum number of tokens; UserError for a batch of nothing."""
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: at least 1")
    return min(how.max_seq_len or model.config.max_positions, model.config.max_positions)


def _check_truncation(name: str, truncated: int, total: int, limit: int, max_positions: int, truncate: bool) -> None:
    if truncated and not truncate:
        more = "; a higher max_seq_len reads more" if limit < max_positions else ""
        raise UserError(
            f"{name}: {truncated:,} of {total:,} texts are longer than {limit} tokens; "
            f"truncate (--truncate) cuts them{more}"
        )


def _fields(text: Text) -> dict[str, Any]:
    """The fields of a text or a pair, not yet checked."""
    if isinstance(text, tuple) and len(text) == 2:
        return {"text": text[0], "text_pair": text[1]}
    return {"text": text}


def _tokenized(
    inputs: Iterable[Input], tokenizer: Tokenizer, how: SentenceModules, limit: int
) -> tuple[list[Features], int]:
    """The tokens of each text after the cut, and how many texts are cut."""
    examples = [{"id": str(one.number), **_prepared(texts_of(one), how)} for one in inputs]
    made, counts = text_features(examples, tokenizer, limit)
    return made, counts["truncated_texts"]


def _prepared(texts: dict[str, str], how: SentenceModules) -> dict[str, str]:
    """The texts as the tokenizer gets them; the prompt is before the first one of a pair."""
    texts = texts | {"text": how.prompt + texts["text"]}
    return {name: text.lower() for name, text in texts.items()} if how.lower_case else texts


def _chunks(
    inputs: Iterator[Input], tokenizer: Tokenizer, how: SentenceModules, limit: int
) -> Iterator[tuple[list[Features], int]]:
    """The tokens of all texts, `CHUNK` texts at a time."""
    while chunk := list(itertools.islice(inputs, CHUNK)):
        yield _tokenized(chunk, tokenizer, how, limit)


def _measure(
    inputs: Iterator[Input],
    tokenizer: Tokenizer,
    how: SentenceModules,
    limit: int,
    progress: Callable[[str, int, int | None], None],
) -> tuple[np.ndarray, int, int]:
    """Tokens of each text, int64 `[texts]`, after the cut; how many are cut, and how many are empty."""
    lengths, cut, empty = [np.zeros(0, np.int64)], 0, 0

    def counted() -> Iterator[Input]:
        nonlocal empty
        for count, one in enumerate(inputs, 1):
            empty += not one.fields.get("text")
            progress("counting", count, None)
            yield one

    for made, truncated in _chunks(counted(), tokenizer, how, limit):
        lengths.append(np.array([one.length for one in made], np.int64))
        cut += truncated
    return np.concatenate(lengths), cut, empty
