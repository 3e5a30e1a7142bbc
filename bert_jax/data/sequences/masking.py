"""Masked-language-model targets: pure functions of (ids, seed, number of the example), over many examples at once.

One rule with four rows in `MASKINGS`: candidates, one beginning at each word, come in a random order; each is taken
unless it meets a word taken before it, or has more tokens than are left to predict.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.sequences.hashing import Stream, integers, random_bits, uniform

LONGEST_WORD = 8  # in tokens; what has more (scripts without spaces, long numbers) is taken token by token
SHORTEST_EXAMPLE = 3  # [CLS], a token, [SEP]
_WORD_BITS = 16  # of a sorting key: the most words, and so tokens, of an example
_RANKS = 64  # candidates of an example between two clearings of those that cannot be taken any more


class Vocabulary(NamedTuple):
    """What masking knows of a tokenizer.

    `size`: random tokens are uniform over all of it, as in the original; `mask`: id of [MASK]; `continues`: bool
    [size], True where a token goes on with the word before it.
    """

    size: int
    mask: int
    continues: np.ndarray


class Masked(NamedTuple):
    """`input_ids` int32 [tokens] to read, `positions` int64 [predictions] to predict: ascending places among them."""

    input_ids: np.ndarray
    positions: np.ndarray


class Masking(NamedTuple):
    """What is masked together.

    `whole_words`: words, not tokens; `longest`: words in a candidate, as published; `weights`: (longest, config) ->
    float64 [longest], in proportion to the probability of 1, 2, ... words; `one_draw`: all tokens of a candidate become
    [MASK], or all become random tokens, or all stay.
    """

    whole_words: bool
    longest: int
    weights: Callable[[int, DataConfig], np.ndarray]
    one_draw: bool = False


def _harmonic(longest: int, config: DataConfig) -> np.ndarray:
    return 1 / np.arange(1, longest + 1)


def _geometric(longest: int, config: DataConfig) -> np.ndarray:
    return (1 - config.span_end_probability) ** np.arange(longest)


MASKINGS = {
    "token": Masking(whole_words=False, longest=1, weights=_harmonic),
    "whole_word": Masking(whole_words=True, longest=1, weights=_harmonic),
    "ngram": Masking(whole_words=True, longest=3, weights=_harmonic),
    "span": Masking(whole_words=True, longest=10, weights=_geometric, one_draw=True),
}


def max_predictions(length: int, mask_probability: float) -> int:
    """Predictions of a full row of one example: 20 at length 128 and 77 at 512 with the usual 15 %."""
    return math.ceil(mask_probability * length)


def predictions_bound(length: int, config: DataConfig) -> int:
    """Most predictions in a row of `length` tokens that `config.packing` examples share, whatever their lengths."""
    if config.packing == 1:
        return max_predictions(length, config.mask_probability)
    # Each example is rounded up by a half at most, or to 1 where it is short.
    rounding = max(0.5, 1 - config.mask_probability * SHORTEST_EXAMPLE)
    bound = math.floor(config.mask_probability * length + config.packing * rounding + 1e-6)
    return min(length, bound)


class _Words(NamedTuple):
    """Words over the maskable tokens of all examples, in order.

    `tokens`: int64 [maskable], places of those tokens; `first`: int64 [words + 1], where in `tokens` each word begins;
    `bounds`: int64 [examples + 1], words of each example; `run_ends`: int64 [words], the word before which the maskable
    tokens are interrupted.
    """

    tokens: np.ndarray
    first: np.ndarray
    bounds: np.ndarray
    run_ends: np.ndarray


def mask_tokens(
    ids: np.ndarray,
    maskable: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    *,
    seed: int,
    config: DataConfig,
    vocabulary: Vocabulary,
) -> Masked:
    """Chooses tokens to predict and hides them: 80 % [MASK], 10 % a random token, 10 % as they are.

    An example predicts `mask_probability` times its length, special tokens included, rounded half to even, at least 1
    and at most its maskable tokens: exactly so many with `config.masking` token; with the others at most so many, as
    a word is never split. A word ends before a token that is not maskable, and one of more than `LONGEST_WORD` tokens
    counts as so many words.

    - token: uniformly without replacement (Devlin et al. 2019; google-research/bert, create_pretraining_data.py).
    - whole_word: words in a random order; one that would exceed the budget is skipped (the same, do_whole_word_mask).
    - ngram: n words, n up to 3 with p ~ 1/n, fewer where the text or the budget ends (Lan et al. 2020).
    - span: n words, n up to 10 with p ~ (1 - 0.2)**n, likewise; [MASK], random or kept is drawn once a span (Joshi et
      al. 2020).

    Args:
        ids: int32 [tokens], all examples one after the other; not changed.
        maskable: bool [tokens], False for [CLS] and [SEP].
        starts: int64 [examples + 1], where each example begins, and the end; an example has at most 2**16 tokens.
        numbers: int64 or uint64 [examples]; another number gives other masks.
        seed: of the run.
        config: `masking`, the row of `MASKINGS`; `mask_probability`, `mask_token_fraction`, `random_token_fraction`,
            `max_span_length`, `span_end_probability`.
        vocabulary: of the corpus.

    Raises:
        ValueError: a longer example.
    """
    masking = MASKINGS[config.masking]
    lengths = np.diff(starts)
    if lengths.max(initial=0) > 1 << _WORD_BITS:
        raise ValueError(f"an example of {lengths.max()} tokens; they have at most {1 << _WORD_BITS}")
    words = _find_words(ids, maskable, starts, vocabulary.continues if masking.whole_words else None)
    budget = np.maximum(1, np.rint(config.mask_probability * lengths)).astype(np.int64)
    budget = np.minimum(budget, np.diff(words.first[words.bounds]))

    example = np.repeat(np.arange(len(lengths)), np.diff(words.bounds))
    offset = words.tokens[words.first[:-1]] - starts[example]
    bits = _bits(seed, Stream.MASK_POSITION, numbers, example, offset)
    order = _shuffle(words.bounds, bits, np.diff(words.bounds) if masking.whole_words else budget)
    longest = config.max_span_length if masking.longest > 1 and config.max_span_length else masking.longest
    if not masking.whole_words:
        word = order
        count = np.ones_like(word)
    elif longest == 1:
        word = _take_words(order, example, np.diff(words.first), budget)
        count = np.ones_like(word)
    else:
        shares = np.cumsum(masking.weights(longest, config))
        draw = uniform(_bits(seed, Stream.MASK_WORDS, numbers, example, offset))
        drawn = 1 + np.searchsorted(shares[:-1] / shares[-1], draw, side="right")
        drawn = np.minimum(drawn, words.run_ends - np.arange(len(drawn)))
        word, count = _take_spans(order, example, words.first, drawn, budget)

    word, count = (array[np.argsort(word)] for array in (word, count))
    begin = words.first[word]
    size = words.first[word + count] - begin
    positions = words.tokens[np.repeat(begin - np.cumsum(size) + size, size) + np.arange(size.sum())]
    drawn_at = np.repeat(words.tokens[begin], size) if masking.one_draw else positions
    return Masked(_replace(ids, positions, drawn_at, starts, numbers, seed, config, vocabulary), positions)


def _replace(
    ids: np.ndarray,
    positions: np.ndarray,
    drawn_at: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    seed: int,
    config: DataConfig,
    vocabulary: Vocabulary,
) -> np.ndarray:
    """`ids` with [MASK], a random token or the same at `positions`; places with one `drawn_at` share that choice."""
    example = np.searchsorted(starts, positions, side="right") - 1
    begin = starts[example]
    kind = uniform(_bits(seed, Stream.MASK_KIND, numbers, example, drawn_at - begin))
    token = integers(_bits(seed, Stream.MASK_TOKEN, numbers, example, positions - begin), vocabulary.size)
    random = kind < config.mask_token_fraction + config.random_token_fraction
    masked = ids.copy()
    masked[positions[random]] = token[random]
    masked[positions[kind < config.mask_token_fraction]] = vocabulary.mask
    return masked


def _bits(seed: int, stream: Stream, numbers: np.ndarray, example: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """64 random bits, uint64 [n], for each pair of an example and an offset in it."""
    return random_bits(random_bits(seed, stream, numbers)[example], offset)


def _find_words(ids: np.ndarray, maskable: np.ndarray, starts: np.ndarray, continues: np.ndarray | None) -> _Words:
    """The words of all examples; without `continues`, every token is one."""
    tokens = np.flatnonzero(maskable)
    examples = np.searchsorted(tokens, starts)
    if continues is None:
        first = np.arange(len(tokens) + 1)
        return _Words(tokens, first, examples, first[1:])  # nothing asks for the runs of tokens
    interrupted = np.ones(len(tokens) + 1, bool)
    interrupted[1:-1] = np.diff(tokens) != 1
    interrupted[examples] = True
    begins = interrupted.copy()
    begins[:-1] |= ~continues[ids[tokens]]
    first = np.flatnonzero(begins)
    size = np.diff(first)
    if (size > LONGEST_WORD).any():
        begins[:-1] |= np.repeat(size > LONGEST_WORD, size)
        first = np.flatnonzero(begins)
    runs = np.flatnonzero(interrupted[first])
    run_ends = np.repeat(runs[1:], np.diff(runs))
    return _Words(tokens, first, np.searchsorted(first, examples), run_ends)


def _shuffle(bounds: np.ndarray, bits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The first `wanted` int64 [examples] words of each example in the order of their `bits`; int64, end to end.

    Sorted in tables of examples that have alike many words, four times as fast as one sort over all.
    """
    begins, counts = bounds[:-1], np.diff(bounds)
    # The low bits of a key are the word: the smallest keys are a random draw without ties.
    keys = bits >> _WORD_BITS << _WORD_BITS
    keys |= (np.arange(len(bits)) - np.repeat(begins, counts)).view(np.uint64)
    ends = np.cumsum(wanted)
    order = np.empty(wanted.sum(), np.int64)
    widths = 1 << np.ceil(np.log2(np.maximum(1, counts))).astype(np.int64)
    for width in np.unique(widths[counts > 0]):
        row, column = np.flatnonzero(widths == width)[:, None], np.arange(width)
        table = keys.take(begins[row] + column, mode="clip")
        table[column >= counts[row]] = np.iinfo(np.uint64).max
        table.sort(axis=1)
        column = column[: wanted[row].max()]
        word = begins[row] + (table[:, : len(column)] & ((1 << _WORD_BITS) - 1)).view(np.int64)
        used = column < wanted[row]
        order[((ends - wanted)[row] + column)[used]] = word[used]
    return order


