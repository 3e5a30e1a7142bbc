"""Pseudo-perplexity of running text (Salazar et al. 2020), per token, per word and per character."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_jax.inference.inputs import read_inputs, texts_by_key
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, ScoredItem
from bert_jax.scoring.queries import Queries, ScoringContext, TextTokens, join_queries, pseudo_log_likelihood_queries

NUM_SPECIAL = 2  # special tokens of an input


def _read_nonblank_lines(path: pathlib.Path) -> list[Item]:
    """Return the nonblank lines of a file, or the field `text` of each line of a JSON-lines file."""
    lines = ((line.where, texts_by_key(line)["text"]) for line in read_inputs(path))
    return [Item(where, path.name, (text,)) for where, text in lines if text.strip()]


def _queries_of_line_pieces(context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]) -> list[Queries]:
    """Return a query for each token of a line; a line that is too long for the model is split between words."""
    (line,) = tokens
    ends = piece_ends_at_words(line.words, context.max_positions - NUM_SPECIAL)
    pieces = [
        TextTokens(line.ids[start:end], line.words[start:end], line.offsets[start:end])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    return [join_queries([pseudo_log_likelihood_queries(context, piece) for piece in pieces])]


def piece_ends_at_words(words: np.ndarray, max_tokens: int) -> list[int]:
    """Return the end index of each piece of a line; a piece has at most `max_tokens` tokens.

    The argument `words` has the word index of each token. A piece ends between two words, unless a single word has more
    than `max_tokens` tokens.
    """
    ends, start = [], 0
    while start < len(words):
        end = min(start + max_tokens, len(words))
        word_ends = [
            index for index in range(start + 1, end + 1) if index == len(words) or words[index] != words[index - 1]
        ]
        start = word_ends[-1] if word_ends else end
        ends.append(start)
    return ends


def _perplexity_per_token_and_word(context: ScoringContext, scored: Sequence[ScoredItem]) -> Figures:
    """Return the pseudo-perplexity per token and per word, and the bits per character.

    The pseudo-perplexity is the exponential of the mean negative log-probability. Words are separated by white space,
    and characters are counted in the original lines. Therefore figures per word and per character can be compared
    between models with different vocabularies; figures per token cannot. The figure `split_lines` is the number of
    lines that are too long for the model.
    """
    texts = [line.item.texts[0] for line in scored]
    lengths = [len(line.tokens[0].ids) for line in scored]
    num_tokens, num_words, num_characters = sum(lengths), sum(len(text.split()) for text in texts), sum(map(len, texts))
    nats = -math.fsum(value for line in scored for value in line.log_probabilities[0])
    return {
        "lines": len(scored),
        "split_lines": sum(length > context.max_positions - NUM_SPECIAL for length in lengths),
        "tokens": num_tokens,
        "words": num_words,
        "pseudo_perplexity": _capped_exp(nats / num_tokens) if num_tokens else None,
        "per_word": _capped_exp(nats / num_words) if num_tokens else None,
        "bits_per_character": nats / math.log(2) / num_characters if num_tokens else None,
    }


def _capped_exp(nats: float) -> float:
    """Return exp(nats), limited to exp(700), because a model with random weights could cause an overflow."""
    return math.exp(min(nats, 700.0))


TEXT = Benchmark(
    read=_read_nonblank_lines,
    data="a text per line",
    unit="lines",
    queries=_queries_of_line_pieces,
    figures=_perplexity_per_token_and_word,
    splits_texts=True,
)
