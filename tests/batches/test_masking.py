"""The rules of MASKINGS against a walk in plain Python, and in statistics of 100,000 examples."""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats, uniform_integers
from bert_jax.batches.masking import (
    MASKINGS,
    Masked,
    Vocabulary,
    mask_tokens,
    max_predictions_of_packed_sequence,
    num_predictions_of_full_example,
)
from bert_jax.config import DataConfig

ALPHA = 1e-4  # of each statistical test; the seeds are fixed, so a pass stays a pass
LENGTH, VOCAB, MASK, SPECIALS = 32, 1000, 3, 4
CONTINUES = np.arange(VOCAB) >= 700
VOCABULARY = Vocabulary(VOCAB, MASK, CONTINUES)
PLAIN = Vocabulary(VOCAB, MASK, np.zeros(VOCAB, bool))  # every token is a word
MANY = 100_000


class Examples(NamedTuple):
    ids: np.ndarray
    maskable: np.ndarray
    starts: np.ndarray
    numbers: np.ndarray


def make_examples(count: int, shortest: int = 5, longest: int = LENGTH, continuing: float = 0.4) -> Examples:
    """Return examples [CLS] a.. [SEP] b.. [SEP] of `shortest` to `longest` tokens; some tokens continue a word."""
    random = np.random.default_rng(0)
    lengths = random.integers(shortest, longest + 1, count)
    starts = np.append(0, np.cumsum(lengths))
    offset = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    length = np.repeat(lengths, lengths)
    special = (offset == 0) | (offset == length // 2) | (offset == length - 1)
    continues = random.random(starts[-1]) < continuing
    ids = random.integers(np.where(continues, 700, SPECIALS), np.where(continues, VOCAB, 700), dtype=np.int32)
    ids[special] = 2
    return Examples(ids, ~special, starts, 7 * np.arange(count))


def equal_examples(count: int, length: int, gaps: tuple[int, ...] = (), first: int = 0) -> Examples:
    """Return examples in which every token is a word, and maskable unless it is in a column of `gaps`."""
    maskable = np.ones([count, length], bool)
    maskable[:, list(gaps)] = False
    ids = np.full(count * length, 9, np.int32)
    return Examples(ids, maskable.reshape(-1), np.arange(count + 1) * length, first + np.arange(count))


def mask(examples: Examples, kind: str = "token", seed: int = 0, vocabulary=VOCABULARY, **config) -> Masked:
    return mask_tokens(*examples, seed=seed, config=DataConfig(masking=kind, **config), vocabulary=vocabulary)


def split(examples: Examples, masked: Masked) -> list[tuple[list[int], list[int]]]:
    """Return the masked ids and the offsets of the predictions of each example."""
    bounds = np.searchsorted(masked.positions, examples.starts)
    return [
        (masked.input_ids[begin:end].tolist(), (masked.positions[low:high] - begin).tolist())
        for (begin, end), (low, high) in zip(
            itertools.pairwise(examples.starts), itertools.pairwise(bounds), strict=True
        )
    ]


def choose(examples: Examples, chosen: np.ndarray) -> Examples:
    """Return the examples `chosen`, one after the other."""
    tokens = [np.arange(examples.starts[one], examples.starts[one + 1]) for one in chosen]
    starts = np.cumsum([0, *map(len, tokens)])
    tokens = np.concatenate(tokens)
    return Examples(examples.ids[tokens], examples.maskable[tokens], starts, examples.numbers[chosen])


# The rules again, one example at a time.

BY_WORD = {"token": False, "whole_word": True, "ngram": True, "span": True}
PUBLISHED = {"token": 1, "whole_word": 1, "ngram": 3, "span": 10}
WEIGHTS = {"ngram": lambda words, end: 1 / words, "span": lambda words, end: (1 - end) ** (words - 1) * end}


def words_of(ids: list[int], maskable: list[bool], by_word: bool) -> list[list[int]]:
    """Return the offsets of the tokens of each word."""
    words = []
    for offset, token in enumerate(ids):
        if maskable[offset]:
            if by_word and words and words[-1][-1] == offset - 1 and CONTINUES[token]:
                words[-1].append(offset)
            else:
                words.append([offset])
    return [part for word in words for part in ([word] if len(word) <= 8 else [[offset] for offset in word])]


def draw_words(kind: str, draw: float, config: DataConfig) -> int:
    """Return the number of words of a candidate, from a number in [0, 1)."""
    longest = config.max_span_length or PUBLISHED[kind]
    below = probabilities(kind, longest, config.span_end_probability) if kind in WEIGHTS else []
    return 1 + sum(draw >= probability for probability in below)


@functools.cache
def probabilities(kind: str, longest: int, end: float) -> list[float]:
    """Return the probability of 1, of at most 2, ..., of fewer than `longest` words."""
    sums = list(itertools.accumulate(WEIGHTS[kind](words, end) for words in range(1, longest + 1)))
    return [part / sums[-1] for part in sums[:-1]]


def walk(words: list[list[int]], order: list[int], drawn: list[int], quota: int) -> list[list[int]]:
    """Return the offsets that are masked together, in the order in which they are taken."""
    covered: set[int] = set()
    taken = []
    for first in order:
        for count in range(drawn[first], 0, -1):
            parts = words[first : first + count]
            span = [offset for word in parts for offset in word]
            adjacent = all(after[0] == before[-1] + 1 for before, after in itertools.pairwise(parts))
            if len(parts) == count and adjacent and len(covered) + len(span) <= quota:
                if not covered & set(span):
                    covered |= set(span)
                    taken.append(span)
                break
    return taken


def quota_of(length: int, words: list[list[int]], probability: float) -> int:
    return min(max(1, round(probability * length)), sum(map(len, words)))


def by_hand(ids, maskable, number, kind, seed, config) -> tuple[list[int], list[int]]:
    words = words_of(ids, maskable, BY_WORD[kind])
    if not words:
        return ids, []
    firsts = np.array([word[0] for word in words])
    keys = random_bits(seed, Stream.MASK_POSITION, number, firsts) >> np.uint64(16)
    draws = uniform_floats(random_bits(seed, Stream.MASK_WORDS, number, firsts))
    order = sorted(range(len(words)), key=lambda word: (int(keys[word]), word))
    drawn = [draw_words(kind, draw, config) for draw in draws.tolist()]
    taken = walk(words, order, drawn, quota_of(len(ids), words, config.mask_probability))
    masked = list(ids)
    for span in taken:
        for offset in span:
            choice = uniform_floats(random_bits(seed, Stream.MASK_KIND, number, span[0] if kind == "span" else offset))[
                0
            ]
            if choice < config.mask_token_fraction:
                masked[offset] = MASK
            elif choice < config.mask_token_fraction + config.random_token_fraction:
                masked[offset] = int(uniform_integers(random_bits(seed, Stream.MASK_TOKEN, number, offset), VOCAB)[0])
    return masked, sorted(offset for span in taken for offset in span)


def test_every_masking_rule_has_a_counterpart_in_plain_python():
    assert MASKINGS.keys() == BY_WORD.keys()


@pytest.mark.parametrize("kind", MASKINGS)
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"mask_probability": 0.4, "max_span_length": 5, "span_end_probability": 0.05},
        {"mask_probability": 1.0, "mask_token_fraction": 0.4, "random_token_fraction": 0.4},
        {"mask_probability": 1e-6, "span_end_probability": 1.0},
        {"max_span_length": 1000},
    ],
)
@pytest.mark.parametrize("continuing", [0.3, 0.8])
def test_walk_in_plain_python(kind, config, continuing):
    examples = make_examples(60, shortest=3, longest=90, continuing=continuing)
    found = split(examples, mask(examples, kind, seed=5, **config))
    for one, (begin, end) in enumerate(itertools.pairwise(examples.starts)):
        ids, maskable = examples.ids[begin:end].tolist(), examples.maskable[begin:end].tolist()
        wanted = by_hand(ids, maskable, examples.numbers[one], kind, 5, DataConfig(masking=kind, **config))
        assert found[one] == wanted


