"""Queries: inputs with masked tokens that ask a model for the probability of a token.

Each row of MASKINGS is a rule that chooses which tokens are masked while a token is predicted.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tasks.features import encode_distinct
from bert_jax.tokenizer import Tokenizer

IS_NEXT = 0  # class of the next-sentence head for "the second text follows the first text"
Span = tuple[int, int]  # a span of characters: (first character, last character + 1)


class TextTokens(NamedTuple):
    """The tokens of a text, without special tokens."""

    ids: np.ndarray  # int32 [tokens]
    words: np.ndarray  # int32 [tokens], index of each token's word
    offsets: np.ndarray  # int64 [tokens, 2], each token's characters: (first character, last character + 1)


class Queries(NamedTuple):
    """Queries about a text: a masked input for each token to predict, or a single input of two texts."""

    inputs: Sequence[np.ndarray]  # token ids of each input, int32 [length], with masks and special tokens
    # int32 [queries]: index of the predicted token in its input; for an input of two texts, index of the second text's
    # first token
    positions: np.ndarray
    targets: np.ndarray  # int32 [queries]: id of the predicted token, or class of the next-sentence head


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringContext:
    """The settings of a model that determine its queries: ids of special tokens, maximum length, masking."""

    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    max_positions: int  # maximum number of tokens of an input, special tokens included
    masking: str  # a row of MASKINGS


# Name -> function from the word index of each token, int [n], to a mask, bool [n, n]; mask[i, j] is True if token j is
# masked for the prediction of token i.
MASKINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # Mask the token and the later tokens of its word, so that they do not reveal the token (Kauf and Ivanova 2023).
    "within_word_l2r": lambda words: np.triu(words[:, None] == words[None]),
    # Mask only the token (Salazar et al. 2020).
    "original": lambda words: np.eye(len(words), dtype=bool),
}


def make_scoring_context(tokenizer: Tokenizer, max_positions: int, masking: str) -> ScoringContext:
    """Return the settings for queries to a model with this tokenizer, maximum length and masking."""
    return ScoringContext(
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
        unk_id=tokenizer.unk_id,
        max_positions=max_positions,
        masking=masking,
    )


def tokenize_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, TextTokens]:
    """Return a dict from text to tokens; a special token that a text spells, such as [MASK], becomes plain text."""
    return {
        text: TextTokens(
            np.array(encoded.ids, np.int32),
            np.array(encoded.words, np.int32),
            np.array(encoded.offsets, np.int64).reshape(-1, 2),
        )
        for text, encoded in encode_distinct(texts, tokenizer.encode_with_offsets).items()
    }


def tokens_overlapping_span(tokens: TextTokens, span: Span) -> np.ndarray:
    """Return the indices of the tokens that overlap a span of characters, int64 [tokens in the span]."""
    return np.flatnonzero((tokens.offsets[:, 0] < span[1]) & (tokens.offsets[:, 1] > span[0]))


def pseudo_log_likelihood_queries(context: ScoringContext, tokens: TextTokens) -> Queries:
    """Return a query for each token of a text; the setting `masking` decides which tokens are masked.

    The log-probabilities of the queries sum to the pseudo-log-likelihood of the text (Salazar et al. 2020).
    """
    return _masked_queries(context, tokens, np.arange(len(tokens.ids)), MASKINGS[context.masking](tokens.words))


def queries_masking_one_token(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray) -> Queries:
    """Return a query for each token with an index in `indexes`, int [queries]; a query masks only this token."""
    return _masked_queries(context, tokens, indexes, indexes[:, None] == np.arange(len(tokens.ids)))


def queries_masking_later_tokens(
    context: ScoringContext, tokens: TextTokens, indexes: np.ndarray, hidden: np.ndarray | None = None
) -> Queries:
    """Return a query for each token in `indexes`, int [queries]; it masks the token and all later tokens of `indexes`.

    The log-probabilities of the queries sum to the joint log-probability of the tokens in `indexes`, given all other
    tokens. The argument `hidden` has the indices of further tokens that are masked in all queries.
    """
    masked = np.zeros((len(indexes), len(tokens.ids)), bool)
    for query in range(len(indexes)):
        masked[query, indexes[query:]] = True
    if hidden is not None:
        masked[:, hidden] = True
    return _masked_queries(context, tokens, indexes, masked)


def _masked_queries(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray, masked: np.ndarray) -> Queries:
    """Return a query for each token in `indexes`, int [queries]; row i of `masked`, bool, has the masks of query i."""
    inputs = np.where(masked, np.int32(context.mask_id), tokens.ids)
    first, last = (np.full((len(inputs), 1), token, np.int32) for token in (context.cls_id, context.sep_id))
    framed = np.concatenate([first, inputs, last], axis=1)
    return Queries(list(framed), indexes.astype(np.int32) + 1, tokens.ids[indexes])


def queries_omitting_later_tokens(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray) -> Queries:
    """Return a query for each token with an index in `indexes`, int [queries]; mask the token, leave out later tokens.

    Only later tokens of `indexes` are left out; the tokens after the last index stay.
    """
    after = tokens.ids[indexes[-1] + 1 :]
    inputs = [
        np.array([context.cls_id, *tokens.ids[:index], context.mask_id, *after, context.sep_id], np.int32)
        for index in indexes
    ]
    return Queries(inputs, indexes.astype(np.int32) + 1, tokens.ids[indexes])


def next_sentence_query(context: ScoringContext, tokens: TextTokens, split: int) -> Queries:
    """Return a next-sentence query: does the text from character `split` on follow the text before this character?"""
    first = int(np.count_nonzero(tokens.offsets[:, 0] < split))
    ids = [context.cls_id, *tokens.ids[:first], context.sep_id, *tokens.ids[first:], context.sep_id]
    return Queries([np.array(ids, np.int32)], np.array([first + 2], np.int32), np.array([IS_NEXT], np.int32))


def join_queries(parts: Sequence[Queries]) -> Queries:
    """Return a single `Queries` object with the queries of all parts, in order."""
    none = np.zeros(0, np.int32)
    return Queries(
        [input_ids for part in parts for input_ids in part.inputs],
        np.concatenate([none, *(part.positions for part in parts)]),
        np.concatenate([none, *(part.targets for part in parts)]),
    )
