"""Masked inputs of texts (queries); a row of MASKINGS chooses the tokens to mask for each predicted token."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tasks.features import encode_distinct
from bert_jax.tokenizer import Tokenizer

IS_NEXT = 0  # class of the next-sentence head
Span = tuple[int, int]  # of characters: (first, end)


class TextTokens(NamedTuple):
    """The tokens of a text, without special tokens."""

    ids: np.ndarray  # int32 [tokens]
    words: np.ndarray  # int32 [tokens], index of the word
    offsets: np.ndarray  # int64 [tokens, 2], spans of characters (first, end)


class Queries(NamedTuple):
    """Queries about a text: a masked input for each token to predict, or a single input of two texts."""

    inputs: Sequence[np.ndarray]  # int32 [length] each, masks and special tokens included
    positions: (
        np.ndarray
    )  # int32 [queries], the index of the token in its input; or of the first token of the second text
    targets: np.ndarray  # int32 [queries], the id of the token; or the class of the next-sentence head


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringContext:
    """The values of a model that determine its queries."""

    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    max_positions: int  # of an input, special tokens included
    masking: str  # a row of MASKINGS


# Word indices int [n] -> bool [n, n]: [i, j]: token j is masked for the prediction of token i.
MASKINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # The token and the later tokens of its word, so that no part of a word reveals the rest (Kauf and Ivanova 2023).
    "within_word_l2r": lambda words: np.triu(words[:, None] == words[None]),
    # The token alone (Salazar et al. 2020).
    "original": lambda words: np.eye(len(words), dtype=bool),
}


def make_context(tokenizer: Tokenizer, max_positions: int, masking: str) -> ScoringContext:
    """Return the context of a model's tokenizer."""
    return ScoringContext(
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
        unk_id=tokenizer.unk_id,
        max_positions=max_positions,
        masking=masking,
    )


def tokenize_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, TextTokens]:
    """Return text -> its tokens; text that spells a special token, such as [MASK], counts as plain text."""
    return {
        text: TextTokens(
            np.array(encoded.ids, np.int32),
            np.array(encoded.words, np.int32),
            np.array(encoded.offsets, np.int64).reshape(-1, 2),
        )
        for text, encoded in encode_distinct(texts, tokenizer.encode_with_offsets).items()
    }


def tokens_in(tokens: TextTokens, span: Span) -> np.ndarray:
    """Return the indices of the tokens that overlap a span of characters, int64 [any]."""
    return np.flatnonzero((tokens.offsets[:, 0] < span[1]) & (tokens.offsets[:, 1] > span[0]))


def sentence_queries(context: ScoringContext, tokens: TextTokens) -> Queries:
    """Return a query for each token; the log-probabilities sum to the pseudo-log-likelihood (Salazar et al. 2020)."""
    return _masked_queries(context, tokens, np.arange(len(tokens.ids)), MASKINGS[context.masking](tokens.words))


def queries_with_one_masked_token(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray) -> Queries:
    """Return a query for each token in `indexes`, int [queries], which masks only this token."""
    return _masked_queries(context, tokens, indexes, indexes[:, None] == np.arange(len(tokens.ids)))


def span_queries(
    context: ScoringContext, tokens: TextTokens, indexes: np.ndarray, hidden: np.ndarray | None = None
) -> Queries:
    """Return a query for each token in `indexes`, int [queries], which masks this and all later tokens of `indexes`.

    The log-probabilities sum to the log-probability of these tokens, given all other tokens. `hidden`, int [any], are
    tokens that all queries mask.
    """
    masked = np.zeros((len(indexes), len(tokens.ids)), bool)
    for query in range(len(indexes)):
        masked[query, indexes[query:]] = True
    if hidden is not None:
        masked[:, hidden] = True
    return _masked_queries(context, tokens, indexes, masked)


def _masked_queries(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray, masked: np.ndarray) -> Queries:
    """Return a query for each token of `indexes`, int [queries], which masks `masked`, bool [queries, tokens]."""
    inputs = np.where(masked, np.int32(context.mask_id), tokens.ids)
    first, last = (np.full((len(inputs), 1), token, np.int32) for token in (context.cls_id, context.sep_id))
    framed = np.concatenate([first, inputs, last], axis=1)
    return Queries(list(framed), indexes.astype(np.int32) + 1, tokens.ids[indexes])


def prefix_queries(context: ScoringContext, tokens: TextTokens, indexes: np.ndarray) -> Queries:
    """Return a query for each token in `indexes`, int [queries], which leaves out all later tokens of `indexes`."""
    after = tokens.ids[indexes[-1] + 1 :]
    inputs = [
        np.array([context.cls_id, *tokens.ids[:index], context.mask_id, *after, context.sep_id], np.int32)
        for index in indexes
    ]
    return Queries(inputs, indexes.astype(np.int32) + 1, tokens.ids[indexes])


def pair_query(context: ScoringContext, tokens: TextTokens, split: int) -> Queries:
    """Return the query of the next-sentence head: does the text from character `split` on follow the text before?"""
    first = int(np.count_nonzero(tokens.offsets[:, 0] < split))
    ids = [context.cls_id, *tokens.ids[:first], context.sep_id, *tokens.ids[first:], context.sep_id]
    return Queries([np.array(ids, np.int32)], np.array([first + 2], np.int32), np.array([IS_NEXT], np.int32))


def join_queries(parts: Sequence[Queries]) -> Queries:
    """Return all queries of the parts in their order."""
    none = np.zeros(0, np.int32)
    return Queries(
        [input_ids for part in parts for input_ids in part.inputs],
        np.concatenate([none, *(part.positions for part in parts)]),
        np.concatenate([none, *(part.targets for part in parts)]),
    )
