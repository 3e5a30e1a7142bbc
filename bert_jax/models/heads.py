"""Output heads of the encoder; HEADS has a function for each head, and `Network` joins encoder and heads.

The file contains, in this order: the network; HEADS with their functions; the layers of heads (masked tokens over the
vocabulary, ELECTRA's discriminator, BigBird's question answering); poolings from tokens to a vector for each sequence
(POOLINGS, `Pooler`); two LSTM layers between encoder and heads (Devlin et al. 2019, table 5: + BiLSTM); the tokens that
a head makes global (GLOBAL_TOKENS).
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models.dropout import dropout, dropout_seeds
from bert_jax.models.encoder import Encoder, GlobalTokenMask
from bert_jax.models.init import init_scales, kernel_init, vocabulary_initializer
from bert_jax.models.layers import ACTIVATIONS, Linear, dtype_between_products, logical_param, product
from bert_jax.models.norms import norm_layer
from bert_jax.models.token_rows import encoder_inputs, hidden_states_at_positions, padded_sequences, sequence_means
from bert_jax.parallel.platform import traced_platform
from bert_jax.parallel.sharding import constrain

PADDING_LOGIT = -1e9  # logit of the padding of the vocabulary; its exponential is exactly 0
QUESTION_LOGIT = -1e6  # added to the logits of the question's tokens, as in transformers
UNIT_LENGTH_EPSILON = 1e-12  # added to the square of a vector's length

Batch = Mapping[str, jax.Array]
Arrays = dict[str, jax.Array]


class Head(NamedTuple):
    """The name of a row of HEADS, and the number of its outputs if the head classifies or projects tokens."""

    name: str
    classes: int = 0


class Network(nn.Module):
    """The encoder with the given heads; the functions in HEADS describe inputs and outputs, and outputs are float32.

    If the batch has `segment_ids`, int32 `[batch, length]`, sequences are packed. In a packed batch, `cls_positions`,
    int32 `[batch, examples]`, has the position of the first token of each example, and 0 for an absent example.

    If the batch has `row_tokens`, the sequences of the batch are padded, but the encoder reads their tokens without
    padding, several sequences in a row (token_rows.py).
    """

    config: EncoderConfig
    compute: ComputeConfig
    heads: tuple[Head, ...]

    @nn.compact
    def __call__(self, batch: Batch, rng: jax.Array | None) -> Arrays:
        config, dtype = self.config, jnp.dtype(self.compute.dtype)
        names = {head.name for head in self.heads}
        encoder = Encoder(config, self.compute, "hidden_states" in names, name="encoder")
        inputs = encoder_inputs(batch)
        hidden, every_layer = encoder(*inputs, rng, global_token_mask(config, names, inputs.input_ids))
        if every_layer is not None:
            every_layer = jax.vmap(lambda states: padded_sequences(states, batch))(every_layer)
        task_input = hidden
        if config.bilstm and names & OF_TASKS:
            segments = inputs.attention_mask if inputs.segments is None else inputs.segments
            task_input = BiLstm(config, dtype, name="bilstm")(hidden, segments)
        pooler_seed, seed = (None, None) if rng is None else dropout_seeds(jax.random.fold_in(rng, 1), (2,))
        activation = config.sequence_activation if "sequence_classification" in names else None
        # A model without pooling has no parameters of the pooler.
        pooler = Pooler(config, dtype, activation or config.pooler_activation, name="pooler")
        pooled = pooler(POOLINGS[config.pooling](task_input, batch), pooler_seed) if names & POOLED else None
        tokens = pooler(task_input, pooler_seed) if config.pooler_on_tokens and names & OF_TOKENS else task_input
        encoded = Encoded(
            config=config,
            dtype=dtype,
            batch=batch,
            hidden=padded_sequences(hidden, batch),
            rows=hidden,
            every_layer=every_layer,
            table=encoder.embeddings.token,
            tokens=tokens,
            pooled=pooled,
            seed=seed,
        )
        arrays: Arrays = {}
        for head in self.heads:
            arrays |= HEADS[head.name](head, encoded)
        return {name: x.astype(jnp.float32) for name, x in arrays.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoded:
    """The architecture and the arrays that heads read; the network calls the heads and owns their parameters."""

    config: EncoderConfig
    dtype: jnp.dtype  # dtype of the head's layers
    batch: Batch
    hidden: jax.Array  # [batch, length, hidden], the output of the last layer
    rows: jax.Array  # `hidden` in the rows that the encoder reads (token_rows.py)
    every_layer: Any  # [layers + 1, batch, length, hidden] if a head reads it, else None
    table: jax.Array  # float32 [padded_vocab, table_width]
    tokens: jax.Array  # input of heads of tokens: `rows`, perhaps through the pooler
    pooled: Any  # [batch, hidden], or [batch * examples, hidden] of packed sequences; None if no head reads it
    seed: jax.Array | None  # seed of the dropout before a classifier


def masked_token_logits(head: Head, x: Encoded) -> Arrays:
    """Return the logits at the masked positions, `[batch, predictions, padded_vocab]`; padding entries are -1e9.

    If the batch has `verbalizers`, token ids int32 `[batch, labels, words]`, return a logit for each label instead,
    `[batch, labels]`. The logit of a label is the mean logit of its words at the first masked position. In
    `verbalizers`, an id below 0 is no word.
    """
    masked = hidden_states_at_positions(x.rows, x.batch["masked_positions"], x.batch)
    logits = MaskedTokenHead(x.config, x.dtype, name=head.name)(masked, x.table)
    if "verbalizers" not in x.batch:
        return {"mlm_logits": logits}
    words = x.batch["verbalizers"]
    # Unsharded, because XLA's partitioner aborts at a gather from a sharded vocabulary in micro-batches on a mesh.
    at_mask = constrain(logits[:, 0], "batch", "features")
    of_words = jnp.take_along_axis(at_mask, words.reshape(len(words), -1), axis=1).reshape(words.shape)
    return {"sequence_logits": jnp.mean(of_words, axis=-1, where=words >= 0)}


def next_token_logits(head: Head, x: Encoded) -> Arrays:
    """Return logits of the token that follows each token, `[batch, length - 1, padded_vocab]`, of a causal model."""
    return {"next_logits": MaskedTokenHead(x.config, x.dtype, name=head.name)(x.hidden[:, :-1], x.table)}


def next_sentence_logits(head: Head, x: Encoded) -> Arrays:
    """Return next-sentence logits `[batch, 2]`; class 1 means that the second text does not follow the first text.

    In ALBERT, class 1 means that the second text precedes the first text. For packed sequences, the shape of the logits
    is `[batch * examples, 2]`, as for all heads that read the pooler.
    """
    return {"nsp_logits": classification_layer(x.config, x.dtype, 2, head.name)(x.pooled)}


def replaced_token_logits(head: Head, x: Encoded) -> Arrays:
    """Return a logit for each token, `[batch, length]`; a logit above 0 predicts a replaced token."""
    return {"replaced_logits": ReplacedTokenHead(x.config, x.dtype, name=head.name)(x.hidden)}


def sequence_classification_logits(head: Head, x: Encoded) -> Arrays:
    """Return a logit for each class, `[batch, classes]`; with one class, the logit is the value of a regression.

    From inputs of the shape `[batch, choices, length]`, the logits are `[batch, choices, classes]`.
    """
    pooled = dropout(x.pooled, x.config.classifier_dropout, x.seed)
    logits = classification_layer(x.config, x.dtype, head.classes, head.name)(pooled)
    # The batch size is not named, because a row of `input_ids` may hold several packed sequences.
    return {"sequence_logits": logits.reshape(-1, *x.batch["input_ids"].shape[1:-1], head.classes)}


def multiple_choice_logits(head: Head, x: Encoded) -> Arrays:
    """Return a score for each choice, `[batch, choices]`, from inputs of the shape `[batch, choices, length]`."""
    pooled = dropout(x.pooled, x.config.classifier_dropout, x.seed)
    scores = classification_layer(x.config, x.dtype, 1, head.name)(pooled)
    return {"choice_logits": scores.reshape(x.batch["input_ids"].shape[:-1])}


def token_classification_logits(head: Head, x: Encoded) -> Arrays:
    """Return the logits of each token, `[batch, length, classes]`."""
    tokens = dropout(x.tokens, x.config.classifier_dropout, x.seed)
    logits = classification_layer(x.config, x.dtype, head.classes, head.name)(tokens)
    return {"token_logits": padded_sequences(logits, x.batch)}


def question_answering_logits(head: Head, x: Encoded) -> Arrays:
    """Return logits of the first and of the last token of an answer, each `[batch, length]`."""
    if x.config.question_separator_id is not None:
        question = question_mask(
            x.batch["input_ids"].reshape(-1, x.batch["input_ids"].shape[-1]), x.config.question_separator_id
        )
        logits = AnswerHead(x.config, x.dtype, name=head.name)(x.tokens, x.seed).astype(jnp.float32)
        logits = padded_sequences(logits, x.batch) + jnp.where(question, QUESTION_LOGIT, 0.0)[..., None]
    else:  # BERT has no dropout here
        tokens = dropout(x.tokens, x.config.classifier_dropout if x.config.pooler_on_tokens else 0.0, x.seed)
        logits = padded_sequences(classification_layer(x.config, x.dtype, 2, head.name)(tokens), x.batch)
    if "row_tokens" in x.batch:  # rows hold no vectors of padding, so padding must get no part in the softmax
        logits = jnp.where(x.batch["attention_mask"][..., None] != 0, logits.astype(jnp.float32), PADDING_LOGIT)
    return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


def hidden_states(head: Head, x: Encoded) -> Arrays:
    """Return hidden states `[layers + 1, batch, length, hidden]`: the input of the first block, then each output."""
    return {"hidden_states": x.every_layer}


def last_hidden_state(head: Head, x: Encoded) -> Arrays:
    """Return the hidden states of the last block, `[batch, length, hidden]`."""
    return {"last_hidden_state": x.hidden}


def mean_sentence_vectors(head: Head, x: Encoded) -> Arrays:
    """Return a vector for each text, `[batch, texts, hidden]`: the mean of the tokens, scaled to length 1."""
    vectors = scale_to_unit_length(sequence_means(x.rows, x.batch).astype(jnp.float32))
    return {"sentence_vectors": vectors.reshape(*x.batch["input_ids"].shape[:-1], -1)}


def sparse_sentence_vectors(head: Head, x: Encoded) -> Arrays:
    """Return sparse vectors, `[batch, texts, padded_vocab]`: log(1 + relu(largest masked-token logit of a text)).

    These vectors are SPLADE's, with max pooling (Formal et al. 2021). This head uses the parameters of the masked-token
    head.
    """
    ids = x.batch["input_ids"]
    mask = x.batch["attention_mask"].reshape(-1, ids.shape[-1])
    logits = MaskedTokenHead(x.config, x.dtype, name="masked_token")(x.hidden, x.table, mask)
    return {"sentence_vectors": jnp.log1p(jax.nn.relu(logits)).reshape(*ids.shape[:-1], -1)}


def token_vectors(head: Head, x: Encoded) -> Arrays:
    """Return a vector for each token, projected and scaled to length 1, `[batch, texts, length, outputs]`.

    These vectors are ColBERT's (Khattab and Zaharia 2020). A token with a 0 in the batch's array `scored_tokens`, int32
    in the shape of `input_ids`, takes no part in scores and gets a vector of zeros. Without this array, all vectors
    stay unchanged, also at padding.
    """
    ids = x.batch["input_ids"]
    sizes = (x.config.hidden_size, head.classes)
    project = Linear(sizes, ("embed", "features"), x.config.initializer_range, x.dtype, bias=False, name=head.name)
    vectors = scale_to_unit_length(project(x.hidden).astype(jnp.float32)).reshape(*ids.shape, -1)
    if "scored_tokens" in x.batch:
        vectors = jnp.where(x.batch["scored_tokens"][..., None] != 0, vectors, 0.0)
    return {"sentence_vectors": vectors}


def pooled_output(head: Head, x: Encoded) -> Arrays:
    """Return a vector for each sequence, `[batch, hidden]`: pooled by `model.pooling`, then mapped by the pooler."""
    return {"pooled": x.pooled}


HEADS: dict[str, Callable[[Head, Encoded], Arrays]] = {
    "masked_token": masked_token_logits,
    "next_token": next_token_logits,
    "next_sentence": next_sentence_logits,
    "replaced_token": replaced_token_logits,
    "sequence_classification": sequence_classification_logits,
    "multiple_choice": multiple_choice_logits,
    "token_classification": token_classification_logits,
    "question_answering": question_answering_logits,
    "hidden_states": hidden_states,
    "last_hidden_state": last_hidden_state,
    "pooled": pooled_output,
    "sentence_embedding": mean_sentence_vectors,
    "sparse_embedding": sparse_sentence_vectors,
    "token_embedding": token_vectors,
}
# Heads that read a sequence through the pooler, and heads that read each token.
POOLED = frozenset({"next_sentence", "sequence_classification", "multiple_choice", "pooled"})
OF_TOKENS = frozenset({"token_classification", "question_answering"})
OF_PRETRAINING = frozenset({"masked_token", "next_token", "next_sentence", "replaced_token"})
OF_TASKS = OF_TOKENS | {"sequence_classification", "multiple_choice"}


def dense_layer(config: EncoderConfig, dtype: jnp.dtype, width: int, name: str | None = None) -> Linear:
    """Return the dense layer between the encoder and the last map of a head."""
    sizes, scales = (config.hidden_size, width), init_scales(config)
    return Linear(sizes, ("embed", "features"), scales.dense, dtype, config.head_bias, scales.identity, name=name)


def classification_layer(config: EncoderConfig, dtype: jnp.dtype, classes: int, name: str) -> Linear:
    """Return the last map of a classification head."""
    return Linear((config.hidden_size, classes), ("embed", "classes"), config.initializer_range, dtype, name=name)


class ExtraTable(nn.Module):
    """A parameter, float32 `[padded_vocab, features]`, with zeros in the rows that only pad the vocabulary."""

    config: EncoderConfig
    shape: tuple[int, int]

    @nn.compact
    def __call__(self) -> jax.Array:
        init = vocabulary_initializer(kernel_init(init_scales(self.config).inner), self.config.vocab_size)
        return logical_param(self, "kernel", init, self.shape, ("vocab", "features"))


def _vocabulary_scores(x: jax.Array, table: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Multiply vectors `[n, width]` by a table `[vocab, width]`, both in `dtype`; return float32 `[n, vocab]`."""
    if dtype == jnp.bfloat16 and traced_platform() == "cpu":
        return product(x, table.T, dtype)
    return _float32_scores(x.astype(dtype), table.astype(dtype))


