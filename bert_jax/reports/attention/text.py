"""The attention weights of all heads in a text, between tokens or between words, with rollout and relevance."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.errors import UserError
from bert_jax.reports.attention.head_roles import (
    Relevance,
    attention_rollout,
    attention_weights_by_layer,
    token_to_word_attention,
    weights_and_relevance,
)
from bert_jax.reports.attention.patterns import HeadPattern, head_pattern
from bert_jax.reports.corpus.examples import replace_control_characters
from bert_jax.strict_json import has_surrogate
from bert_jax.tasks.kinds.texts import text_features

MAX_TOKENS = 512  # maximum number on a page or picture, so that a page of 144 heads stays under 6 MB


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextAttention:
    """The attention of each head in a text, between tokens or between words.

    In a long text, the queries are only a window of tokens that begins at token `first`; the keys are always all
    tokens.
    """

    tokens: list[str]  # texts of the tokens, or of the words
    ids: np.ndarray  # int32; ids of the tokens, or of the first token of each word
    weights: list[np.ndarray]  # float [heads, queries, keys] of each layer
    rollout: np.ndarray | None = None  # float [tokens, tokens]; None for a window: rollout needs all weights
    relevance: Relevance | None = None  # None: no answer to explain, or a window
    first: int = 0
    unit: str = "tokens"  # or "words"

    @property
    def window(self) -> slice:
        """The slice of the text's tokens that are queries."""
        return slice(self.first, self.first + self.weights[0].shape[1])


def text_attention(model: OpenModel, text: str, pair: str | None = None, first: int = 0) -> TextAttention:
    """Return the attention of each head of each layer between the tokens of a text, or of a pair of texts.

    In a text without a second text, the tokenizer's spelling of the mask token, such as `[MASK]`, becomes the mask
    token. The model reads the whole text. The queries are at most `MAX_TOKENS` tokens of the text, beginning at token
    `first`.

    Raise UserError if the text is not valid or is too long for the model, or if `first` is beyond the end of the text.
    """
    ids, types = _encode(model, text, pair)
    if not 0 <= first < len(ids):
        raise UserError(f"--first_token {first}: this text has {len(ids):,} tokens, 0 to {len(ids) - 1}")
    batch = {"input_ids": ids[None], "token_type_ids": types[None], "attention_mask": np.ones_like(ids)[None]}
    tokens = [replace_control_characters(model.tokenizer.tokens[token]) for token in ids]
    if first or len(ids) > MAX_TOKENS:
        weights = attention_weights_by_layer(model, batch, slice(first, first + MAX_TOKENS))
        return TextAttention(tokens=tokens, ids=ids, weights=weights, first=first)
    weights, relevance = weights_and_relevance(model, batch)
    return TextAttention(
        tokens=tokens, ids=ids, weights=weights, rollout=attention_rollout(weights), relevance=relevance
    )


def attention_within_window(attention: TextAttention) -> TextAttention:
    """Return the attention among the tokens of the window; all keys outside the window are left out."""
    window = attention.window
    weights = [layer[:, :, window] for layer in attention.weights]
    return dataclasses.replace(attention, tokens=attention.tokens[window], ids=attention.ids[window], weights=weights)


def attention_between_words(model: OpenModel, attention: TextAttention) -> TextAttention:
    """Return the attention between words, computed from attention between tokens; a special token counts as a word.

    Raises UserError if the window holds no complete word.
    """
    is_special = np.isin(attention.ids, [model.tokenizer.cls_id, model.tokenizer.sep_id])
    begins_word = ~model.tokenizer.continues[attention.ids]
    begins_word[1:] |= is_special[:-1]  # byte-level: no mark before the first word
    words = np.cumsum(begins_word)
    words -= words[0]
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    ids_of_words = np.split(attention.ids, starts[1:])
    first, relevance = int(words[attention.first - 1]) + 1 if attention.first else 0, attention.relevance
    if first == len(ids_of_words) or starts[first] + len(ids_of_words[first]) > attention.window.stop:
        raise UserError(f"the tokens from {attention.first} on hold no complete word; leave out --words")
    return TextAttention(
        tokens=[replace_control_characters(model.tokenizer.decode(ids.tolist()).strip()) for ids in ids_of_words],
        ids=attention.ids[starts],
        weights=[token_to_word_attention(layer, words, attention.first) for layer in attention.weights],
        rollout=None if attention.rollout is None else token_to_word_attention(attention.rollout, words),
        relevance=relevance and relevance._replace(tokens=np.bincount(words, relevance.tokens)),
        first=first,
        unit="words",
    )


def patterns_of_heads(model: OpenModel, attention: TextAttention) -> list[list[HeadPattern]]:
    """Return the attention pattern of each head of each layer."""
    special = {"cls": model.tokenizer.cls_id, "sep": model.tokenizer.sep_id}
    return [
        [head_pattern(head, attention.ids, special, attention.first) for head in layer] for layer in attention.weights
    ]


def chosen_indexes(option: str, index: int | None, total: int) -> list[int]:
    """Return the indexes of the layers or heads that an option chooses; None chooses all layers or heads.

    Raise UserError if the model does not have the chosen layer or head; the message names the option.
    """
    if index is not None and not 0 <= index < total:
        raise UserError(f"--{option} {index}: this model has {total}, 0 to {total - 1}")
    return list(range(total)) if index is None else [index]


class _EncodedText(NamedTuple):
    """Token ids and token types of a text or a pair, int32 `[length]`."""

    ids: np.ndarray
    token_types: np.ndarray


def _encode(model: OpenModel, text: str, pair: str | None) -> _EncodedText:
    """Return the token ids and the token types of a text or of a pair of texts."""
    if has_surrogate(text + (pair or "")):
        raise UserError("the text has half of a surrogate pair, which is not a character; fix it")
    limit, mask = model.config.max_positions, model.tokenizer.tokens[model.tokenizer.mask_id]
    if mask in text + (pair or ""):
        if pair is not None:
            raise UserError(f"{mask} is allowed in a single text only; leave out the second text")
        ids = np.array(model.tokenizer.encode(text), np.int32)
        types, too_long = np.zeros(len(ids), bool), len(ids) > limit
    else:
        fields = {"id": "0", "text": text} | ({} if pair is None else {"text_pair": pair})
        (features,), counts = text_features([fields], model.tokenizer, limit)
        ((sequence, type_1_start),) = features.sequences
        ids, too_long = np.asarray(sequence, np.int32), counts["truncated_texts"] > 0
        types = (np.arange(len(ids)) >= type_1_start) & (model.config.num_token_types > 1)
    if too_long:
        raise UserError(f"the text has more than {limit:,} tokens, all that this model reads; shorten it")
    return _EncodedText(ids, types.astype(np.int32))
