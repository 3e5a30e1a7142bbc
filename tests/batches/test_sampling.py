"""Sentence pairs and single texts against the rules in plain Python, and against the original's rules."""

import itertools
import random

import numpy as np
import pytest
from plain_sampler import RULES, PlainSampler, concatenated, spelled_out
from sampled_examples import leading_tokens, sampled, sampler_of, slots_of, texts_of
from scipy import stats

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats
from bert_jax.batches.layout import make_slots, slot_lengths, slot_of_token, slot_span
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS, truncate_pair_lengths
from tests.helpers.memory_corpus import FIRST_TOKEN, SEP, MemorySplit, random_documents

ALPHA = 1e-3  # of each statistical test; the seeds are fixed, so a pass stays one

CORPORA = {
    "ordinary": random_documents(0, 12, (1, 30), (1, 20)),
    "one-sentence documents": random_documents(1, 30, (1, 1), (1, 30)),
    "long documents over several records": random_documents(2, 3, (40, 60), (3, 40)),
    "long sentences": random_documents(3, 6, (1, 5), (50, 512)),
    "two documents": [[1], [3, 4, 5]],
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sentence_pairs", RULES)
@pytest.mark.parametrize("seq_len", [5, 8, 32, 128])
@pytest.mark.parametrize("name", CORPORA)
def test_examples_equal_the_rule_in_plain_python(name, seq_len, sentence_pairs, packed):
    seed, short_seq_probability = 7, 0.3
    documents = spelled_out(CORPORA[name])
    split = MemorySplit(CORPORA[name], max_record=512)
    sampler = sampler_of(split, seq_len, short_seq_probability, sentence_pairs, packed)
    if sentence_pairs in ("full_sentences", "full_text"):  # one document, with a separator after each of its own
        documents = [[[*s, SEP] if s is d[-1] else s for d in documents for s in d]]
    slots = slots_of(sampler, seed, np.concatenate([np.arange(40), 10**9 + np.arange(10)]))
    if not SENTENCE_PAIRS[sentence_pairs].reads_slots:  # as packing gives examples less capacity
        slots = slots._replace(capacity=np.where(np.arange(50) % 3, slots.capacity, np.maximum(2, slots.capacity // 2)))
    examples = sampler.sample(seed, slots)
    slides = sentence_pairs != "none" and not packed
    bounded = sentence_pairs == "full_text"
    plain = PlainSampler(documents, sampler.layout.budget, seed, short_seq_probability, slides, bounded)
    for number, slot in enumerate(zip(*(array.tolist() for array in slots), strict=True)):
        *texts, label = RULES[sentence_pairs](plain, *slot)
        assert texts_of(examples, number) == texts, slot
        assert examples.labels[number] == label


def test_every_sentence_rule_has_a_counterpart_in_plain_python():
    assert SENTENCE_PAIRS.keys() == RULES.keys()


def test_truncation_shortens_the_longer_segment_token_by_token():
    for budget in range(2, 12):
        for first in range(1, 25):
            for second in range(1, 25):
                a, b = first, second
                while a + b > budget:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                closed = truncate_pair_lengths(np.array([first]), np.array([second]), budget)
                assert (closed[0][0], closed[1][0]) == (a, b)
                assert min(a, b) >= 1


@pytest.mark.parametrize("packed", [False, True])
def test_slots_of_an_epoch_partition_every_document(packed):
    split = MemorySplit(random_documents(4, 50, (1, 40), (1, 30)))
    layout = sampler_of(split, 32, packed=packed).layout
    seen, number = [], layout.num_slots
    for epoch in range(3):
        slots = make_slots(layout, 0, np.full(number, epoch), np.arange(number), np.full(number, 29))
        start, stop = slot_span(layout, 0, slots.epoch, slots.document, slots.position)
        if packed:
            assert np.array_equal(stop - start, slot_lengths(layout))
        order = np.argsort(start)
        assert start[order][0] == 0
        assert stop[order][-1] == split.document_start[-1]
        assert np.array_equal(start[order][1:], stop[order][:-1])
        assert (stop > start).all()
        assert (stop - start <= (29 if packed else 3 * 29 // 2)).all()
        seen.append(start)
    assert not np.array_equal(seen[0], seen[1])


def test_an_epoch_has_every_slot_once():
    split = MemorySplit([[4] * 3 for _ in range(200)])  # each document is one slot and fills no sequence
    found = split.document_of(leading_tokens(sampled(sampler_of(split, 128), 0, np.arange(200)))[:, 0])
    assert sorted(found.tolist()) == list(range(200))


def test_concatenated_documents_lose_no_token():
    """A sequence as long as the corpus holds all of it: every token once, a separator after each document."""
    split = MemorySplit(random_documents(8, 9, (1, 6), (1, 9)))
    total = int(split.document_start[-1]) + 9
    (text,) = texts_of(sampled(sampler_of(split, total + 2, sentence_pairs="full_sentences"), 0, np.arange(1)), 0)
    bounds = itertools.pairwise(split.document_start.tolist())
    expected = [[*range(FIRST_TOKEN + start, FIRST_TOKEN + stop), SEP] for start, stop in bounds]
    assert text == concatenated(expected)


def test_random_texts_come_from_the_same_source():
    documents = random_documents(6, 30, (1, 40), (1, 30))
    split = MemorySplit(documents, sources=(4, 20, 6))
    examples = sampled(sampler_of(split, 32), 0, np.arange(50_000))
    first, second = np.searchsorted([4, 24], split.document_of(leading_tokens(examples)), side="right").T
    assert np.array_equal(first, second)
    one, other = split.document_of(leading_tokens(examples)).T
    assert np.array_equal(one != other, examples.labels == 1)


def test_half_of_the_orders_are_swapped(long_documents):
    examples = sampled(sampler_of(MemorySplit(long_documents), 128, 0.1, "sentence_order"), 0, np.arange(20_000))
    first, second = leading_tokens(examples).T
    assert np.array_equal(first > second, examples.labels == 1)
    assert stats.binomtest(int(examples.labels.sum()), 20_000, 0.5).pvalue > ALPHA


@pytest.mark.parametrize("seq_len", [128, 512])
def test_the_order_cannot_be_read_from_the_lengths(long_documents, seq_len):
    """Of pairs whose second text is one token shorter, as truncation leaves them, half are swapped."""
    examples = sampled(sampler_of(MemorySplit(long_documents), seq_len, 0.0, "sentence_order"), 0, np.arange(20_000))
    first, second = examples.lengths.T
    swapped = examples.labels[(first + second == seq_len - 3) & (first - second == 1)]
    assert len(swapped) > 300
    assert stats.binomtest(int(swapped.sum()), len(swapped), 0.5).pvalue > ALPHA


def test_the_next_sentence_cannot_be_read_from_the_lengths_of_short_documents():
    """Documents of 2 to 4 sentences fill no sequence: the best threshold of a length tells little about the label."""
    split = MemorySplit(random_documents(9, 4_000, (2, 4), (8, 39)))
    examples = sampled(sampler_of(split, 256), 0, np.arange(4_000))
    for lengths in (*examples.lengths.T, examples.lengths.sum(axis=1)):
        right = [((lengths > threshold) == examples.labels).mean() for threshold in np.unique(lengths)]
        assert max(*right, *(1 - np.array(right))) < 0.57


def test_the_slot_of_every_token():
    """Long documents whose slots slide, by whichever offset, and documents with a short slot."""
    for tokens in (29, 100, 29 * 9, 29 * 9 + 1, 29 * 9 + 15, 29 * 12 - 1):
        layout = sampler_of(MemorySplit([[tokens], [3]]), 32).layout
        for epoch in range(60):
            slots = np.arange(layout.first_slot[1])
            zeros = np.zeros(len(slots), np.int64)
            start, stop = slot_span(layout, 0, zeros + epoch, zeros, slots)
            zeros = np.zeros(tokens, np.int64)
            slot = slot_of_token(layout, 0, zeros + epoch, zeros, np.arange(tokens))
            assert (start[slot] <= np.arange(tokens)).all()
            assert (np.arange(tokens) < stop[slot]).all()


# The original's rules (google-research/bert, create_pretraining_data.py), in order, on lengths alone.


def original_examples(documents: list[list[int]], seq_len: int, short_seq_probability: float, rng: random.Random):
    """Yield (document, target, first, second, is_random); the lengths are those after truncation."""
    budget = seq_len - 3
    for number, document in enumerate(documents):
        target = rng.randint(2, budget) if rng.random() < short_seq_probability else budget
        begin = 0
        while begin < len(document):
            taken = 0
            gathered = 0
            while begin + taken < len(document) and gathered < target:
                gathered += document[begin + taken]
                taken += 1
            split_at = rng.randint(1, taken - 1) if taken > 1 else 1
            first = sum(document[begin : begin + split_at])
            is_random = taken == 1 or rng.random() < 0.5
            if is_random:
                other = number
                while other == number:
                    other = rng.randrange(len(documents))
                second = 0
                for sentence in documents[other][rng.randrange(len(documents[other])) :]:
                    second += sentence
                    if second >= target - first:
                        break
                begin += split_at
            else:
                second = gathered - first
                begin += taken
            while first + second > budget:
                if first > second:
                    first -= 1
                else:
                    second -= 1
            yield number, target, first, second, is_random


@pytest.fixture(scope="module")
def long_documents() -> list[list[int]]:
    """Documents so long that their ends, which differ from the original by design, are 1 example in 500."""
    return random_documents(5, 40, (5000, 6000), (3, 30))


def test_full_examples_are_distributed_as_the_originals(long_documents):
    rng = random.Random(0)
    original: list = []
    while len(original) < 100_000:
        original += original_examples(long_documents, 128, 0.0, rng)
    theirs = np.array(original[:100_000])
    sampler = sampler_of(MemorySplit(long_documents), 128)
    ours = [sampled(sampler, 0, np.arange(r, r + 5000)) for r in range(0, 100_000, 5000)]
    lengths = np.concatenate([pairs.lengths for pairs in ours])
    is_random = np.concatenate([pairs.labels == 1 for pairs in ours])
    assert stats.ks_2samp(lengths.sum(axis=1), theirs[:, 2] + theirs[:, 3]).pvalue > ALPHA
    for kind in (False, True):
        chosen = theirs[:, 4] == kind
        assert stats.ks_2samp(lengths[is_random == kind, 0], theirs[chosen, 2]).pvalue > ALPHA
        assert stats.ks_2samp(lengths[is_random == kind, 1], theirs[chosen, 3]).pvalue > ALPHA
    table = [[is_random.sum(), (~is_random).sum()], [theirs[:, 4].sum(), (1 - theirs[:, 4]).sum()]]
    assert stats.chi2_contingency(table).pvalue > ALPHA
    assert stats.binomtest(int(is_random.sum()), 100_000, 0.5).pvalue > ALPHA


def test_short_examples_are_distributed_as_the_originals(long_documents):
    """The original draws a target per document, here it is drawn per example: one example of each document."""
    rng = random.Random(1)
    excerpts = [document[start : start + 60] for document in long_documents for start in range(0, 4800, 60)] * 3
    theirs = []
    last = -1
    for example in original_examples(excerpts, 128, 1.0, rng):
        if example[0] != last:
            theirs.append(example)
        last = example[0]
    pairs = sampled(sampler_of(MemorySplit(long_documents), 128, 1.0), 1, np.arange(10_000))
    total, original = pairs.lengths.sum(axis=1), np.array(theirs)
    assert stats.ks_2samp(total, original[:, 2] + original[:, 3]).pvalue > ALPHA
    assert stats.ks_2samp(pairs.lengths[:, 0], original[:, 2]).pvalue > ALPHA


def predictability(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> float:
    """Return how often a table of 12 x 12 quantiles of the lengths, made of one half, predicts labels of the other."""
    cells = [np.searchsorted(np.quantile(x, np.linspace(0, 1, 13)[1:-1]), x) for x in (first, second)]
    cell, half = cells[0] * 12 + cells[1], len(labels) // 2
    ones, all_ = (np.bincount(cell[:half], weights, 144) for weights in (labels[:half], None))
    return float(np.mean((2 * ones > all_)[cell[half:]] == labels[half:]))


@pytest.mark.parametrize("seq_len", [128, 512])
@pytest.mark.parametrize("sentences", [(2, 4), (10, 30), (2, 60)], ids=str)
def test_lengths_predict_the_label_no_better_than_in_the_original(sentences, seq_len):
    documents = random_documents(7, 600, sentences, (10, 35))
    original = []
    rng = random.Random(0)
    while len(original) < 20_000:
        original += original_examples(documents, seq_len, 0.1, rng)
    theirs = rng.sample(original, 20_000)
    sampler = sampler_of(MemorySplit(documents), seq_len, 0.1)
    ours = [sampled(sampler, 0, np.arange(first, first + 5000)) for first in range(0, 20_000, 5000)]
    lengths, labels = (np.concatenate([getattr(part, name) for part in ours]) for name in ("lengths", "labels"))
    theirs = np.array(theirs)
    assert predictability(lengths[:, 0], lengths[:, 1], labels) < predictability(*theirs[:, 2:5].T) + 0.03


def test_fraction_of_short_examples(long_documents):
    split, numbers = MemorySplit(long_documents), np.arange(20_000)
    short = uniform_floats(random_bits(0, Stream.SHORT, slots_of(sampler_of(split, 128), 0, numbers).example_id)) < 0.1
    assert stats.binomtest(int(short.sum()), len(numbers), 0.1).pvalue > ALPHA
    mixed, full = (sampled(sampler_of(split, 128, fraction), 0, numbers).lengths for fraction in (0.1, 0.0))
    assert np.array_equal(mixed[~short], full[~short])
    # The target is 2 to 125 tokens; an example has its target, and less than a sentence of 30 tokens more.
    below = (mixed[short].sum(axis=1) < 110).mean()
    assert (110 - 30 - 1) / 124 < below < (110 - 2) / 124


def test_random_texts_come_from_all_other_documents():
    split = MemorySplit(random_documents(6, 20, (1, 40), (1, 30)))
    pairs = sampled(sampler_of(split, 32, 0.1), 0, np.arange(100_000))
    first, second = split.document_of(leading_tokens(pairs)).T
    assert np.array_equal(first != second, pairs.labels == 1)
    met = np.zeros([20, 20], bool)
    met[first, second] = True
    assert met.all()
