"""Targets of masked language modeling: pure functions of (ids, seed, example number), over many examples at once.

One algorithm with a row of `MASKINGS` per rule: a candidate begins at each word, and the candidates come in a random
order. A candidate is taken unless it overlaps an earlier taken candidate, or has more tokens than remain to predict.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, integers, random_bits, uniform
from bert_jax.config import DataConfig, PhaseConfig

MAX_WORD_TOKENS = 8  # longer words (scripts without spaces, long numbers) are masked token by token
MIN_EXAMPLE_TOKENS = 3  # [CLS], a token, [SEP]
_WORD_BITS = 16  # bits of a sorting key for the word: an example has at most 2**16 words and tokens
_RANKS = 64  # candidates of an example between two removals of impossible candidates


class Vocabulary(NamedTuple):
    """The part of a tokenizer that masking needs.

    `size`: random tokens are uniform below it, as in the original code; `mask`: id of [MASK]; `continues`: bool
    [size], True where a token continues the word before it.
    """

    size: int
    mask: int
    continues: np.ndarray


class LinearMaskRate(NamedTuple):
    """A masking rate that runs linearly from `begin`, at sequence `first`, to `end`, `num_sequences` later."""

    begin: float
    end: float
    first: int
    num_sequences: int

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Return float64 [n], the rates of the sequences with these numbers."""
        done = np.clip((numbers - self.first) / self.num_sequences, 0.0, 1.0)
        return self.begin + (self.end - self.begin) * done


class Masked(NamedTuple):
    """`input_ids` int32 [tokens]: tokens to read; `positions` int64 [predictions]: tokens to predict, ascending."""

    input_ids: np.ndarray
    positions: np.ndarray


class Masking(NamedTuple):
    """A row of MASKINGS: the unit that is masked.

    `whole_words`: words instead of tokens. `max_words`: words per candidate, as published. `weights`: (max_words,
    config) -> float64 [max_words], proportional to the probability of 1, 2, ... words. `one_draw`: whether all tokens
    of a candidate become [MASK], or all become random tokens, or all stay.
    """

    whole_words: bool
    max_words: int
    weights: Callable[[int, DataConfig], np.ndarray]
    one_draw: bool = False


def _harmonic_weights(max_words: int, config: DataConfig) -> np.ndarray:
    """Return weights 1/n of n words."""
    return 1 / np.arange(1, max_words + 1)


def _geometric_weights(max_words: int, config: DataConfig) -> np.ndarray:
    """Return weights of a geometric distribution of numbers of words."""
    return (1 - config.span_end_probability) ** np.arange(max_words)


MASKINGS: dict[str, Masking] = {
    # Devlin et al. 2019; google-research/bert, create_pretraining_data.py: uniformly without replacement.
    "token": Masking(whole_words=False, max_words=1, weights=_harmonic_weights),
    # Its do_whole_word_mask: words in a random order; a word with more tokens than remain to predict is skipped.
    "whole_word": Masking(whole_words=True, max_words=1, weights=_harmonic_weights),
    # Lan et al. 2020: n words with p ~ 1/n, fewer where the text or the number of predictions ends.
    "ngram": Masking(whole_words=True, max_words=3, weights=_harmonic_weights),
    # Joshi et al. 2020: n words with p ~ (1 - 0.2)**n, fewer at such an end; one draw of [MASK], random or kept per
    # span.
    "span": Masking(
        whole_words=True,
        max_words=10,
        weights=_geometric_weights,
        one_draw=True,
    ),
}


def data_config_for_evaluation(config: DataConfig, eval_uses_training_masks: bool = False) -> DataConfig:
    """Return `config` for an evaluation: each sequence once, 15 % of its tokens masked, by BERT's mix.

    Losses of runs and of phases with different rates are then comparable (the mix of Devlin et al. 2019). The masked
    unit stays and, with `eval_uses_training_masks`, the mix: a generator that was trained without random tokens would
    predict a random token as the correct token.
    """
    config = dataclasses.replace(config, mask_probability=0.15, weights=None, smoothing=1.0, dupe_factor=None)
    if eval_uses_training_masks:
        return config
    return dataclasses.replace(config, mask_token_fraction=0.8, random_token_fraction=0.1)


def phase_mask_rates(config: DataConfig, phase: PhaseConfig) -> tuple[float, float]:
    """Return the fractions of tokens to predict at the beginning and at the end of a phase."""
    begin = config.mask_probability if phase.mask_probability is None else phase.mask_probability
    return begin, begin if phase.mask_probability_end is None else phase.mask_probability_end


def data_config_of_phase(config: DataConfig, phase: PhaseConfig) -> DataConfig:
    """Return `config` with the masking of a phase; for a changing rate, with its maximum, which sets the shapes."""
    fixed, random = phase.mask_token_fraction, phase.random_token_fraction
    return dataclasses.replace(
        config,
        mask_probability=max(phase_mask_rates(config, phase)),
        mask_token_fraction=config.mask_token_fraction if fixed is None else fixed,
        random_token_fraction=config.random_token_fraction if random is None else random,
    )


