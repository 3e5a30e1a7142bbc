"""A text through the model: tokens or words, the weights of all heads, and what follows from them."""

from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.load import OpenModel
from bert_jax.reports.attention_page.flow import Relevance, by_word, rollout, weights_and_relevance
from bert_jax.reports.attention_page.patterns import Reading, reading_of
from bert_jax.reports.sequences_text import printable
from bert_jax.tasks.kinds.shared.texts import text_features

MAX_TOKENS = 512  # a page of 144 heads stays under 6 MB


class ReadText(NamedTuple):
    """What a model reads in a text, between tokens or between words."""

    tokens: list[str]  # or words
    ids: np.ndarray  # int32, of the tokens, or of the first token of each word
    weights: list[np.ndarray]  # float [heads, queries, keys] of each layer
    rollout: np.ndarray  # float [tokens, tokens]
    relevance: Relevance | None  # None: nothing to explain


def read_text(model: OpenModel, text: str, pair: str | None = None) -> ReadText:
    """Return what each head of each layer reads in a text, or in a pair of texts, between tokens.

    In a single text the mask token as the tokenizer spells it, `[MASK]`, is one.

    Raises UserError where there are more tokens than the model reads, or than a page shows.
    """
    ids, types = _encoded(model, text, pair)
    batch = {"input_ids": ids[None], "token_type_ids": types[None], "attention_mask": np.ones_like(ids)[None]}
    weights, relevance = weights_and_relevance(model, batch)
    tokens = [printable(model.tokenizer.tokens[number]) for number in ids]
    return ReadText(tokens, ids, weights, rollout(weights), relevance)


def between_words(model: OpenModel, found: ReadText) -> ReadText:
    """Return the same between words, as `by_word` sums it up; special tokens are words of their own."""
    words = np.cumsum(~model.tokenizer.continues[found.ids])
    words -= words[0]
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    parts = np.split(found.ids, starts[1:])
    return ReadText(
        [printable(model.tokenizer.decode(part.tolist()).strip()) for part in parts],
        found.ids[starts],
        [by_word(layer, words) for layer in found.weights],
        by_word(found.rollout, words),
        found.relevance and found.relevance._replace(tokens=np.bincount(words, found.relevance.tokens)),
    )


def readings_of(model: OpenModel, found: ReadText) -> list[list[Reading]]:
    """Return the patterns of each head of each layer."""
    special = {"cls": model.tokenizer.cls_id, "sep": model.tokenizer.sep_id}
    return [[reading_of(head, found.ids, special) for head in layer] for layer in found.weights]


def chosen(what: str, number: int | None, total: int) -> list[int]:
    """Return the layers or heads that a `number` chooses, None all.

    Raises UserError, which names the option `--what`, where there is no such number.
    """
    if number is not None and not 0 <= number < total:
        raise UserError(f"--{what} {number}: this model has {total}, 0 to {total - 1}")
    return list(range(total)) if number is None else [number]


def _encoded(model: OpenModel, text: str, pair: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and token types, int32 `[length]` each."""
    limit, mask = min(model.config.max_positions, MAX_TOKENS), model.tokenizer.tokens[model.tokenizer.mask_id]
    if mask in text + (pair or ""):
        if pair is not None:
            raise UserError(f"a pair of texts with {mask}, which is read in a single text alone; leave out the pair")
        ids = np.array(model.tokenizer.encode(text), np.int32)
        types, too_long = np.zeros(len(ids), bool), len(ids) > limit
    else:
        fields = {"id": "0", "text": text} | ({} if pair is None else {"text_pair": pair})
        (made,), counts = text_features([fields], model.tokenizer, limit)
        ((found, second),) = made.sequences
        ids, too_long = np.asarray(found, np.int32), counts["truncated_texts"] > 0
        types = (np.arange(len(ids)) >= second) & (model.config.num_token_types > 1)
    if too_long:
        raise UserError(f"the text has more than {limit} tokens, all that this model reads or a page shows; shorten it")
    return ids, types.astype(np.int32)