def _take_words(order: np.ndarray, example: np.ndarray, sizes: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """The words, int64 [taken], that a walk along `order` takes, skipping those larger than what is left.

    A round takes, in all examples at once, the words before the first one too large, and drops those too large from
    then on; what is left is then less than a word, so few rounds follow.
    """
    left = budget.copy()
    taken = [order[:0]]
    while order.size:
        begins, counts = _groups(example)
        owner = example[begins]
        size = sizes[order]
        total = np.cumsum(size)
        fits = total <= np.repeat(total[begins] - size[begins] + left[owner], counts)
        taken.append(order[fits])
        left[owner] -= np.add.reduceat(size * fits, begins)
        remains = ~fits & (size <= np.repeat(left[owner], counts))
        order, example = order[remains], example[remains]
    return np.concatenate(taken)


def _take_spans(
    order: np.ndarray, example: np.ndarray, first: np.ndarray, drawn: np.ndarray, budget: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The first words and the counts of words, int64 [taken], of the spans that a walk along `order` takes.

    A span has the words `drawn` for its first one, or as many of them as what is left has room for; it is skipped if
    that is none, or if it meets a word of a span before it. The walk is a loop over ranks in all examples at once.
    """
    sizes = np.diff(first)
    left = budget.copy()
    span = np.arange(min(drawn.max(initial=0), budget.max(initial=0)))
    covered = np.zeros(len(sizes) + len(span), bool)
    # The word of each maskable token, and past their end for as far as a budget reaches.
    word_of = np.repeat(np.arange(len(sizes) + 1), np.append(sizes, 1 + budget.max(initial=0)))
    words, counts = [order[:0]], [order[:0]]
    while True:
        possible = (sizes[order] <= left[example]) & ~covered[order]
        order, example = order[possible], example[possible]
        if not order.size:
            return np.concatenate(words), np.concatenate(counts)
        begins, candidates = _groups(example)
        candidate, end, owner = begins, begins + candidates, example[begins]
        for _ in range(_RANKS):
            alive = (candidate < end) & (left[owner] > 0)
            candidate, end, owner = candidate[alive], end[alive], owner[alive]
            if not candidate.size:
                break
            word = order[candidate]
            count = np.minimum(drawn[word], word_of[first[word] + left[owner]] - word)
            window = word[:, None] + span
            inside = span < count[:, None]
            free = (count > 0) & ~(covered[window] & inside).any(axis=1)
            word, count = word[free], count[free]
            covered[window[free][inside[free]]] = True
            left[owner[free]] -= first[word + count] - first[word]
            words.append(word)
            counts.append(count)
            candidate = candidate + 1
        later = np.arange(len(order)) - np.repeat(begins, candidates) >= _RANKS
        order, example = order[later], example[later]


def _groups(example: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each example begins among its words, and how many it has; int64, examples without any left out."""
    begins = np.flatnonzero(np.append(True, example[1:] != example[:-1]))
    return begins, np.diff(begins, append=len(example))
