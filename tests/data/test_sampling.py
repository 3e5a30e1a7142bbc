"""Sentence pairs and single texts against the rule in plain Python, and against the original's rules."""

import itertools
import random

import numpy as np
import pytest
from memory_corpus import FIRST_TOKEN, SEP, MemorySplit, random_documents
from plain_sampler import RULES, PlainSampler, run_together, spelled_out
from sampled_rows import leading_tokens, parts, sampled, sampler_of, slots_of
from scipy import stats

from bert_jax.data.sequences.hashing import Stream, random_bits, uniform
from bert_jax.data.sequences.layout import make_slots, slot_lengths, slot_span
from bert_jax.data.sequences.sampling import truncated

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
@pytest.mark.parametrize("length", [5, 8, 32, 128])
@pytest.mark.parametrize("name", CORPORA)
def test_examples_equal_the_rule_in_plain_python(name, length, pairing, packed):
    seed, short_seq_probability = 7, 0.3
    documents = spelled_out(CORPORA[name])
    sampler = sampler_of(MemorySplit(CORPORA[name], max_record=512), length, short_seq_probability, pairing, packed)
    if pairing == "full_sentences":  # one document, with a separator after each of its own
        documents = [[[*s, SEP] if s is d[-1] else s for d in documents for s in d]]
    slots = slots_of(sampler, seed, np.concatenate([np.arange(80), 10**9 + np.arange(20)]))
    if pairing != "none":  # as packing gives examples less room
        slots = slots._replace(room=np.where(np.arange(100) % 3, slots.room, np.maximum(2, slots.room // 2)))
    examples = sampler.sample(seed, slots)
    slides = pairing != "none" and not packed
    plain = PlainSampler(documents, sampler.layout.budget, seed, short_seq_probability, slides)
    for place, slot in enumerate(zip(*(array.tolist() for array in slots), strict=True)):
        *texts, label = RULES[pairing](plain, *slot)
        assert parts(examples, place) == texts, slot
        assert examples.labels[place] == label


def test_truncated_takes_from_the_longer_one_by_one():
    for budget in range(2, 12):
        for first in range(1, 25):
            for second in range(1, 25):
                a, b = first, second
                while a + b > budget:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                closed = truncated(np.array([first]), np.array([second]), budget)
                assert (closed[0][0], closed[1][0]) == (a, b)
                assert min(a, b) >= 1


@pytest.mark.parametrize("packed", [False, True])
def test_slots_of_an_epoch_partition_every_document(packed):
    split = MemorySplit(random_documents(4, 50, (1, 40), (1, 30)))
    layout = sampler_of(split, 32, packed=packed).layout
    seen = []
    for epoch in range(3):
        slots = make_slots(layout, 0, np.full(layout.slots, epoch), np.arange(layout.slots), np.full(layout.slots, 29))
        start, stop = slot_span(layout, 0, slots.epoch, slots.document, slots.place)
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
    split = MemorySplit([[4] * 3 for _ in range(200)])  # each document is one slot and fills no row
    found = split.document_of(leading_tokens(sampled(sampler_of(split, 128), 0, np.arange(200)))[:, 0])
    assert sorted(found.tolist()) == list(range(200))


def test_documents_run_together_lose_no_token():
    """Rows as long as the corpus hold all of it: every token once, a separator after each document."""
    split = MemorySplit(random_documents(8, 9, (1, 6), (1, 9)))
    total = int(split.document_start[-1]) + 9
    (text,) = parts(sampled(sampler_of(split, total + 2, sentence_pairs="full_sentences"), 0, np.arange(1)), 0)
    bounds = itertools.pairwise(split.document_start.tolist())
    expected = [[*range(FIRST_TOKEN + start, FIRST_TOKEN + stop), SEP] for start, stop in bounds]
    assert text == run_together(expected)


def test_random_parts_stay_within_their_source():
    documents = random_documents(6, 30, (1, 40), (1, 30))
    split = MemorySplit(documents, sources=(4, 20, 6))
    examples = sampled(sampler_of(split, 32), 0, np.arange(50_000))
    first, second = np.searchsorted([4, 24], split.document_of(leading_tokens(examples)), side="right").T
    assert np.array_equal(first, second)
    one, other = split.document_of(leading_tokens(examples)).T
    assert np.array_equal(one != other, examples.labels == 1)


def test_half_of_the_orders_are_swapped(long_documents):
    examples = sampled(sampler_of(MemorySplit(long_documents), 128, 0.1, "sentence_order"), 0, np.arange(100_000))
    first, second = leading_tokens(examples).T
    assert np.array_equal(first > second, examples.labels == 1)
    assert stats.binomtest(int(examples.labels.sum()), 100_000, 0.5).pvalue > ALPHA


# The original's rules (google-research/bert, create_pretraining_data.py), in order, on lengths alone.


def original_rows(documents: list[list[int]], length: int, short_seq_probability: float, rng: random.Random):
    """Yields (document, target, first, second, is_random); the lengths are those after truncation."""
    budget = length - 3
    for number, document in enumerate(documents):
        target = rng.randint(2, budget) if rng.random() < short_seq_probability else budget
        place = 0
        while place < len(document):
            taken = 0
            gathered = 0
            while place + taken < len(document) and gathered < target:
                gathered += document[place + taken]
                taken += 1
            split_at = rng.randint(1, taken - 1) if taken > 1 else 1
            first = sum(document[place : place + split_at])
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
                place += split_at
            else:
                second = gathered - first
                place += taken
            while first + second > budget:
                if first > second:
                    first -= 1
                else:
                    second -= 1
            yield number, target, first, second, is_random


@pytest.fixture(scope="module")
def long_documents() -> list[list[int]]:
    """Long enough that the ends of documents, which differ by design, are 1 row in 500."""
    return random_documents(5, 40, (5000, 6000), (3, 30))


def test_full_rows_are_distributed_as_the_originals(long_documents):
    rng = random.Random(0)
    original: list = []
    while len(original) < 100_000:
        original += original_rows(long_documents, 128, 0.0, rng)
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


def test_short_rows_are_distributed_as_the_originals(long_documents):
    """The original draws a target for each document, here it is drawn for each row: one row of each document."""
    rng = random.Random(1)
    excerpts = [document[start : start + 60] for document in long_documents for start in range(0, 4800, 60)] * 3
    theirs = []
    last = -1
    for row in original_rows(excerpts, 128, 1.0, rng):
        if row[0] != last:
            theirs.append(row)
        last = row[0]
    pairs = sampled(sampler_of(MemorySplit(long_documents), 128, 1.0), 1, np.arange(10_000))
    total, original = pairs.lengths.sum(axis=1), np.array(theirs)
    assert stats.ks_2samp(total, original[:, 2] + original[:, 3]).pvalue > ALPHA
    assert stats.ks_2samp(pairs.lengths[:, 0], original[:, 2]).pvalue > ALPHA


def told_by_lengths(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> float:
    """Share of labels that a table of 12 x 12 quantiles of both lengths tells of the half that it was not made from."""
    cells = [np.searchsorted(np.quantile(x, np.linspace(0, 1, 13)[1:-1]), x) for x in (first, second)]
    cell, half = cells[0] * 12 + cells[1], len(labels) // 2
    ones, all_ = (np.bincount(cell[:half], weights, 144) for weights in (labels[:half], None))
    return float(np.mean((2 * ones > all_)[cell[half:]] == labels[half:]))


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("sentences", [(2, 4), (10, 30), (2, 60)], ids=str)
def test_lengths_tell_no_more_of_the_label_than_in_the_original(sentences, length):
    documents = random_documents(7, 600, sentences, (10, 35))
    original = []
    rng = random.Random(0)
    while len(original) < 20_000:
        original += original_rows(documents, length, 0.1, rng)
    theirs = rng.sample(original, 20_000)
    sampler = sampler_of(MemorySplit(documents), length, 0.1)
    ours = [sampled(sampler, 0, np.arange(row, row + 5000)) for row in range(0, 20_000, 5000)]
    lengths, labels = (np.concatenate([getattr(part, name) for part in ours]) for name in ("lengths", "labels"))
    theirs = np.array(theirs)
    told = told_by_lengths(lengths[:, 0], lengths[:, 1], labels)
    assert told < told_by_lengths(*theirs[:, 2:5].T) + 0.03


def test_share_of_short_rows(long_documents):
    split, rows = MemorySplit(long_documents), np.arange(20_000)
    short = uniform(random_bits(0, Stream.SHORT, slots_of(sampler_of(split, 128), 0, rows).number)) < 0.1
    assert stats.binomtest(int(short.sum()), len(rows), 0.1).pvalue > ALPHA
    mixed, full = (sampled(sampler_of(split, 128, share), 0, rows).lengths for share in (0.1, 0.0))
    assert np.array_equal(mixed[~short], full[~short])
    # Of 2 to 125 tokens wanted; a row has its target, and less than a sentence of 30 more.
    below = (mixed[short].sum(axis=1) < 110).mean()
    assert (110 - 30 - 1) / 124 < below < (110 - 2) / 124


def test_random_parts_come_from_other_documents_and_reach_all_of_them():
    split = MemorySplit(random_documents(6, 20, (1, 40), (1, 30)))
    pairs = sampled(sampler_of(split, 32, 0.1), 0, np.arange(100_000))
    first, second = split.document_of(leading_tokens(pairs)).T
    assert np.array_equal(first != second, pairs.labels == 1)
    met = np.zeros([20, 20], bool)
    met[first, second] = True
    assert met.all()
