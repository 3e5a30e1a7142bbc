"""The tokens that a head makes global, as transformers chooses them for the class with that head."""

from collections.abc import Callable, Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.encoder import ChosenTokens

QUESTION = 128  # tokens; `config.task.max_query_length` is 64


class Choice(NamedTuple):
    """A row of GLOBAL_TOKENS."""

    choose: Callable[[jax.Array], jax.Array]  # bool `[batch, length]`, where a separator is -> which are global
    usual: int  # tokens at most; more take the time of all pairs in long sequences
    at_most: bool = False  # whether there are never more


def first_token(separators: jax.Array) -> jax.Array:
    """The first, [CLS]."""
    return jnp.broadcast_to(jnp.arange(separators.shape[1]) == 0, separators.shape)


def first_text(separators: jax.Array) -> jax.Array:
    """All before the first separator: [CLS] and a question."""
    return jnp.cumsum(separators, axis=1) == 0


def second_text(separators: jax.Array) -> jax.Array:
    """All from the second column after the first separator on: a choice, with the separator after it."""
    after = jnp.pad(jnp.cumsum(separators, axis=1) > 0, ((0, 0), (2, 0)))
    return after[:, : separators.shape[1]]


# By head; under the others no token is global.
GLOBAL_TOKENS: dict[str, Choice] = {
    "sequence_classification": Choice(first_token, 1, at_most=True),
    "question_answering": Choice(first_text, QUESTION),
    "multiple_choice": Choice(second_text, QUESTION),
}


def tokens_to_be_global(config: EncoderConfig, heads: Collection[str], input_ids: jax.Array) -> ChosenTokens | None:
    """Return the tokens that any of the heads makes global; None where there are none, as in other models."""
    rows = [row for name, row in GLOBAL_TOKENS.items() if name in heads]
    if config.separator_id is None or not rows:
        return None
    separators, chosen = input_ids == config.separator_id, jnp.zeros(input_ids.shape, bool)
    for row in rows:
        chosen |= row.choose(separators)
    return ChosenTokens(chosen, sum(row.usual for row in rows), all(row.at_most for row in rows))
