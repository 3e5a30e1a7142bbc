"""Text -> masked inputs: which tokens are masked when a token is predicted (the table MASKINGS)."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.tasks.features import encode_distinct
from bert_jax.tokenizer import Tokenizer

IS_NEXT = 0  # class of the next-sentence head
Span = tuple[int, int]  # first character and the end


class Tokens(NamedTuple):
    """A text as a model reads it, special tokens excluded."""

    ids: np.ndarray  # int32 [tokens]
    words: np.ndarray  # int32 [tokens], number of the word
    offsets: np.ndarray  # int64 [tokens, 2], first character and the end


class Queries(NamedTuple):
    """What a model is asked about one text: one masked input for each token that it predicts; or one of two texts."""

    inputs: Sequence[np.ndarray]  # int32 [length] each, masks and special tokens included
    positions: np.ndarray  # int32 [queries], where in its input the token is; or where the second text begins
    targets: np.ndarray  # int32 [queries], its id; or the class of the next-sentence head


class Context(NamedTuple):
    """What turns tokens into queries."""

    cls_id: int
    sep_id: int
    mask_id: int
    unk_id: int
    max_tokens: int  # of an input, special tokens excluded
    masking: str  # a row of MASKINGS


# Word numbers int [n] -> bool [n, n]: [i, j] says whether token j is masked when token i is predicted.
MASKINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # The token and the later tokens of its word, so that no part of a word gives the rest away (Kauf and Ivanova 2023).
    "within_word_l2r": lambda words: np.triu(words[:, None] == words[None]),
    # The token alone (Salazar et al. 2020).
    "original": lambda words: np.eye(len(words), dtype=bool),
}


def make_context(tokenizer: Tokenizer, max_positions: int, masking: str) -> Context:
    """Return the context of a model's tokenizer."""
    special = tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.unk_id
    return Context(*special, max_positions - 2, masking)


def tokenize(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, Tokens]:
    """Return text -> its tokens; a special token that a text spells is not one."""
    found = encode_distinct(texts, tokenizer.encode_with_offsets)
    return {
        text: Tokens(
            np.array(one.ids, np.int32), np.array(one.words, np.int32), np.array(one.offsets, np.int64).reshape(-1, 2)
        )
        for text, one in found.items()
    }


def sentence_queries(context: Context, tokens: Tokens) -> Queries:
    """Return one query per token: the log-probabilities sum to the pseudo-log-likelihood (Salazar et al. 2020)."""
    masked = MASKINGS[context.masking](tokens.words)
    inputs = np.where(masked, np.int32(context.mask_id), tokens.ids)
    return Queries(with_special_tokens(context, inputs), np.arange(1, len(tokens.ids) + 1, dtype=np.int32), tokens.ids)


def shared_queries(context: Context, tokens: Tokens, shared: np.ndarray) -> Queries:
    """Return one query for each of some tokens, `shared` int [queries], which alone is masked."""
    inputs = np.tile(tokens.ids, (len(shared), 1))
    inputs[np.arange(len(shared)), shared] = context.mask_id
    return Queries(with_special_tokens(context, inputs), shared.astype(np.int32) + 1, tokens.ids[shared])


def tokens_in(tokens: Tokens, span: Span) -> np.ndarray:
    """Return which tokens have a character of a span of the text, int64 [found]."""
    return np.flatnonzero((tokens.offsets[:, 0] < span[1]) & (tokens.offsets[:, 1] > span[0]))


def stretch_queries(context: Context, tokens: Tokens, places: np.ndarray, hidden: Sequence[int] = ()) -> Queries:
    """Return one query for each token of a stretch, `places` int [queries]: it and the later ones of it are masked.

    Their log-probabilities sum to that of the stretch, given the tokens around it. `hidden` ones are masked throughout.
    """
    inputs = np.tile(tokens.ids, (len(places), 1))
    inputs[:, list(hidden)] = context.mask_id
    for number in range(len(places)):
        inputs[number, places[number:]] = context.mask_id
    return Queries(with_special_tokens(context, inputs), places.astype(np.int32) + 1, tokens.ids[places])


def with_special_tokens(context: Context, inputs: np.ndarray) -> list[np.ndarray]:
    """Return the rows of `[queries, tokens]`, each between [CLS] and [SEP]."""
    first, last = (np.full((len(inputs), 1), number, np.int32) for number in (context.cls_id, context.sep_id))
    return list(np.concatenate([first, inputs, last], axis=1))


def pair_query(context: Context, tokens: Tokens, split: int) -> Queries:
    """Return one query: is what begins at the character `split` the next sentence after what is before it?"""
    first = int(np.count_nonzero(tokens.offsets[:, 0] < split))
    ids = [context.cls_id, *tokens.ids[:first], context.sep_id, *tokens.ids[first:], context.sep_id]
    return Queries([np.array(ids, np.int32)], np.array([first + 2], np.int32), np.array([IS_NEXT], np.int32))
