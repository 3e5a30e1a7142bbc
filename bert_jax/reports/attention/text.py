"""A text through the model: tokens or words, the weights of all heads, and what follows from them."""

from typing import NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.errors import UserError
from bert_jax.reports.attention.head_roles import Relevance, by_word, rollout, weights_and_relevance, weights_of
from bert_jax.reports.attention.patterns import Reading, reading_of
from bert_jax.reports.corpus.sequences_text import printable
from bert_jax.tasks.kinds.texts import text_features

MAX_TOKENS = 512  # that are shown: a page of 144 heads stays under 6 MB


class ReadText(NamedTuple):
    """What a model reads in a text, between tokens or between words.

    Of a long text, the queries are a window, from token `first` on; the keys are always all tokens.
    """

    tokens: list[str]  # or words
    ids: np.ndarray  # int32, of the tokens, or of the first token of each word
    weights: list[np.ndarray]  # float [heads, queries, keys] of each layer
    rollout: np.ndarray | None  # float [tokens, tokens]; None: of a window, it would need all weights
    relevance: Relevance | None  # None: nothing to explain, or of a window
    first: int = 0

    @property
    def window(self) -> slice:
        """The tokens that are queries."""
        return slice(self.first, self.first + self.weights[0].shape[1])


def read_text(model: OpenModel, text: str, pair: str | None = None, first: int = 0) -> ReadText:
    """Return what each head of each layer reads in a text, or in a pair of texts, between tokens.

    In a single text the mask token as the tokenizer spells it, `[MASK]`, is one. The model reads the whole text; the
    queries are its first `MAX_TOKENS` tokens from token `first` on.

    Raises UserError where there are more tokens than the model reads, or no token `first`.
    """
    ids, types = _encoded(model, text, pair)
    if not 0 <= first < len(ids):
        raise UserError(f"--first_token {first}: this text has {len(ids):,} tokens, 0 to {len(ids) - 1}")
    batch = {"input_ids": ids[None], "token_type_ids": types[None], "attention_mask": np.ones_like(ids)[None]}
    tokens = [printable(model.tokenizer.tokens[number]) for number in ids]
    if first or len(ids) > MAX_TOKENS:
        weights = weights_of(model, batch, slice(first, first + MAX_TOKENS))
        return ReadText(tokens, ids, weights, None, None, first)
    weights, relevance = weights_and_relevance(model, batch)
    return ReadText(tokens, ids, weights, rollout(weights), relevance)


def shown(found: ReadText) -> ReadText:
    """Return what the tokens of the window read of each other."""
    part = found.window
    weights = [layer[:, :, part] for layer in found.weights]
    return found._replace(tokens=found.tokens[part], ids=found.ids[part], weights=weights)


def between_words(model: OpenModel, found: ReadText) -> ReadText:
    """Return the same between words, as `by_word` sums it up; special tokens are words of their own.

    Raises UserError where a window holds no word whole.
    """
    words = np.cumsum(~model.tokenizer.continues[found.ids])
    words -= words[0]
    starts = np.flatnonzero(np.diff(words, prepend=-1))
    parts = np.split(found.ids, starts[1:])
    first = int(words[found.first - 1]) + 1 if found.first else 0
    if first == len(parts) or starts[first] + len(parts[first]) > found.window.stop:
        raise UserError(f"no word lies whole among the tokens from {found.first} on; leave out --words")
    return ReadText(
        [printable(model.tokenizer.decode(part.tolist()).strip()) for part in parts],
        found.ids[starts],
        [by_word(layer, words, found.first) for layer in found.weights],
        None if found.rollout is None else by_word(found.rollout, words),
        found.relevance and found.relevance._replace(tokens=np.bincount(words, found.relevance.tokens)),
        first,
    )


def readings_of(model: OpenModel, found: ReadText) -> list[list[Reading]]:
    """Return the patterns of each head of each layer."""
    special = {"cls": model.tokenizer.cls_id, "sep": model.tokenizer.sep_id}
    return [[reading_of(head, found.ids, special, found.first) for head in layer] for layer in found.weights]


def chosen(what: str, number: int | None, total: int) -> list[int]:
    """Return the layers or heads that a `number` chooses, None all.

    Raises UserError, which names the option `--what`, where there is no such number.
    """
    if number is not None and not 0 <= number < total:
        raise UserError(f"--{what} {number}: this model has {total}, 0 to {total - 1}")
    return list(range(total)) if number is None else [number]


def _encoded(model: OpenModel, text: str, pair: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and token types, int32 `[length]` each."""
    limit, mask = model.config.max_positions, model.tokenizer.tokens[model.tokenizer.mask_id]
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
        raise UserError(f"the text has more than {limit:,} tokens, all that this model reads; shorten it")
    return ids, types.astype(np.int32)
