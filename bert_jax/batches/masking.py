"""The tokens to predict in masked language modeling, as pure functions of (ids, seed, example number).

All rules (rows of `MASKINGS`) share one algorithm, which runs for many examples at once. Each word begins a candidate,
which has one or more words to mask together; the candidates come in random order. A candidate is skipped if it overlaps
a candidate that was taken before, or if it has more tokens than the example may still predict. Every other candidate
is taken.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats, uniform_integers
from bert_jax.config import DataConfig, PhaseConfig, section_of_phase

MAX_WORD_TOKENS = 8  # longer words (scripts without spaces, long numbers) are masked token by token
MIN_EXAMPLE_TOKENS = 3  # [CLS], a token, [SEP]
_WORD_BITS = 16  # bits of a sorting key that hold the word's index; an example has at most 2**16 tokens
_RANKS = 64  # after this number of candidates of an example, candidates that no longer fit are removed


class Vocabulary(NamedTuple):
    """The part of a tokenizer that masking needs.

    `size` is the number of tokens; random tokens are uniform ids below `size`, as in BERT. `mask` is the id of
    [MASK]. `continues`, bool [size], is True for tokens that continue a word.
    """

    size: int
    mask: int
    continues: np.ndarray


class LinearMaskRate(NamedTuple):
    """A masking rate that changes linearly from `begin` (at sequence `first`) to `end` (`num_sequences` later)."""

    begin: float
    end: float
    first: int
    num_sequences: int

    def rates_of_sequences(self, sequence_numbers: np.ndarray) -> np.ndarray:
        """Return the masking rates of sequences, float64 [sequences]."""
        done = np.clip((sequence_numbers - self.first) / self.num_sequences, 0.0, 1.0)
        return self.begin + (self.end - self.begin) * done


class Masked(NamedTuple):
    """Token ids after masking, int32 [tokens], and the ascending positions of predicted tokens, int64 [predictions]."""

    input_ids: np.ndarray
    positions: np.ndarray


class Masking(NamedTuple):
    """A row of MASKINGS: the unit that is masked, such as a token, a word or a span.

    `whole_words` is True if units are words, not tokens. `max_words` is the maximum number of words per candidate, as
    published. `weights` is a function (max_words, config) -> float64 [max_words], which is proportional to the
    probabilities that a candidate has 1, 2, ... words. `one_draw` is True if a single draw decides whether all tokens
    of a candidate become [MASK], become random tokens, or stay. `token_weights` is a function (ids int32 [tokens],
    vocabulary) -> float64 [tokens] above 0; None: all weights are equal. Candidates are drawn in proportion to the
    largest token weight in their first word, for example to prefer rare tokens or named spans. The weight of a token
    may not depend on ids of other examples.
    """

    whole_words: bool
    max_words: int
    weights: Callable[[int, DataConfig], np.ndarray]
    one_draw: bool = False
    token_weights: Callable[[np.ndarray, Vocabulary], np.ndarray] | None = None


def _harmonic_span_weights(max_words: int, config: DataConfig) -> np.ndarray:
    """Return the weight 1/n for each number of words n."""
    return 1 / np.arange(1, max_words + 1)


def _geometric_span_weights(max_words: int, config: DataConfig) -> np.ndarray:
    """Return the weight of each number of words in a geometric distribution."""
    return (1 - config.span_end_probability) ** np.arange(max_words)


MASKINGS: dict[str, Masking] = {
    # Devlin et al. 2019; google-research/bert, create_pretraining_data.py: tokens are drawn uniformly without
    # replacement.
    "token": Masking(whole_words=False, max_words=1, weights=_harmonic_span_weights),
    # The option do_whole_word_mask of the same code: words in random order; words that no longer fit are skipped.
    "whole_word": Masking(whole_words=True, max_words=1, weights=_harmonic_span_weights),
    # Lan et al. 2020: n words with p ~ 1/n, or fewer if the text ends or too few predictions remain.
    "ngram": Masking(whole_words=True, max_words=3, weights=_harmonic_span_weights),
    # Joshi et al. 2020: n words with p ~ (1 - 0.2)**n, or fewer, as for "ngram"; a single draw decides whether the
    # tokens of a span become [MASK], become random tokens, or stay.
    "span": Masking(
        whole_words=True,
        max_words=10,
        weights=_geometric_span_weights,
        one_draw=True,
    ),
}


def data_config_for_evaluation(config: DataConfig, eval_uses_training_masks: bool = False) -> DataConfig:
    """Return `config` for an evaluation: each sequence once, 15 % of the tokens masked, with BERT's fractions.

    The tokens are drawn without regard to their rarity. The evaluation losses of runs and phases with different masks
    are therefore comparable (the fractions are from Devlin et al. 2019). The masked unit does not change. With
    `eval_uses_training_masks`, the fractions of [MASK], random and kept tokens stay as in training, because a generator
    that was trained without random tokens would treat a random token as the correct token.
    """
    config = dataclasses.replace(
        config, mask_probability=0.15, rarity_power=0.0, weights=None, smoothing=1.0, dupe_factor=None
    )
    if eval_uses_training_masks:
        return config
    return dataclasses.replace(config, mask_token_fraction=0.8, random_token_fraction=0.1)


class MaskRateRange(NamedTuple):
    """The masking rates at the beginning and at the end of a phase."""

    begin: float
    end: float


def phase_mask_rates(config: DataConfig, phase: PhaseConfig) -> MaskRateRange:
    """Return the masking rates at the beginning and at the end of a phase."""
    begin = section_of_phase(config, phase).mask_probability
    return MaskRateRange(begin, begin if phase.mask_probability_end is None else phase.mask_probability_end)


def data_config_of_phase(config: DataConfig, phase: PhaseConfig) -> DataConfig:
    """Return `config` with the values of a phase; a changing rate becomes its maximum, which sets array shapes."""
    return dataclasses.replace(section_of_phase(config, phase), mask_probability=max(phase_mask_rates(config, phase)))


def changing_mask_rate(config: DataConfig, phase: PhaseConfig, first: int, num_sequences: int) -> LinearMaskRate | None:
    """Return the changing masking rate of a phase whose first sequence is `first`; None for a constant rate."""
    begin, end = phase_mask_rates(config, phase)
    return LinearMaskRate(begin, end, first, num_sequences) if begin != end and num_sequences else None


def num_predictions_of_full_example(seq_len: int, mask_probability: float) -> int:
    """Return the number of predictions in a full sequence of one example, such as 20 of 128 tokens at 15 %."""
    return math.ceil(mask_probability * seq_len)


def max_predictions_of_packed_sequence(seq_len: int, config: DataConfig) -> int:
    """Return the maximum number of predictions of a sequence of `config.packing` examples of any lengths."""
    if config.packing == 1:
        return num_predictions_of_full_example(seq_len, config.mask_probability)
    # Rounding adds at most 1/2 to the number of predictions of an example, or raises it to 1 in a short example.
    rounding = max(0.5, 1 - config.mask_probability * MIN_EXAMPLE_TOKENS)
    bound = math.floor(config.mask_probability * seq_len + config.packing * rounding + 1e-6)
    return min(seq_len, bound)


class _Words(NamedTuple):
    """The words of all examples, in order; words consist of maskable tokens.

    `tokens`, int64 [maskable], are the positions of the maskable tokens. `first`, int64 [words + 1], is the index in
    `tokens` of the first token of each word. `bounds`, int64 [examples + 1], is the index of the first word of each
    example, and the number of words. `run_ends`, int64 [words], gives, for each word, the index of the first word after
    the word's run of consecutive maskable tokens.
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
    rarity: np.ndarray | None = None,
) -> Masked:
    """Choose tokens to predict; by default, 80 % of these tokens become [MASK], 10 % become random, and 10 % stay.

    The number of predictions of an example is `mask_probability` times its length with special tokens, rounded half to
    even, at least 1, and at most the number of maskable tokens. The masking `token` predicts exactly the number of
    tokens that `mask_probability` gives; other maskings may predict fewer tokens, because a word is never split. A word
    ends before a token that is not maskable. In a word of more than `MAX_WORD_TOKENS` tokens, each token counts as a
    word.

    Args:
        ids: int32 [tokens], all examples one after the other; not modified.
        maskable: bool [tokens], False for [CLS] and [SEP].
        starts: int64 [examples + 1], the index of the first token of each example, and the number of tokens; an example
            has at most 2**16 tokens.
        numbers: int64 or uint64 [examples], example numbers, which select the masks.
        seed: seed of the run.
        config: config whose `masking`, `mask_probability`, `mask_token_fraction`, `random_token_fraction`,
        `max_span_length` and `span_end_probability` are used.
        vocabulary: vocabulary of the corpus.
        rates: masking rate of each example, in place of `mask_probability`, float64 [examples].
        begins_word: bool [tokens], word starts of a segmenter; None: word starts of the vocabulary.
        rarity: weight of each token of the vocabulary, float64 [size] above 0, a factor of the weights of the
            masking; None: all weights are equal.

    Raises:
        ValueError: an example has more than 2**16 tokens.
    """
    masking = MASKINGS[config.masking]
    lengths = np.diff(starts)
    if lengths.max(initial=0) > 1 << _WORD_BITS:
        raise ValueError(f"an example has {lengths.max()} tokens; the maximum is {1 << _WORD_BITS}")
    continues = vocabulary.continues if masking.whole_words else None
    words = _words_of_examples(ids, maskable, starts, continues, begins_word)
    quota = np.maximum(1, np.rint((config.mask_probability if rates is None else rates) * lengths)).astype(np.int64)
    quota = np.minimum(quota, np.diff(words.first[words.bounds]))

    example = np.repeat(np.arange(len(lengths)), np.diff(words.bounds))
    offset = words.tokens[words.first[:-1]] - starts[example]
    bits = _random_bits_at_offsets(seed, Stream.MASK_POSITION, numbers, example, offset)
    weights = masking.token_weights(ids, vocabulary) if masking.token_weights else None
    if rarity is not None:
        weights = rarity[ids] if weights is None else rarity[ids] * weights
    if weights is not None and bits.size:
        bits = _weighted_sampling_keys(bits, np.maximum.reduceat(weights[words.tokens], words.first[:-1]))
    order = _first_words_in_random_order(words.bounds, bits, np.diff(words.bounds) if masking.whole_words else quota)
    max_words = (config.max_span_length or masking.max_words) if masking.max_words > 1 else 1
    if not masking.whole_words:
        word = order
        count = np.ones_like(word)
    elif max_words == 1:
        word = _words_within_quota(order, example, np.diff(words.first), quota)
        count = np.ones_like(word)
    else:
        cumulative = np.cumsum(masking.weights(max_words, config))
        draw = uniform_floats(_random_bits_at_offsets(seed, Stream.MASK_WORDS, numbers, example, offset))
        drawn = 1 + np.searchsorted(cumulative[:-1] / cumulative[-1], draw, side="right")
        drawn = np.minimum(drawn, words.run_ends - np.arange(len(drawn)))
        word, count = _spans_within_quota(order, example, words.first, drawn, quota)

    word, count = (array[np.argsort(word)] for array in (word, count))
    begin = words.first[word]
    size = words.first[word + count] - begin
    positions = words.tokens[np.repeat(begin - np.cumsum(size) + size, size) + np.arange(size.sum())]
    drawn_at = np.repeat(words.tokens[begin], size) if masking.one_draw else positions
    return Masked(_replace_tokens_at(ids, positions, drawn_at, starts, numbers, seed, config, vocabulary), positions)