@jax.custom_vjp
def _float32_scores(x: jax.Array, table: jax.Array) -> jax.Array:
    """Multiply vectors `[n, width]` by a table `[vocab, width]` of equal dtype; return float32 `[n, vocab]`."""
    return jnp.einsum("nh,vh->nv", x, table, preferred_element_type=jnp.float32)


def _float32_scores_forward(x: jax.Array, table: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _float32_scores(x, table), (x, table)


def _float32_scores_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, table = saved
    gradient = gradient.astype(x.dtype)  # a GPU multiplies float32 at half the speed; a TPU casts float32 anyway
    return jnp.einsum("nv,vh->nh", gradient, table), jnp.einsum("nv,nh->vh", gradient, x)


_float32_scores.defvjp(_float32_scores_forward, _float32_scores_backward)


TOKENS_AT_ONCE = 16  # number of tokens of a sequence whose logits over the vocabulary are in memory


@functools.partial(jax.checkpoint, static_argnums=(4,))
def _update_largest_scores(
    largest: jax.Array, x: jax.Array, mask: jax.Array, table: jax.Array, dtype: jnp.dtype
) -> jax.Array:
    """Return the maximum of `largest`, `[batch, vocab]`, and the scores of tokens, whose vectors are `x`."""
    scores = _vocabulary_scores(x.reshape(-1, x.shape[-1]), table, dtype).reshape(*x.shape[:2], -1)
    return jnp.maximum(largest, jnp.where(mask[..., None] != 0, scores, PADDING_LOGIT).max(1))


def _largest_vocabulary_scores(x: jax.Array, mask: jax.Array, table: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Return the largest score of each vocabulary entry over the tokens of a sequence, float32 `[batch, vocab]`.

    Memory holds the scores of TOKENS_AT_ONCE tokens of each sequence. The backward pass recomputes the scores.
    """
    num_chunks = -(-x.shape[1] // TOKENS_AT_ONCE)
    padding = num_chunks * TOKENS_AT_ONCE - x.shape[1]

    def split_into_chunks(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, ((0, 0), (0, padding), *[(0, 0)] * (array.ndim - 2)))
        return padded.reshape(array.shape[0], num_chunks, TOKENS_AT_ONCE, *array.shape[2:]).swapaxes(0, 1)

    largest = jnp.full((x.shape[0], len(table)), PADDING_LOGIT, jnp.float32)
    return jax.lax.scan(
        lambda largest, chunk: (_update_largest_scores(largest, *chunk, table, dtype), None),
        largest,
        (split_into_chunks(x), split_into_chunks(mask)),
    )[0]


class MaskedTokenHead(nn.Module):
    """Vocabulary head: hidden states `[batch, predictions, hidden]`, token table `[padded_vocab, width]` -> logits.

    The logits are float32. With a token mask, `[batch, predictions]`, the result is `[batch, padded_vocab]`: for each
    vocabulary entry, the largest logit over the tokens of a sequence.
    """

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        config, width = self.config, self.config.masked_width
        activation = ACTIVATIONS[config.masked_activation or config.activation]
        x = activation(dense_layer(config, self.dtype, width, "dense")(x))
        x = norm_layer(config, self.dtype, "norm", config.masked_norm)(x)
        if config.masked_extra_table:
            extra = ExtraTable(config, (table.shape[0], width - table.shape[1]), name="extra_table")
            table = jnp.concatenate([table, extra()], axis=1)
        bias = logical_param(self, "bias", nn.initializers.zeros, table.shape[:1], ("vocab",))
        bias = jnp.where(jnp.arange(table.shape[0]) < config.vocab_size, bias, PADDING_LOGIT)
        if mask is not None:
            table = table.astype(dtype_between_products(self.dtype))  # cast once for all chunks
            return constrain(_largest_vocabulary_scores(x, mask, table, self.dtype) + bias, "batch", "logits")
        # The map is a product of two matrices, for the reason in `Linear.product_and_bias`.
        logits = _vocabulary_scores(x.reshape(-1, width), table, self.dtype)
        return constrain(logits + bias, "batch", "logits").reshape(*x.shape[:2], -1)


class ReplacedTokenHead(nn.Module):
    """ELECTRA's discriminator (Clark et al. 2020): `[batch, length, hidden]` -> logits `[batch, length]`."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        config = self.config
        x = ACTIVATIONS[config.activation](dense_layer(config, self.dtype, config.hidden_size, "dense")(x))
        return classification_layer(config, self.dtype, 1, "output")(x)[..., 0]


class AnswerHead(nn.Module):
    """BigBird's head of question answering: hidden states `[batch, length, hidden]` -> logits `[batch, length, 2]`.

    MLP and norm are as in a block of BERT. The seed of dropout is uint32 `[2]`, or None for no dropout.
    """

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, seed: jax.Array | None) -> jax.Array:
        config, stddev = self.config, init_scales(self.config).inner
        up = Linear((config.hidden_size, config.mlp_size), ("embed", "mlp"), stddev, self.dtype, name="mlp_up")
        down = Linear((config.mlp_size, config.hidden_size), ("mlp", "embed"), stddev, self.dtype, name="mlp_down")
        inner = ACTIVATIONS[config.activation](up(dropout(x, config.dropout, seed)))
        output_seed = None if seed is None else seed ^ jnp.uint32(1)
        x = norm_layer(config, self.dtype, "mlp_norm")(x + dropout(down(inner), config.dropout, output_seed))
        return classification_layer(config, self.dtype, 2, "output")(x)


def question_mask(input_ids: jax.Array, separator_id: int) -> jax.Array:
    """Return a mask of the tokens before the first separator, without [CLS], bool `[batch, length]`."""
    separators = input_ids == separator_id
    before = jnp.cumsum(separators, axis=1) - separators == 0
    return before & separators.any(axis=1, keepdims=True) & (jnp.arange(input_ids.shape[1]) > 0)


class Pooler(nn.Module):
    """A dense layer, an activation and, in ModernBERT, a norm; input and output are `[..., hidden]`.

    Without a dense layer, the pooler has no activation.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    activation: str

    def setup(self) -> None:
        config = self.config
        self.dense = dense_layer(config, self.dtype, config.hidden_size) if config.pooler_dense else None
        if self.dense:
            nn.share_scope(self, self.dense)  # the pooler has the parameters of its dense layer
        self.norm = norm_layer(config, self.dtype) if config.pooler_norm else None

    def __call__(self, x: jax.Array, seed: jax.Array | None) -> jax.Array:
        config = self.config
        x = dropout(x, config.classifier_dropout if config.pooler_dropout else 0.0, seed)
        x = ACTIVATIONS[self.activation](self.dense(x)) if self.dense else x
        return x if self.norm is None else self.norm(x)


def pool_first_token(hidden: jax.Array, batch: Batch) -> jax.Array:
    """Return the vector of the first token, [CLS], of each example."""
    if "row_tokens" in batch:
        length = batch["input_ids"].shape[-1]
        return hidden_states_at_positions(hidden, jnp.zeros((batch["input_ids"].size // length, 1), jnp.int32), batch)[
            :, 0
        ]
    if "segment_ids" not in batch:
        return hidden[:, 0]
    first_tokens = jnp.take_along_axis(hidden, batch["cls_positions"][:, :, None], axis=1)
    return first_tokens.reshape(-1, hidden.shape[-1])


def pool_mean(hidden: jax.Array, batch: Batch) -> jax.Array:
    """Return the mean of the tokens of each example, without padding; 0 for an absent example."""
    if "segment_ids" not in batch:
        return sequence_means(hidden, batch)
    examples = 1 + jnp.arange(batch["cls_positions"].shape[1])
    in_example = batch["segment_ids"][:, None, :] == examples[:, None]  # [batch, examples, length]
    weights = in_example / jnp.maximum(in_example.sum(-1, keepdims=True), 1)
    means = jnp.einsum("bel,blh->beh", weights.astype(jnp.float32), hidden, preferred_element_type=jnp.float32)
    return means.reshape(-1, hidden.shape[-1]).astype(hidden.dtype)


def scale_to_unit_length(vectors: jax.Array) -> jax.Array:
    """Return vectors scaled to length 1, `[..., hidden]`; a vector of zeros stays zero."""
    return vectors / jnp.sqrt(jnp.sum(vectors * vectors, axis=-1, keepdims=True) + UNIT_LENGTH_EPSILON)


# A row is a function (hidden `[rows, length, hidden]`, batch) -> `[batch, hidden]`. For packed sequences, whose batch
# has `segment_ids` and `cls_positions`, the result is `[batch * examples, hidden]`.
POOLINGS: dict[str, Callable[[jax.Array, Batch], jax.Array]] = {"first": pool_first_token, "mean": pool_mean}


LSTM_LAYERS = 2
DIRECTIONS = ("forward", "backward")


class BiLstm(nn.Module):
    """Two bidirectional LSTM layers, `[batch, length, hidden]` in and out; each direction has half of the features.

    The array `segments`, int32 `[batch, length]`, has for each token the number of its text. No state passes from a
    text to the next text or to padding. For each text, the result equals the result of `torch.nn.LSTM` on this text,
    without the second bias of torch.
    """

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, segments: jax.Array) -> jax.Array:
        for layer in range(LSTM_LAYERS):
            from_left, from_right = (_Lstm(self.config, self.dtype, name=f"{name}_{layer}") for name in DIRECTIONS)
            flipped = from_right(jnp.flip(x, 1), jnp.flip(segments, 1))
            x = jnp.concatenate([from_left(x, segments), jnp.flip(flipped, 1)], axis=-1)
        return x


class _Lstm(nn.Module):
    """One direction of one LSTM layer; its gates have the order of torch: input, forget, cell, output."""

    config: EncoderConfig
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array, segments: jax.Array) -> jax.Array:
        width = self.config.hidden_size // 2
        stddev = width**-0.5
        gates = Linear((x.shape[-1], 4 * width), ("embed", "features"), stddev, self.dtype, name="input")(x)
        init = nn.initializers.truncated_normal(stddev)
        kernel = logical_param(self, "recurrent", init, (width, 4 * width), ("embed", "features"))
        kernel = kernel.astype(dtype_between_products(self.dtype))
        same_text = jnp.pad(segments[:, 1:] == segments[:, :-1], ((0, 0), (1, 0)))  # same text as the token before

        def lstm_cell(
            hidden_and_cell: tuple[jax.Array, jax.Array], gates_and_mask: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            """Return hidden state and cell after a token, float32 `[batch, width]`; mask 0 means a new text."""
            gate, continues_text = gates_and_mask
            hidden, cell = (jnp.where(continues_text[:, None], x, 0.0) for x in hidden_and_cell)
            i, f, g, o = jnp.split(gate.astype(jnp.float32) + product(hidden, kernel, self.dtype), 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        zeros = jnp.zeros((len(x), width), jnp.float32)
        _, hidden = jax.lax.scan(lstm_cell, (zeros, zeros), (gates.swapaxes(0, 1), same_text.T))
        return hidden.swapaxes(0, 1).astype(dtype_between_products(self.dtype))


QUESTION_LENGTH = 128  # tokens; `config.task.max_query_length` is 64


class GlobalTokenRule(NamedTuple):
    """A row of GLOBAL_TOKENS: the tokens that a head makes global."""

    mask_fn: Callable[[jax.Array], jax.Array]  # separators -> global tokens, both bool `[batch, length]`
    expected_count: int  # expected number; with more global tokens, a long sequence takes the time of all pairs
    is_upper_bound: bool = False  # whether no sequence has more global tokens than `expected_count`


def first_token_mask(separators: jax.Array) -> jax.Array:
    """Return a mask of the first token, [CLS]."""
    return jnp.broadcast_to(jnp.arange(separators.shape[1]) == 0, separators.shape)


def first_text_mask(separators: jax.Array) -> jax.Array:
    """Return a mask of all tokens before the first separator, which are [CLS] and a question."""
    return jnp.cumsum(separators, axis=1) == 0


def second_text_mask(separators: jax.Array) -> jax.Array:
    """Return a mask of all tokens from the second column after the first separator on: a choice and its separator."""
    after = jnp.pad(jnp.cumsum(separators, axis=1) > 0, ((0, 0), (2, 0)))
    return after[:, : separators.shape[1]]


# Head -> the rule that transformers has for the class with this head. Heads without a row make no token global.
GLOBAL_TOKENS: dict[str, GlobalTokenRule] = {
    "sequence_classification": GlobalTokenRule(first_token_mask, 1, is_upper_bound=True),
    "question_answering": GlobalTokenRule(first_text_mask, QUESTION_LENGTH),
    "multiple_choice": GlobalTokenRule(second_text_mask, QUESTION_LENGTH),
}


def global_token_mask(config: EncoderConfig, heads: Collection[str], input_ids: jax.Array) -> GlobalTokenMask | None:
    """Return the tokens that any of the heads makes global; None if the heads or the model have no global tokens."""
    rules = [rule for name, rule in GLOBAL_TOKENS.items() if name in heads]
    if config.separator_id is None or not rules:
        return None
    separators, mask = input_ids == config.separator_id, jnp.zeros(input_ids.shape, bool)
    for rule in rules:
        mask |= rule.mask_fn(separators)
    capacity = sum(rule.expected_count for rule in rules)
    return GlobalTokenMask(mask, capacity, all(rule.is_upper_bound for rule in rules))
