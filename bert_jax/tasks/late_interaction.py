"""The tokens that late interaction (ColBERT) compares: expanded queries, and documents without punctuation."""

import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.config import EncoderConfig, TaskConfig
from bert_jax.errors import UserError
from bert_jax.models.positions import POSITIONS
from bert_jax.tasks.features import Features
from bert_jax.tokenizer import Tokenizer

# Keys of a batch. Both arrays are int32 in the shape of `input_ids`. In the first, 1 marks a token whose vector is
# compared; in the second, 1 marks a token to which no token attends.
SCORED, UNREAD = "scored_tokens", "unread_tokens"
PUNCTUATION = tuple(string.punctuation)
QUERY = "query"  # name of the prompt of a query


class TokenRules(NamedTuple):
    """The rules that choose which tokens of queries and documents get a vector.

    Attributes:
        query_length: maximum number of tokens of a query; None: the maximum of the model
        document_length: maximum number of tokens of a document; None: the maximum of the model
        expands: whether mask tokens fill a query up to `query_length`
        attends: whether the other tokens of a query attend to the mask tokens that fill the query
        skipped_words: tokens that get no vector in documents; a word that is not in the vocabulary has no effect
    """

    query_length: int | None = None
    document_length: int | None = None
    expands: bool = False
    attends: bool = False
    skipped_words: tuple[str, ...] = ()


def token_rules(settings: TaskConfig) -> TokenRules:
    """Return the rules that the settings of a task give for queries and documents."""
    return TokenRules(
        query_length=settings.query_length or settings.max_seq_len,
        document_length=settings.max_seq_len,
        expands=settings.query_length is not None,
        attends=settings.attend_to_expansion,
        skipped_words=PUNCTUATION if settings.skip_punctuation else (),
    )


def check_unread_tokens(rules: TokenRules, config: EncoderConfig, where: str) -> None:
    """Raise UserError if the mask tokens of a query would have other vectors than in transformers.

    In transformers, tokens to which no token attends have a zero embedding (disentangled attention), read nothing
    (Longformer), or have a window without a token to read. `where` names the model.
    """
    if not rules.expands or rules.attends:
        return
    windows = config.local_windows or ((config.local_window,) if config.local_window else ())
    reasons = {
        "disentangled attention": POSITIONS[config.positions].distances is not None,
        "global tokens": config.separator_id is not None,
        f"windows of {min(windows, default=0)} tokens": any((rules.query_length or 0) > n // 2 + 2 for n in windows),
    }
    if reason := next((reason for reason, applies in reasons.items() if applies), None):
        raise UserError(
            f"{where}: with {reason}, tokens of a query must attend to the mask tokens that fill it, or transformers "
            "computes other vectors; set config.task.attend_to_expansion=True in training"
        )


def make_token_marker(rules: TokenRules, tokenizer: Tokenizer) -> Callable[[Features, Sequence[bool]], Features]:
    """Return a function that adds the arrays SCORED and UNREAD to an input.

    UNREAD is added only if tokens do not attend to the mask tokens that expand a query. The function takes an input of
    one or several texts (each a sequence of tokens of type 0), and whether each text is a query.
    """
    ids_of_tokens = {token: token_id for token_id, token in enumerate(tokenizer.tokens)}
    skipped = [ids_of_tokens[word] for word in rules.skipped_words if word in ids_of_tokens]

    def mark_tokens(features: Features, is_query: Sequence[bool]) -> Features:
        all_ids, starts, scored, unread = [], [], [], []
        for (ids, type_1_start), of_query in zip(features.sequences, is_query, strict=True):
            length = max(len(ids), rules.query_length or 0) if of_query and rules.expands else len(ids)
            all_ids.append(np.append(ids, np.full(length - len(ids), tokenizer.mask_id, ids.dtype)))
            starts.append(length if type_1_start == len(ids) else type_1_start)
            scored.append(np.ones(length, np.int32) if of_query else (~np.isin(ids, skipped)).astype(np.int32))
            unread.append((np.arange(length) >= len(ids)).astype(np.int32))
        targets = {SCORED: np.concatenate(scored)}
        if rules.expands and not rules.attends:
            targets[UNREAD] = np.concatenate(unread)
        several = isinstance(features.input_ids, list)
        return features._replace(
            input_ids=all_ids if several else all_ids[0],
            type_1_start=starts if several else starts[0],
            targets={**features.targets, **targets},
        )

    return mark_tokens


def select_scored_tokens(features: Features, values: np.ndarray) -> np.ndarray:
    """Return the values of the tokens that get a vector; return all values if the text has no array SCORED.

    `values` has a row for each token of the text, and perhaps further rows for padding.
    """
    if SCORED not in features.targets:
        return values
    scored = np.asarray(features.targets[SCORED]) != 0
    of_tokens: np.ndarray = values[: len(scored)][scored]
    return of_tokens