@pytest.mark.parametrize("kind", MASKINGS)
def test_the_masks_of_an_example_do_not_depend_on_the_others(kind):
    examples = make_examples(200, shortest=3, longest=200)
    together = split(examples, mask(examples, kind))
    order = np.random.default_rng(1).permutation(200)
    for size in (1, 7, 200):
        for begin in range(0, 200, size):
            chosen = order[begin : begin + size]
            some = choose(examples, chosen)
            assert split(some, mask(some, kind)) == [together[one] for one in chosen]


@pytest.mark.parametrize("kind", MASKINGS)
def test_another_number_or_seed_gives_other_masks(kind):
    examples = make_examples(1000)
    first = mask(examples, kind)
    assert not np.array_equal(first.positions, mask(examples._replace(numbers=examples.numbers + 1), kind).positions)
    assert not np.array_equal(first.positions, mask(examples, kind, seed=1).positions)
    again = mask(examples._replace(numbers=examples.numbers.astype(np.uint64)), kind)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("kind", MASKINGS)
def test_little_or_nothing_to_mask(kind):
    empty = np.zeros(0, np.int64)
    nothing = mask(Examples(empty.astype(np.int32), empty.astype(bool), np.zeros(1, np.int64), empty), kind)
    assert [array.size for array in nothing] == [0, 0]
    ids = np.array([2, 2, 2, 50, 2], np.int32)
    maskable = np.array([False, False, False, True, False])
    masked = mask(Examples(ids, maskable, np.array([0, 2, 5, 5]), np.arange(3)), kind)  # the last has no tokens
    assert masked.positions.tolist() == [3]


