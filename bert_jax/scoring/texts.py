"""Pseudo-perplexity of running text (Salazar et al. 2020), per token, per word and per character."""

import math
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.inputs import read_inputs, texts_of
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, Scored
from bert_jax.scoring.queries import Context, Queries, Tokens, sentence_queries


def read(path: pathlib.Path) -> list[Item]:
    """Return the lines of a file that are not blank, or the `text` of its JSON lines; UserError where there is none."""
    lines = ((one, texts_of(one)["text"]) for one in read_inputs(path))
    items = [Item(one.where, path.name, (text,)) for one, text in lines if text.strip()]
    if not items:
        raise UserError(f"{path} holds no text")
    return items


def ask(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> list[Queries]:
    """Return the queries of a line; a line that is longer than the model reads is split between words."""
    (line,) = tokens
    ends = pieces(line.words, context.max_tokens)
    parts = [
        sentence_queries(context, Tokens(line.ids[start:end], line.words[start:end], line.offsets[start:end]))
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    return [
        Queries(
            [one for part in parts for one in part.inputs],
            np.concatenate([np.zeros(0, np.int32), *(part.positions for part in parts)]),
            line.ids,
        )
    ]


def pieces(words: np.ndarray, max_tokens: int) -> list[int]:
    """Return where each piece of a line ends: before a new word where there is one, `max_tokens` apart at most."""
    ends, start = [], 0
    while start < len(words):
        end = min(start + max_tokens, len(words))
        begins = [
            place for place in range(start + 1, end + 1) if place == len(words) or words[place] != words[place - 1]
        ]
        start = begins[-1] if begins else end
        ends.append(start)
    return ends


def measure(context: Context, scored: Sequence[Scored]) -> Figures:
    """Return the pseudo-perplexity, exp of the mean negative log-probability, of tokens and of words; bits a character.

    Words are separated by white space, and characters are those of the lines: figures of models with different
    vocabularies compare by them, figures per token do not. `split_lines` were longer than the model reads.
    """
    texts = [one.item.texts[0] for one in scored]
    tokens = sum(len(one.tokens[0].ids) for one in scored)
    words, characters = sum(len(text.split()) for text in texts), sum(map(len, texts))
    nats = -math.fsum(number for one in scored for number in one.log_probabilities[0])
    return {
        "lines": len(scored),
        "split_lines": sum(len(one.tokens[0].ids) > context.max_tokens for one in scored),
        "tokens": tokens,
        "words": words,
        "pseudo_perplexity": _exp(nats / tokens) if tokens else None,
        "per_word": _exp(nats / words) if tokens else None,
        "bits_per_character": nats / math.log(2) / characters if tokens else None,
    }


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))  # of random weights it may exceed what a float holds


TEXT = Benchmark(read, "lines", ask, measure)
