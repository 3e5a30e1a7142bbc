"""Vectors of texts, or features of tokens, from the layers of a model of any family."""

import contextlib
import dataclasses
import functools
import itertools
import os
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.inference.feature_files import PutFeatures, sparse_file_writer, token_file_writer, vector_file_writer
from bert_jax.inference.inputs import TEXT, Input, list_items, read_texts, readable_twice, source_name, texts_by_key
from bert_jax.inference.row_limits import row_limits
from bert_jax.inference.vectors import SparseVectors, TextVectors, TokenVectors, join_vectors
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models import Head, Params, make_model
from bert_jax.models.heads import pool_first_token, scale_to_unit_length
from bert_jax.models.token_rows import encoder_inputs, padded_sequences, sequence_means
from bert_jax.objectives.base import Batch
from bert_jax.parallel.sharding import SINGLE_HOST, single_device_mesh
from bert_jax.tasks.batching import Feed, collate_batches, doubling_buckets
from bert_jax.tasks.features import SPELLED, UNKNOWN, Features, FeaturesAndCounts
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tasks.late_interaction import (
    QUERY,
    TokenRules,
    check_unread_tokens,
    make_token_marker,
    select_scored_tokens,
)
from bert_jax.tasks.prediction_batches import plan_prediction_batches
from bert_jax.tasks.vector_heads import VECTOR_HEADS, VectorHead

HEADS = (Head("hidden_states"),)
CHUNK = 8_192  # texts in memory at once, sorted into batches of similar length
LAST_LAYERS = 4  # number of layers that BERT's feature-based tagger reads

Compute = Callable[[Params, Batch], jax.Array]
Computed = tuple[int, np.ndarray]  # the index of a text, and its features
Text = str | tuple[str, str]  # a text, or a pair of texts


def _pool_max(x: jax.Array, batch: Batch) -> jax.Array:
    """Return the maximum over the tokens of each text, for each feature: `[texts, width]`."""
    mask = batch["attention_mask"][..., None] != 0
    return jnp.where(mask, padded_sequences(x, batch), -jnp.inf).max(1)