@pytest.mark.parametrize("kind", MASKINGS)
def test_words_of_more_than_eight_tokens_are_taken_token_by_token(kind):
    for size, whole in ((8, True), (9, False)):
        ids = np.array([2, 50, *[900] * (size - 1), 2], np.int32)
        examples = Examples(ids, ids != 2, np.array([0, len(ids)]), np.arange(1))
        some = len(mask(examples, kind, mask_probability=0.4).positions)
        assert some == (0 if whole and kind != "token" else round(0.4 * len(ids)))


@pytest.mark.parametrize("kind", MASKINGS)
def test_words_longer_than_the_remaining_budget_are_skipped(kind):
    # 200 words of three tokens, 3 * 30 + 2 tokens to predict; the walk must end.
    ids = np.tile(np.array([50, 900, 900], np.int32), 200)
    examples = Examples(ids, np.ones(600, bool), np.array([0, 600]), np.arange(1))
    assert len(mask(examples, kind, mask_probability=92 / 600).positions) == (92 if kind == "token" else 90)


def test_an_example_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="an example has 65537 tokens"):
        mask(equal_examples(1, (1 << 16) + 1))
    assert len(mask(equal_examples(1, 1 << 16)).positions) == round(0.15 * (1 << 16))


# Statistics over 100,000 examples.


@pytest.fixture(scope="module", params=MASKINGS)
def many(request) -> tuple[str, Examples, Masked]:
    examples = make_examples(MANY)
    before = examples.ids.copy()
    masked = mask(examples, request.param)
    assert np.array_equal(examples.ids, before)
    assert [array.dtype for array in masked] == [np.int32, np.int64]
    return request.param, examples, masked


def test_numbers_of_predictions(many):
    kind, examples, masked = many
    lengths = np.diff(examples.starts)
    used = np.diff(np.searchsorted(masked.positions, examples.starts))
    # Python's round() rounds halves to even, as in the original.
    quotas = np.array([max(1, round(0.15 * length)) for length in lengths.tolist()])
    if kind == "token":
        assert np.array_equal(used, quotas)
    else:
        assert (used <= quotas).all()
        # Two in five words have several tokens, so few tokens are left unpredicted.
        assert used.sum() > 0.97 * quotas.sum()
    assert abs(quotas.sum() / lengths.sum() - 0.15) < 0.005
    assert num_predictions_of_full_example(128, 0.15) == 20
    assert num_predictions_of_full_example(512, 0.15) == 77


def test_only_maskable_tokens_are_predicted_once_each_and_no_others_are_changed(many):
    _, examples, masked = many
    assert (np.diff(masked.positions) > 0).all()
    assert examples.maskable[masked.positions].all()
    restored = masked.input_ids.copy()
    restored[masked.positions] = examples.ids[masked.positions]
    assert np.array_equal(restored, examples.ids)


def test_words_are_never_split(many):
    kind, examples, masked = many
    predicted = np.zeros(len(examples.ids), bool)
    predicted[masked.positions] = True
    # A token that continues a word is predicted with the token before it, except in words of more than eight.
    begins = ~examples.maskable | ~CONTINUES[examples.ids] | ~np.append(False, examples.maskable[:-1])
    first = np.flatnonzero(begins)
    size = np.diff(first, append=len(begins))
    parts = np.add.reduceat(predicted.astype(np.int64), first)
    split_words = (parts > 0) & (parts < size)
    assert split_words[size > 8].any()
    assert split_words[size <= 8].any() == (kind == "token")