def _weighted_sampling_keys(bits: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sort keys, uint64 [words], for a random order of words in which words of high weight tend to come first.

    The order is a draw without replacement in proportion to the weights: words are sorted by -log(u) / weight, with a
    uniform random u (Efraimidis and Spirakis 2006). Keys are compared only within an example, and the order in an
    example does not depend on the rest of the batch.
    """
    keys = -np.log1p(-uniform_floats(bits)) / weights
    ranks = np.empty(len(keys), np.uint64)
    ranks[np.argsort(keys, kind="stable")] = np.arange(len(keys), dtype=np.uint64)
    return ranks << np.uint64(_WORD_BITS)


def _replace_tokens_at(
    ids: np.ndarray,
    positions: np.ndarray,
    drawn_at: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    seed: int,
    config: DataConfig,
    vocabulary: Vocabulary,
) -> np.ndarray:
    """Return `ids` with [MASK], a random token or the original token at `positions`.

    Positions with equal `drawn_at` share the choice between [MASK], a random token and the original token.
    """
    example = np.searchsorted(starts, positions, side="right") - 1
    begin = starts[example]
    kind = uniform_floats(_random_bits_at_offsets(seed, Stream.MASK_KIND, numbers, example, drawn_at - begin))
    token = uniform_integers(
        _random_bits_at_offsets(seed, Stream.MASK_TOKEN, numbers, example, positions - begin), vocabulary.size
    )
    random = kind < config.mask_token_fraction + config.random_token_fraction
    masked = ids.copy()
    masked[positions[random]] = token[random]
    masked[positions[kind < config.mask_token_fraction]] = vocabulary.mask
    return masked


def _random_bits_at_offsets(
    seed: int, stream: Stream, numbers: np.ndarray, example: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """Return random bits, uint64 [n], for each pair (example, offset in the example)."""
    return random_bits(random_bits(seed, stream, numbers)[example], offset)


def _words_of_examples(
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
        return _Words(tokens, first, examples, first[1:])  # masking of single tokens does not use `run_ends`
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


def _first_words_in_random_order(bounds: np.ndarray, bits: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the first `wanted[i]` words of each example i in the random order that `bits` gives, int64 [words].

    Examples with similar numbers of words are sorted together as rows of a table. This takes a quarter of the time of a
    single sort of all words.
    """
    begins, counts = bounds[:-1], np.diff(bounds)
    # The low bits of a key are the index of the word, so that no keys are equal.
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


def _words_within_quota(order: np.ndarray, example: np.ndarray, sizes: np.ndarray, quota: np.ndarray) -> np.ndarray:
    """Return the words, int64 [taken], that fill each example's quota, in `order`; words that do not fit are skipped.

    Each round works on all examples at once. A round takes the words of an example up to the first word that is longer
    than the rest of the quota, and then drops all words that are longer than the new rest. A round leaves a rest that
    is smaller than a dropped word, so there are few rounds.
    """
    left = quota.copy()
    taken = [order[:0]]
    while order.size:
        begins, counts = _word_ranges_of_examples(example)
        owner = example[begins]
        size = sizes[order]
        total = np.cumsum(size)
        fits = total <= np.repeat(total[begins] - size[begins] + left[owner], counts)
        taken.append(order[fits])
        left[owner] -= np.add.reduceat(size * fits, begins)
        remains = ~fits & (size <= np.repeat(left[owner], counts))
        order, example = order[remains], example[remains]
    return np.concatenate(taken)


class _WordSpans(NamedTuple):
    """Spans of words, int64 [spans]."""

    first_word: np.ndarray
    num_words: np.ndarray


def _spans_within_quota(
    order: np.ndarray, example: np.ndarray, first: np.ndarray, drawn: np.ndarray, quota: np.ndarray
) -> _WordSpans:
    """Take spans of words, in the order `order`, until the quota of each example is full.

    A span has as many words as `drawn` says for its first word, or fewer words if only fewer fit. A span is skipped if
    no word fits, or if the span overlaps an earlier span. Each iteration of the loop over ranks handles one candidate
    of every example.
    """
    sizes = np.diff(first)
    left = quota.copy()
    span = np.arange(min(drawn.max(initial=0), quota.max(initial=0)))
    covered = np.zeros(len(sizes) + len(span), bool)
    # The word of each maskable token, padded at the end by the maximum number of predictions of an example.
    word_of = np.repeat(np.arange(len(sizes) + 1), np.append(sizes, 1 + quota.max(initial=0)))
    words, counts = [order[:0]], [order[:0]]
    while True:
        possible = (sizes[order] <= left[example]) & ~covered[order]
        order, example = order[possible], example[possible]
        if not order.size:
            return _WordSpans(np.concatenate(words), np.concatenate(counts))
        begins, candidates = _word_ranges_of_examples(example)
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


class _WordGroups(NamedTuple):
    """The range of words of each example, int64 `[examples]`."""

    first_index: np.ndarray  # index of the first word of the example
    num_words: np.ndarray


def _word_ranges_of_examples(example: np.ndarray) -> _WordGroups:
    """Return the index of the first word, and the number of words, of each example that has words."""
    begins = np.flatnonzero(np.append(True, example[1:] != example[:-1]))
    return _WordGroups(begins, np.diff(begins, append=len(example)))