# Functions from hidden states [layers + 1, rows, length, hidden] to features [rows, length, width]. The choices of
# four layers are from Devlin et al. 2018, table 7; the layers are concatenated from the lowest to the last.
LAYERS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "last": lambda states: states[-1],
    "sum4": lambda states: states[-LAST_LAYERS:].sum(0),
    "concat4": lambda states: jnp.concatenate(list(states[-LAST_LAYERS:]), axis=-1),
}
# Functions (features of rows or of padded texts, batch) -> a vector per text; None: a vector per token.
POOLINGS: dict[str, Callable[[jax.Array, Batch], jax.Array] | None] = {
    "mean": sequence_means,
    "cls": pool_first_token,
    "max": _pool_max,
    "tokens": None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """The options of `encode` and `embed_file`.

    If the files of sentence-transformers ask for lower case, all texts are lowercased.

    Attributes:
        pooling: `mean` of all tokens, with special tokens, as in sentence-transformers; `max` of all tokens; `cls`, the
            first token without the pooler; or `tokens`, without pooling (only for a file). If the pooling is None,
            `modules.json` of sentence-transformers determines the pooling; without this file, the pooling is `mean`.
        layers: `last`; `sum4` or `concat4` of the last four layers; or the number of a layer, where 0 is the input of
            the first block and -1 is the last layer.
        batch_size: texts of maximum length in one batch; short texts share rows.
        max_seq_len: maximum number of tokens of a text; None: the maximum in the files of sentence-transformers, or the
            maximum of the model without these files.
        truncate: True cuts longer texts, the longer text of a pair first; False raises UserError for longer texts
            before any text is embedded.
        dtype: dtype of matrix products, float32 or bfloat16.
        normalize: True scales the vectors to length 1; None: the value of `modules.json`, or False without this file.
        prompt_name: name of a prompt of the directory, such as `query`, which is put before each text; None: the
            default prompt of the directory, if any.
    """

    pooling: str | None = None
    layers: str = "last"
    batch_size: int = 32
    max_seq_len: int | None = None
    truncate: bool = False
    dtype: str = "float32"
    normalize: bool | None = None
    prompt_name: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """Counts of the texts that were written."""

    texts: int
    tokens: int  # number of tokens, with special tokens and without padding
    truncated: int  # number of texts that were cut
    spelled: int  # number of texts that contain the text of a special token, such as [SEP]
    unknown: int  # number of texts with more unknown tokens than known tokens
    empty: int  # number of texts without a character other than spaces
    titles: int  # number of texts with a `title`, which is not read
    unused_prompts: tuple[str, ...]  # names of the model's prompts, if no prompt was put before the texts
    width: int


def encode(model: OpenModel, texts: Iterable[Text], options: EmbedOptions = EmbedOptions()) -> TextVectors:
    """Return the vectors of texts in the order of `texts`: float32 `[texts, width]`, or SparseVectors.

    Args:
        model: any model; the heads are used only if the directory of the model names a head of vectors.
        texts: each a string, or a pair of strings.
        options: options with any pooling except `tokens`.

    Raises:
        UserError: the pooling is unknown, the model has no such layer, or a text is too long.
    """
    return encode_and_count_truncated(model, texts, options)[0]


class VectorsAndCount(NamedTuple):
    """The vectors of texts, and the number of truncated texts."""

    vectors: TextVectors
    num_truncated: int


def encode_and_count_truncated(
    model: OpenModel,
    texts: Iterable[Text],
    options: EmbedOptions = EmbedOptions(),
    progress: Callable[[int], None] = lambda num_done: None,
) -> VectorsAndCount:
    """Return the vectors that `encode` returns, and the number of texts that `options.truncate` cut.

    `progress` is called with the number of finished texts, after each text.
    """
    texts = list_items(texts, "texts")
    embedder = _Embedder(model, options)
    if not embedder.pools:
        raise UserError(
            f"pooling {options.pooling} gives no vector per text; choose another pooling, or use `bert-jax embed`"
        )
    inputs = [Input(f"text {index}", index, _text_fields(text)) for index, text in enumerate(texts)]
    features, counts = embedder.tokenize(inputs)
    embedder.check_truncation("texts", counts["truncated_texts"], len(texts))
    # A power of 2, so that few programs are compiled.
    batch_size = min(options.batch_size, 1 << max(len(texts) - 1, 0).bit_length())
    computed = _report_each(embedder.compute_features(features, batch_size), progress)
    return VectorsAndCount(embedder.stack_in_text_order(computed, len(texts)), counts["truncated_texts"])


def _report_each(computed: Iterable[Computed], progress: Callable[[int], None]) -> Iterator[Computed]:
    """Yield each item, and then call `progress` with the number of items so far."""
    for num_done, item in enumerate(computed, 1):
        yield item
        progress(num_done)


def embed_file(
    directory: str | os.PathLike[str],
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: EmbedOptions = EmbedOptions(),
    progress: Callable[[str, int, int | None], None] = lambda stage, done, total: None,
    field: str = TEXT,
) -> Summary:
    """Write the embeddings of the texts of a file, in the order of the file; the memory is bounded, except for tables.

    Args:
        directory: directory of a model of any family.
        source: file for `read_texts`; an object or a row may also have a `text_pair`.
        output: `.npy` file, float32 `[texts, width]`. For sparse vectors, a `.jsonl` file with an object of tokens and
            weights for each text, or a `.npz` file that `scipy.sparse.load_npz` opens. For `tokens` and for late
            interaction, a `.safetensors` file with `features` float32 `[tokens, width]`, `input_ids` int32 `[tokens]`,
            and `offsets` int64 `[texts + 1]`; the tokens of text i, with special tokens, are at
            `offsets[i]:offsets[i + 1]`.
        options: the options of the vectors.
        progress: function that is called with "counting", the number of texts counted so far and None, then with
            "embedding", the number of texts embedded so far and the number of all texts.
        field: field or column of the text in JSON lines or a table.

    Raises:
        UserError: as in `encode`; or a file cannot be read or written, or a line is not a text.
    """
    if options.pooling not in (None, *POOLINGS):  # checked before the weights are read
        raise _unknown_pooling_error(options.pooling)
    embedder = _Embedder(open_model(directory, HEADS), options)
    name = source_name(source)
    with readable_twice(source) as source:
        lengths, num_vectors, counts = _count_tokens(embedder, read_texts(source, field, name), progress)
        if not len(lengths):
            raise UserError(f"{name} holds no text")
        embedder.check_truncation(name, counts["truncated_texts"], len(lengths))
        with embedder.open_output(pathlib.Path(output), num_vectors) as put:
            done = 0
            for features, _ in _tokenize_in_chunks(embedder, read_texts(source, field, name)):
                if not np.array_equal([text.length for text in features], lengths[done : done + len(features)]):
                    raise UserError(f"{name} changed while it was read; run again")
                computed = embedder.compute_features(features, options.batch_size)
                for count, (index, values) in enumerate(computed, done + 1):
                    ids = np.asarray(features[index].input_ids)
                    put(done + index, select_scored_tokens(features[index], ids), values)
                    progress("embedding", count, len(lengths))
                done += len(features)
    return Summary(
        texts=len(lengths),
        tokens=int(lengths.sum()),
        truncated=counts["truncated_texts"],
        spelled=counts[SPELLED],
        unknown=counts[UNKNOWN],
        empty=counts["empty_texts"],
        titles=counts["titles"],
        unused_prompts=embedder.unused_prompts,
        width=embedder.width,
    )


class _Embedder:
    """A model that computes features of texts; raises UserError if an option does not fit the model.

    Attributes:
        pools: True for one vector per text, False for one vector per token.
        max_seq_len: maximum number of tokens of a text.
        highest_max_seq_len: largest value of `options.max_seq_len` that changes `max_seq_len`.
        width: number of elements of a vector.
        unused_prompts: names of the prompts of the model that are not empty, if no prompt is put before a text.
    """

    def __init__(self, model: OpenModel, options: EmbedOptions):
        if options.batch_size < 1:
            raise UserError(f"batch_size {options.batch_size}: at least 1")
        self._model, self._options = model, options
        self._modules = _sentence_modules_with_options(model, options)
        self.pools = POOLINGS[self._modules.pooling] is not None
        prompts = {} if self._modules.default_prompt else self._modules.prompts
        self.unused_prompts = tuple(name for name, prompt in prompts.items() if prompt)
        self.max_seq_len = self._modules.max_tokens(model.config.max_positions)
        self.highest_max_seq_len = model.config.max_positions
        vector_head = self._modules.vector_head if options.pooling is None else "dense"
        self._row = VECTOR_HEADS[vector_head]
        if self._row.has_token_vectors:
            marker = _token_marker_and_length(model, self._modules.token_rules, options)
            self._mark_tokens, self.max_seq_len, self.highest_max_seq_len = marker
        self._compute, self.width = _make_feature_function(
            model.config,
            self._row,
            self._modules.vector_width,
            self._modules.pooling,
            self._modules.normalize,
            options.layers,
            options.dtype,
        )
        heads, compute = (Head(self._row.head),), ComputeConfig(dtype=options.dtype)
        self._row_limits = row_limits((model.config,), heads, compute, single_device_mesh())

    def open_output(self, path: pathlib.Path, lengths: np.ndarray) -> contextlib.AbstractContextManager[PutFeatures]:
        """Return a context manager that opens the output file for texts with `lengths` tokens."""
        if self._row.is_sparse:
            return sparse_file_writer(path, len(lengths), self._model.tokenizer.tokens)
        has_tokens = self._row.has_token_vectors or not self.pools
        return (token_file_writer if has_tokens else vector_file_writer)(path, lengths, self.width)

    def stack_in_text_order(self, computed: Iterable[Computed], num_texts: int) -> TextVectors:
        """Return the vectors that `compute_features` yields, in the order of the texts."""
        if not self._row.has_pooling:
            container = SparseVectors if self._row.is_sparse else TokenVectors
            by_index = {index: container.from_rows([values], self.width) for index, values in computed}
            no_texts = container.from_rows([], self.width)
            return join_vectors([no_texts, *(by_index[index] for index in range(num_texts))])
        vectors = np.empty((num_texts, self.width), np.float32)
        for index, values in computed:
            vectors[index] = values
        return vectors

    def tokenize(self, inputs: Iterable[Input]) -> FeaturesAndCounts:
        """Return the tokens of each text after truncation, and the counts that `text_features` returns."""
        examples = []
        for line in inputs:
            texts = texts_by_key(line)
            texts["text"] = self._modules.prompt + texts["text"]
            if self._modules.lower_case:
                texts = {name: text.lower() for name, text in texts.items()}
            examples.append({"id": str(line.line_number), **texts})
        features, counts = text_features(examples, self._model.tokenizer, self.max_seq_len)
        if self._row.has_token_vectors:
            features = [self._mark_tokens(text) for text in features]
        return FeaturesAndCounts(features, counts)

    def check_truncation(self, name: str, num_truncated: int, num_texts: int) -> None:
        """Raise UserError for truncated texts unless the options ask for truncation."""
        if num_truncated and not self._options.truncate:
            advice = "; a higher max_seq_len reads more" if self.max_seq_len < self.highest_max_seq_len else ""
            raise UserError(
                f"{name}: {num_truncated:,} of {num_texts:,} texts are longer than {self.max_seq_len} tokens; "
                f"truncate (--truncate) cuts them{advice}"
            )

    def compute_features(self, features: Sequence[Features], batch_size: int) -> Iterator[Computed]:
        """Yield the index and the features of each text, in the order of the batches."""
        config, pad_id = self._model.config, self._model.tokenizer.pad_id
        feed = Feed(doubling_buckets(self.max_seq_len), batch_size, config.num_token_types, pad_id)
        plan = plan_prediction_batches(feed, features, self._row_limits, config.max_dense_length)
        for planned, batch in zip(plan, collate_batches(feed, features, plan, SINGLE_HOST), strict=True):
            del batch["example_weights"]
            values = np.asarray(self._compute(self._model.params, batch))
            # Copies of texts that only fill the batch come last.
            for index, of_text in zip(map(int, planned.indices), values, strict=False):
                yield index, of_text if of_text.ndim == 1 else select_scored_tokens(features[index], of_text)


class _ComputeAndWidth(NamedTuple):
    """A jitted function (params, batch) -> features, and the width of the features."""

    compute: Compute
    width: int


@functools.lru_cache(maxsize=16)
def _make_feature_function(
    config: EncoderConfig, row: VectorHead, vector_width: int, pooling: str, normalize: bool, layers: str, dtype: str
) -> _ComputeAndWidth:
    """Return a jitted function (params, batch) -> features, and their width; `pooling` is only for dense vectors."""
    if not row.has_pooling:
        return _make_head_vector_function(config, Head(row.head, vector_width), normalize, layers, dtype)
    select, width = _layer_selection(layers, config.num_layers, config.hidden_size)
    model, pool = make_model(config, ComputeConfig(dtype=dtype), HEADS), POOLINGS[pooling]

    def features_of_batch(params: Params, batch: Batch) -> jax.Array:
        # The encoder reads rows as packed sequences, and only the selected features are moved to padded texts.
        ids, types, mask, segments = encoder_inputs(batch)
        rows = {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}
        rows |= {} if segments is None else {"segment_ids": segments}
        features = select(model.apply({"encoder": params["encoder"]}, rows, None)["hidden_states"])
        features = pool(features, batch) if pool else padded_sequences(features, batch)
        return scale_to_unit_length(features) if normalize else features

    return _ComputeAndWidth(jax.jit(features_of_batch), width)


def _make_head_vector_function(
    config: EncoderConfig, head: Head, normalize: bool, layers: str, dtype: str
) -> _ComputeAndWidth:
    """Return a jitted function (params, batch) -> the vectors of a head, and their width."""
    if layers != "last":
        raise UserError(f"layers {layers}: the vectors of this model are of the last layer; give a pooling as well")
    model = make_model(config, ComputeConfig(dtype=dtype), (head,))
    assert config.vocab_size
    width = head.classes or config.vocab_size

    def vectors_of_batch(params: Params, batch: Batch) -> jax.Array:
        params = {name: params[name] for name in model.shapes}
        vectors = model.apply(params, batch, None)["sentence_vectors"][..., :width]
        return scale_to_unit_length(vectors) if normalize else vectors

    return _ComputeAndWidth(jax.jit(vectors_of_batch), width)


class _SelectionAndWidth(NamedTuple):
    """A function of the hidden states of all layers, and the width of its results."""

    select: Callable[[jax.Array], jax.Array]
    width: int


def _layer_selection(layers: str, num_layers: int, hidden: int) -> _SelectionAndWidth:
    """Return the function from hidden states to the features that `layers` names, and the width of the features."""
    if layers in LAYERS:
        if layers != "last" and num_layers < LAST_LAYERS:
            raise UserError(f"layers {layers}: this model has {num_layers} layers, not {LAST_LAYERS}")
        return _SelectionAndWidth(LAYERS[layers], hidden * (LAST_LAYERS if layers == "concat4" else 1))
    try:
        index = int(layers)
    except ValueError:
        raise UserError(f"layers {layers}: choose from {', '.join(LAYERS)}, or give the number of a layer") from None
    if not -num_layers - 1 <= index <= num_layers:
        raise UserError(
            f"layers {layers}: this model has {num_layers} layers: give 0 to {num_layers}, or -1 for the last"
        )
    return _SelectionAndWidth(lambda states: states[index], hidden)


class _MarkerAndLength(NamedTuple):
    """A function that marks the tokens of a text that get a vector, and the maximum number of tokens of a text.

    `highest_max_seq_len` is the largest maximum that options can choose.
    """

    mark: Callable[[Features], Features]
    max_seq_len: int
    highest_max_seq_len: int


def _token_marker_and_length(model: OpenModel, rules: TokenRules, options: EmbedOptions) -> _MarkerAndLength:
    """Return the function that marks tokens of queries if the prompt is `query`, else tokens of documents."""
    is_query = options.prompt_name == QUERY
    longest = model.sentences.max_tokens(model.config.max_positions)
    of_role = (rules.query_length if is_query else rules.document_length) or longest
    role, highest = "queries" if is_query else "documents", min(of_role, longest)
    if (options.max_seq_len or 0) > highest:
        raise UserError(f"max_seq_len {options.max_seq_len}: {role} of this model have at most {highest} tokens")
    max_seq_len = options.max_seq_len or highest
    if is_query and rules.expands and of_role > max_seq_len:
        raise UserError(f"{model.directory}: queries have {of_role} tokens, but the model reads {max_seq_len}")
    if is_query:
        check_unread_tokens(rules, model.config, str(model.directory))
    mark_tokens = make_token_marker(rules, model.tokenizer)
    return _MarkerAndLength(lambda text: mark_tokens(text, [is_query]), max_seq_len, highest)


def _sentence_modules_with_options(model: OpenModel, options: EmbedOptions) -> SentenceModules:
    """Return the settings of the model's directory; each given option replaces a setting."""
    modules, longest = model.sentences, model.config.max_positions
    if options.max_seq_len is not None and not 1 <= options.max_seq_len <= longest:
        raise UserError(f"max_seq_len {options.max_seq_len}: this model reads up to {longest} tokens")
    pooling = modules.pooling if options.pooling is None else options.pooling
    if pooling not in POOLINGS:
        raise _unknown_pooling_error(pooling)
    pools = POOLINGS[pooling] is not None
    if not pools and options.normalize:
        raise UserError(f"pooling {pooling}: features of tokens cannot be normalized")
    if options.normalize is False and VECTOR_HEADS[modules.vector_head].has_token_vectors:
        raise UserError(f"--no-normalize: the token vectors of {model.directory} always have length 1; leave it out")
    if options.prompt_name is not None and options.prompt_name not in modules.prompts:
        known = f"there are {', '.join(modules.prompts)}" if modules.prompts else "this model has none"
        raise UserError(f"prompt_name {options.prompt_name}: no prompt of that name; {known}")
    return dataclasses.replace(
        modules,
        pooling=pooling,
        normalize=pools and (modules.normalize if options.normalize is None else options.normalize),
        max_seq_len=options.max_seq_len or modules.max_seq_len,
        default_prompt=modules.default_prompt if options.prompt_name is None else options.prompt_name,
    )


def _unknown_pooling_error(pooling: str | None) -> UserError:
    return UserError(f"pooling {pooling}: choose from {', '.join(POOLINGS)}")


def _text_fields(text: Text) -> dict[str, Any]:
    """Return the fields of a text or a pair, not yet checked."""
    if isinstance(text, tuple) and len(text) == 2:
        return {"text": text[0], "text_pair": text[1]}
    return {"text": text}


def _tokenize_in_chunks(embedder: _Embedder, inputs: Iterator[Input]) -> Iterator[FeaturesAndCounts]:
    """Yield the tokens of all texts, `CHUNK` texts at a time, and the counts of each chunk."""
    while chunk := list(itertools.islice(inputs, CHUNK)):
        yield embedder.tokenize(chunk)


class _LengthsAndCounts(NamedTuple):
    """The length of each text, int64 `[texts]`, and counts of texts."""

    num_tokens: np.ndarray
    num_vectors: np.ndarray  # number of tokens with a vector
    counts: Counter[str]


def _count_tokens(
    embedder: _Embedder, inputs: Iterator[Input], progress: Callable[[str, int, int | None], None]
) -> _LengthsAndCounts:
    """Return the length of each text after truncation, and counts of texts.

    The counts are the counts of `text_features`, the number of empty texts as `empty_texts`, and the number of texts
    with a title as `titles`.
    """
    lengths, num_vectors = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    counts = Counter[str]()

    def inputs_with_progress() -> Iterator[Input]:
        for count, line in enumerate(inputs, 1):
            counts["empty_texts"] += not any(str(line.fields.get(key) or "").strip() for key in ("text", "text_pair"))
            counts["titles"] += bool(line.fields.get("title"))
            progress("counting", count, None)
            yield line

    for features, chunk_counts in _tokenize_in_chunks(embedder, inputs_with_progress()):
        lengths.append(np.array([text.length for text in features], np.int64))
        num_vectors.append(
            np.array([len(select_scored_tokens(text, np.asarray(text.input_ids))) for text in features], np.int64)
        )
        counts.update(chunk_counts)
    return _LengthsAndCounts(np.concatenate(lengths), np.concatenate(num_vectors), counts)