def test_fractions_of_replacements(many):
    _, examples, masked = many
    # One prediction per example: those of a span are not independent.
    bounds = np.searchsorted(masked.positions, examples.starts)
    first = masked.positions[bounds[:-1][np.diff(bounds) > 0]]
    now, label = masked.input_ids[first], examples.ids[first]
    kept, hidden = int((now == label).sum()), int((now == MASK).sum())
    # A random token is the token itself, or [MASK], with probability 1 / VOCAB.
    expected = np.array([0.8 + 0.1 / VOCAB, 0.1 + 0.1 / VOCAB, 0.1 * (1 - 2 / VOCAB)]) * len(now)
    assert stats.chisquare([hidden, kept, len(now) - kept - hidden], expected).pvalue > ALPHA
    # Random tokens are uniform over the whole vocabulary, specials included.
    now, label = masked.input_ids[masked.positions], examples.ids[masked.positions]
    counts = np.delete(np.bincount(now[(now != label) & (now != MASK)], minlength=VOCAB), MASK)
    assert counts.min() > 0
    assert stats.chisquare(counts[:3]).pvalue > ALPHA
    assert stats.chisquare(counts[3:].reshape(12, 83).sum(axis=1)).pvalue > ALPHA


def test_agrees_with_a_walk_over_other_random_numbers(many):
    """Over 100,000 examples and 4,000 of the plain walk: number of runs, longest run, first position, predictions."""
    kind, _, _ = many
    column = np.arange(LENGTH)
    ids = np.where(column % 5 == 2, 900, 50).astype(np.int32)  # words of 1, 2, 1, 1, 2, ... tokens
    maskable = ~np.isin(column, [0, 13, 31])
    examples = Examples(np.tile(ids, MANY), np.tile(maskable, MANY), np.arange(MANY + 1) * LENGTH, np.arange(MANY))
    masked = mask(examples, kind, mask_probability=0.3)
    predicted = np.zeros([MANY, LENGTH], bool)
    predicted.reshape(-1)[masked.positions] = True

    random = np.random.default_rng(3)
    config = DataConfig(masking=kind)
    words = words_of(ids.tolist(), maskable.tolist(), BY_WORD[kind])
    walked = np.zeros([4000, LENGTH], bool)
    for predicted_here in walked:
        drawn = [draw_words(kind, draw, config) for draw in random.random(len(words)).tolist()]
        taken = walk(words, random.permutation(len(words)).tolist(), drawn, quota_of(LENGTH, words, 0.3))
        predicted_here[[offset for span in taken for offset in span]] = True

    for statistic in (run_count, longest_run, first_position, prediction_count):
        both = np.stack([np.bincount(statistic(each), minlength=LENGTH) for each in (predicted, walked)])
        # Rare values are merged, as the test requires.
        rare = both.sum(axis=0) < 200
        both = np.column_stack([both[:, ~rare], both[:, rare].sum(axis=1)])
        both = both[:, both.any(axis=0)]
        assert both.shape[1] == 1 or stats.chi2_contingency(both).pvalue > ALPHA, statistic.__name__


def run_count(predicted: np.ndarray) -> np.ndarray:
    return (predicted[:, 1:] & ~predicted[:, :-1]).sum(axis=1)


def longest_run(predicted: np.ndarray) -> np.ndarray:
    longest, run = np.zeros([2, len(predicted)], np.int64)
    for column in predicted.T:
        run = (run + 1) * column
        longest = np.maximum(longest, run)
    return longest


def first_position(predicted: np.ndarray) -> np.ndarray:
    return predicted.argmax(axis=1)


def prediction_count(predicted: np.ndarray) -> np.ndarray:
    return predicted.sum(axis=1)


def test_every_maskable_token_is_equally_likely():
    length = 20
    examples = equal_examples(MANY, length, (0, 7, 19))
    offsets = mask(examples).positions.reshape(MANY, 3) % length
    counts = np.bincount(offsets.reshape(-1), minlength=length)[examples.maskable[:length]]
    # Three of 17 without replacement: the variance is that of a multinomial times (1 - 2/16).
    assert stats.chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum() / (1 - 2 / 16), 16) > ALPHA
    pairs = np.zeros([length, length])
    np.add.at(pairs, (offsets[:, 0], offsets[:, 2]), 1)
    assert (
        pairs[np.triu_indices(length, 2)] > 0
    ).sum() >= 17 * 16 / 2 - 17 - 3  # neighbors have no prediction between them


@pytest.mark.parametrize("kind", ["whole_word", "ngram", "span"])
def test_every_word_is_equally_likely(kind):
    # Every word has two tokens, and two tokens are predicted.
    length = 22
    examples = equal_examples(MANY, length, (0, 9, 14, 21))
    examples.ids.reshape(MANY, length)[:, [2, 4, 6, 8, 11, 13, 16, 18, 20]] = 900
    first, second = mask(examples, kind, mask_probability=0.1).positions.reshape(MANY, 2).T % length
    assert np.array_equal(second, first + 1)
    counts = np.bincount(first, minlength=length)
    assert stats.chisquare(counts[counts > 0]).pvalue > ALPHA
    assert np.flatnonzero(counts).tolist() == [1, 3, 5, 7, 10, 12, 15, 17, 19]