def changing_mask_rate(config: DataConfig, phase: PhaseConfig, first: int, num_sequences: int) -> LinearMaskRate | None:
    """Return the changing rate of a phase whose sequences begin at number `first`; None for a constant rate."""
    begin, end = phase_mask_rates(config, phase)
    return LinearMaskRate(begin, end, first, num_sequences) if begin != end and num_sequences else None


def max_predictions(seq_len: int, mask_probability: float) -> int:
    """Return the number of predictions of a full sequence of one example: 20 at length 128 and 77 at 512 with 15 %."""
    return math.ceil(mask_probability * seq_len)


def predictions_bound(seq_len: int, config: DataConfig) -> int:
    """Return the maximum number of predictions of a sequence of `config.packing` examples of any lengths."""
    if config.packing == 1:
        return max_predictions(seq_len, config.mask_probability)
    # The predictions of each example are rounded up by 1/2 at most, or to 1 where the example is short.
    rounding = max(0.5, 1 - config.mask_probability * MIN_EXAMPLE_TOKENS)
    bound = math.floor(config.mask_probability * seq_len + config.packing * rounding + 1e-6)
    return min(seq_len, bound)


class _Words(NamedTuple):
    """The words of all examples in order, made of maskable tokens.

    `tokens` int64 [maskable]: positions of the maskable tokens. `first` int64 [words + 1]: index in `tokens` of the
    first token of each word. `bounds` int64 [examples + 1]: words of each example. `run_ends` int64 [words]: the word
    before which the run of maskable tokens ends.
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
    rates: np.ndarray | None = None,
    begins_word: np.ndarray | None = None,
) -> Masked:
    """Choose tokens to predict and hide them: 80 % become [MASK], 10 % a random token, 10 % stay.

    An example predicts `mask_probability` times its length, special tokens included, rounded half to even, at least 1
    and at most its maskable tokens. Masking `token` predicts exactly this number; the other maskings predict at most
    this number, since a word is never split. A word ends before a token that is not maskable, and each token of a word
    of more than `MAX_WORD_TOKENS` tokens counts as a word.

    Args:
        ids: int32 [tokens], all examples one after the other; not modified.
        maskable: bool [tokens], False for [CLS] and [SEP].
        starts: int64 [examples + 1], the first token of each example, and the end; an example has at most 2**16 tokens.
        numbers: int64 or uint64 [examples], example numbers, which select the masks.
        seed: seed of the run.
        config: reads `masking`, `mask_probability`, `mask_token_fraction`, `random_token_fraction`,
            `max_span_length` and `span_end_probability`.
        vocabulary: vocabulary of the corpus.
        rates: float64 [examples], which replace `mask_probability`.
        begins_word: bool [tokens], word starts of a segmenter; None: word starts of the vocabulary.

    Raises:
        ValueError: an example has more than 2**16 tokens.
    """
    masking = MASKINGS[config.masking]
    lengths = np.diff(starts)
    if lengths.max(initial=0) > 1 << _WORD_BITS:
        raise ValueError(f"an example has {lengths.max()} tokens; the maximum is {1 << _WORD_BITS}")
    continues = vocabulary.continues if masking.whole_words else None
    words = _find_words(ids, maskable, starts, continues, begins_word)
    quota = np.maximum(1, np.rint((config.mask_probability if rates is None else rates) * lengths)).astype(np.int64)
    quota = np.minimum(quota, np.diff(words.first[words.bounds]))

    example = np.repeat(np.arange(len(lengths)), np.diff(words.bounds))
    offset = words.tokens[words.first[:-1]] - starts[example]
    bits = _bits_at_offsets(seed, Stream.MASK_POSITION, numbers, example, offset)
    order = _shuffle_words(words.bounds, bits, np.diff(words.bounds) if masking.whole_words else quota)
    max_words = (config.max_span_length or masking.max_words) if masking.max_words > 1 else 1
    if not masking.whole_words:
        word = order
        count = np.ones_like(word)
    elif max_words == 1:
        word = _take_words(order, example, np.diff(words.first), quota)
        count = np.ones_like(word)
    else:
        cumulative = np.cumsum(masking.weights(max_words, config))
        draw = uniform(_bits_at_offsets(seed, Stream.MASK_WORDS, numbers, example, offset))
        drawn = 1 + np.searchsorted(cumulative[:-1] / cumulative[-1], draw, side="right")
        drawn = np.minimum(drawn, words.run_ends - np.arange(len(drawn)))
        word, count = _take_spans(order, example, words.first, drawn, quota)

    word, count = (array[np.argsort(word)] for array in (word, count))
    begin = words.first[word]
    size = words.first[word + count] - begin
    positions = words.tokens[np.repeat(begin - np.cumsum(size) + size, size) + np.arange(size.sum())]
    drawn_at = np.repeat(words.tokens[begin], size) if masking.one_draw else positions
    return Masked(_hide_tokens(ids, positions, drawn_at, starts, numbers, seed, config, vocabulary), positions)


def _hide_tokens(
    ids: np.ndarray,
    positions: np.ndarray,
    drawn_at: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    seed: int,
    config: DataConfig,
    vocabulary: Vocabulary,
) -> np.ndarray:
    """Return `ids` with [MASK], a random token or the same token at `positions`.

    Positions with the same `drawn_at` share the choice among the three.
    """
    example = np.searchsorted(starts, positions, side="right") - 1
    begin = starts[example]
    kind = uniform(_bits_at_offsets(seed, Stream.MASK_KIND, numbers, example, drawn_at - begin))
    token = integers(_bits_at_offsets(seed, Stream.MASK_TOKEN, numbers, example, positions - begin), vocabulary.size)
    random = kind < config.mask_token_fraction + config.random_token_fraction
    masked = ids.copy()
    masked[positions[random]] = token[random]
    masked[positions[kind < config.mask_token_fraction]] = vocabulary.mask
    return masked


def _bits_at_offsets(
    seed: int, stream: Stream, numbers: np.ndarray, example: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """Return random bits, uint64 [n], for each pair of an example and an offset in the example."""
    return random_bits(random_bits(seed, stream, numbers)[example], offset)


def _find_words(
    ids: np.ndarray,
    maskable: np.ndarray,
    starts: np.ndarray,
    continues: np.ndarray | None,
    begins_word: np.ndarray | None,
) -> _Words:
    """Return the words of all examples; without `continues`, every token is a word."""
    tokens = np.flatnonzero(maskable)
    examples = np.searchsorted(tokens, starts)
    if continues is None:
        first = np.arange(len(tokens) + 1)
        return _Words(tokens, first, examples, first[1:])  # the runs of tokens are not used
    interrupted = np.ones(len(tokens) + 1, bool)
    interrupted[1:-1] = np.diff(tokens) != 1
    interrupted[examples] = True
    begins = interrupted.copy()
    begins[:-1] |= ~continues[ids[tokens]] if begins_word is None else begins_word[tokens]
    first = np.flatnonzero(begins)
    size = np.diff(first)
    if (size > MAX_WORD_TOKENS).any():
        begins[:-1] |= np.repeat(size > MAX_WORD_TOKENS, size)
        first = np.flatnonzero(begins)
    runs = np.flatnonzero(interrupted[first])
    run_ends = np.repeat(runs[1:], np.diff(runs))
    return _Words(tokens, first, np.searchsorted(first, examples), run_ends)


def _shuffle_words(bounds: np.ndarray, bits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the first `wanted`, int64 [examples], words of each example in the order of their `bits`; int64 [words].

    A table sorts examples of similar numbers of words together, four times as fast as a single sort of all words.
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


def _take_words(order: np.ndarray, example: np.ndarray, sizes: np.ndarray, quota: np.ndarray) -> np.ndarray:
    """Return the words, int64 [taken], that a walk along `order` takes; words of more tokens than remain are skipped.

    Each round takes, in all examples at once, the words before the first word that is too large, and drops all words
    that are now too large. Fewer tokens than a word then remain to predict, so few rounds follow.
    """
    left = quota.copy()
    taken = [order[:0]]
    while order.size:
        begins, counts = _example_groups(example)
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
    order: np.ndarray, example: np.ndarray, first: np.ndarray, drawn: np.ndarray, quota: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first word and the number of words, int64 [taken] each, of the spans that a walk along `order` takes.

    A span has the number of words `drawn` for its first word, or fewer words that still fit. A span is skipped if no
    word fits, or if it overlaps an earlier span. The walk is a loop over ranks, in all examples at once.
    """
    sizes = np.diff(first)
    left = quota.copy()
    span = np.arange(min(drawn.max(initial=0), quota.max(initial=0)))
    covered = np.zeros(len(sizes) + len(span), bool)
    # The word of each maskable token; padded at the end by the maximum number of predicted tokens.
    word_of = np.repeat(np.arange(len(sizes) + 1), np.append(sizes, 1 + quota.max(initial=0)))
    words, counts = [order[:0]], [order[:0]]
    while True:
        possible = (sizes[order] <= left[example]) & ~covered[order]
        order, example = order[possible], example[possible]
        if not order.size:
            return np.concatenate(words), np.concatenate(counts)
        begins, candidates = _example_groups(example)
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


def _example_groups(example: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first index and the number of words of each non-empty example, int64 each."""
    begins = np.flatnonzero(np.append(True, example[1:] != example[:-1]))
    return begins, np.diff(begins, append=len(example))