@pytest.mark.parametrize(
    ("kind", "longest", "probabilities_of"),
    [
        ("ngram", 3, np.array([6, 3, 2]) / 11),
        ("span", 10, stats.geom(0.2).pmf(np.arange(1, 11)) / stats.geom(0.2).cdf(10)),
    ],
)
def test_numbers_of_words_per_candidate_are_as_published(kind, longest, probabilities_of):
    """Over 100,000 examples: the first candidates that are far from the next ones and from the end."""
    length, part = 102, 10_000
    lengths = []
    for begin in range(0, MANY, part):
        examples = equal_examples(part, length, first=begin)
        masked = mask(examples, kind, vocabulary=PLAIN, mask_probability=longest / length)
        predicted = np.zeros([part, length + 1], bool)
        predicted[masked.positions // length, masked.positions % length] = True
        keys = random_bits(0, Stream.MASK_POSITION, examples.numbers[:, None], np.arange(length))
        order = np.argsort(keys, axis=1)[:, :longest]  # no more can be taken
        first = order[:, 0]
        apart = (np.abs(order[:, 1:] - order[:, :1]) > longest).all(axis=1) & (first < length - longest)
        chosen, first = np.flatnonzero(apart), first[apart]
        after = predicted[chosen[:, None], first[:, None] + np.arange(longest + 1)]
        lengths.append(after.argmin(axis=1))
    counts = np.bincount(np.concatenate(lengths), minlength=longest + 1)
    assert counts[0] == 0
    assert counts.sum() > 5_000
    assert stats.chisquare(counts[1:], probabilities_of * counts.sum()).pvalue > ALPHA
    # SpanBERT reports a mean of 3.8.
    assert kind != "span" or round(float(probabilities_of @ np.arange(1, 11)), 1) == 3.8


@pytest.mark.parametrize("kind", MASKINGS)
def test_a_span_is_replaced_as_a_whole(kind):
    """A word of eight tokens: in a span all [MASK], all random or all kept; otherwise drawn for each token."""
    length = 64
    examples = equal_examples(MANY, length)
    examples.ids.reshape(MANY, 8, 8)[:, :, 1:] = 900
    masked = mask(examples, kind, mask_probability=8 / length)
    positions = masked.positions.reshape(MANY, 8)
    now, label = masked.input_ids[positions], examples.ids[positions]
    hidden, kept = (now == MASK).mean(axis=1), (now == label).mean(axis=1)
    random = (hidden < 0.5) & (kept < 0.5)  # a random token is sometimes the same one, or [MASK]
    assert (set(hidden[~random]) == set(kept[~random]) == {0, 1}) == (kind == "span")
    if kind == "span":
        counts = [(hidden == 1).sum(), (kept == 1).sum(), random.sum()]
        assert stats.chisquare(counts, np.array([0.8, 0.1, 0.1]) * MANY).pvalue > ALPHA
        assert len(np.unique(now[random], axis=0)) == random.sum()  # a random token of its own each


def test_fractions_can_be_set():
    examples = make_examples(1000)
    fractions = {"mask_token_fraction": 1.0, "random_token_fraction": 0.0}
    masked = mask(examples, mask_probability=1.0, **fractions)
    assert np.array_equal(masked.input_ids == MASK, examples.maskable)
    untouched = mask(examples, mask_token_fraction=0.0, random_token_fraction=0.0)
    assert np.array_equal(untouched.input_ids, examples.ids)
    assert untouched.positions.size


@pytest.mark.parametrize("probability", [1e-6, 0.05, 0.15, 0.3, 0.5, 1.0])
def test_predictions_bound(probability):
    """Against the maximum over all lengths of the examples of a sequence."""
    longest = 90
    one = np.array([0, 0, 0] + [max(1, round(probability * length)) for length in range(3, longest + 1)])
    best = one  # by total length, with one example
    for packing in range(1, 9):
        for length in (8, 31, 64, longest):
            bound = max_predictions_of_packed_sequence(
                length, DataConfig(packing=packing, mask_probability=probability)
            )
            assert min(best[length], length) <= bound <= best[length] + packing
            if packing == 1:
                assert bound == num_predictions_of_full_example(length, probability)
        best = np.array([max(best[rest] + one[total - rest] for rest in range(total + 1)) for total in range(91)])
        best = np.maximum.accumulate(best)
