"""Sentence pairs against the rule in plain Python, against the original's rules, and for what they cover."""

import itertools
import random

import numpy as np
import pytest
from memory_corpus import FIRST_TOKEN, SEP, MemorySplit, random_documents
from scipy import stats

from bert_jax.data.rows.hashing import Stream, integers, random_bits, uniform
from bert_jax.data.rows.layout import LONG as SLIDING
from bert_jax.data.rows.layout import Slots, make_slots, slot_lengths, slot_span
from bert_jax.data.rows.order import locate, make_order
from bert_jax.data.rows.sampling import Examples, Sampler, make_sampler, truncated
from bert_jax.errors import UserError

ALPHA = 1e-3  # of each statistical test; the seeds are fixed, so a pass stays one


def sampler_of(
    split, length: int, short_probability: float = 0.0, pairing: str = "next_sentence", packed: bool = False
) -> Sampler:
    special = 3 if pairing in ("next_sentence", "sentence_order") else 2
    return make_sampler(split, pairing, length - special, SEP, short_probability, packed)


def slots_of(sampler: Sampler, seed: int, rows: np.ndarray) -> Slots:
    """Those of unpacked rows."""
    layout = sampler.layout
    order = make_order(np.diff(layout.first_slot[layout.source_documents]))
    return make_slots(layout, seed, *locate(order, seed, rows), np.full(len(rows), layout.budget))


def sampled(sampler: Sampler, seed: int, rows: np.ndarray) -> Examples:
    return sampler.sample(seed, slots_of(sampler, seed, rows))


def parts(examples: Examples, row: int) -> list[list[int]]:
    return [
        examples.tokens[start : start + length].tolist()
        for start, length in zip(examples.starts[row], examples.lengths[row], strict=True)
    ]


def leading_tokens(examples: Examples) -> np.ndarray:
    """The first token of each part; int64 [rows, parts]."""
    return examples.tokens[examples.starts].astype(np.int64)


# The rule of bert_jax in plain Python, a row at a time; only the hash is shared.


class PlainSampler:
    def __init__(
        self, documents: list[list[list[int]]], budget: int, seed: int, short_probability: float, slides: bool
    ):
        self.slides = slides
        self.documents, self.seed, self.short_probability = documents, seed, short_probability
        self.budget = budget
        self.sizes = [sum(len(sentence) for sentence in document) for document in documents]
        self.slots = [(d, m) for d, size in enumerate(self.sizes) for m in range(-(-size // self.budget))]
        ratio = self.budget**2 * len(self.slots) // sum(self.sizes)
        self.slot_weight = max(1, ratio - 3 * self.budget // 4)

    def draw(self, high: int, *counters: int) -> int:
        return int(integers(random_bits(self.seed, *counters), high)[0])

    def coin(self, *counters: int) -> bool:
        return self.draw(2, *counters) == 1

    def spans(self, epoch: int, document: int) -> list[tuple[int, int]]:
        """The slots of a document as (start, stop): all full but one, or in long ones at an offset."""
        slots = sum(1 for d, _ in self.slots if d == document)
        if self.slides and slots >= SLIDING:
            slack = slots * self.budget - self.sizes[document]
            lowest = -((self.budget - 1 - slack) // 2)
            offset = lowest + self.draw(slack - 2 * lowest + 1, Stream.OFFSET, epoch, document)
            edges = [0] + [m * self.budget - offset for m in range(1, slots)] + [self.sizes[document]]
            return list(itertools.pairwise(edges))
        sizes = [self.budget] * slots
        sizes[self.draw(slots, Stream.OFFSET, epoch, document)] -= slots * self.budget - self.sizes[document]
        return list(itertools.pairwise([0, *itertools.accumulate(sizes)]))

    def window(self, epoch: int, document: int, slot: int, wanted: int, backward: bool) -> list[list[int]]:
        """The window's sentences, cut where one reaches too far; backward, everything is done to the reversed text."""
        reach = self.budget // 2
        sentences = self.documents[document]
        slot_start, slot_stop = self.spans(epoch, document)[slot]
        if backward:
            sentences = [sentence[::-1] for sentence in sentences[::-1]]
            slot_start, slot_stop = self.sizes[document] - slot_stop, self.sizes[document] - slot_start
        text = run_together(sentences)
        begins = [sum(len(sentence) for sentence in sentences[:k]) for k in range(len(sentences) + 1)]
        wanted = min(wanted, slot_stop - slot_start)
        following = [b for b in begins if slot_start <= b < slot_stop and b - slot_start <= reach]
        before = max(b for b in begins if b <= slot_start)
        begin = following[0] if following else max(before, slot_start - reach)
        end = begin
        while end < min(begin + wanted, len(text)):
            end = min(b for b in begins if b > end)
        end = min(end, min(begin + wanted, len(text)) + reach)
        edges = [begin] + [b for b in begins if begin < b < end] + [end]
        window = [text[a:b] for a, b in itertools.pairwise(edges)]
        return [sentence[::-1] for sentence in window[::-1]] if backward else window

    def other_slot(self, epoch: int, document: int, row: int) -> tuple[int, int]:
        weights = {}
        for d, size in enumerate(self.sizes):
            if d != document:
                weights[d] = size + self.slot_weight * sum(1 for e, _ in self.slots if e == d)
        left = self.draw(sum(weights.values()), Stream.OTHER, row)
        d = min(weights)
        while left >= weights[d]:
            left -= weights.pop(d)
            d = min(weights)
        if left >= self.sizes[d]:
            return d, (left - self.sizes[d]) // self.slot_weight
        return d, next(m for m, (start, stop) in enumerate(self.spans(epoch, d)) if start <= left < stop)

    def target(self, number: int, room: int) -> int:
        if uniform(random_bits(self.seed, Stream.SHORT, number))[0] < self.short_probability:
            return 2 + self.draw(room - 1, Stream.TARGET, number)
        return room

    def next_sentence(
        self, number: int, epoch: int, document: int, slot: int, room: int
    ) -> tuple[list[int], list[int], bool]:
        row = number
        target = self.target(number, room)
        wants_random = self.coin(Stream.RANDOM_NEXT, row)
        backward = wants_random and self.coin(Stream.SIDE, row)
        sentences = self.window(epoch, document, slot, target, backward)
        inner = len(sentences) - 1
        cut = 1 + self.draw(inner, Stream.CUT, row) if inner else 1
        first, second = run_together(sentences[:cut]), run_together(sentences[cut:])
        is_random = wants_random or not inner
        if is_random:
            if inner and backward:
                first = second
            other = self.other_slot(epoch, document, row)
            wanted = max(1, target - len(first))
            second = run_together(self.window(epoch, *other, wanted, self.coin(Stream.OTHER_SIDE, row)))
        return *self.truncated(row, first, second, room), is_random

    def sentence_order(
        self, number: int, epoch: int, document: int, slot: int, room: int
    ) -> tuple[list[int], list[int], bool]:
        sentences = self.window(epoch, document, slot, self.target(number, room), False)
        text = run_together(sentences)
        if len(sentences) > 1:
            cut = len(run_together(sentences[: 1 + self.draw(len(sentences) - 1, Stream.CUT, number)]))
        else:
            cut = 1 if len(text) == 1 else 1 + self.draw(len(text) - 1, Stream.CUT, number)
        first, second = self.truncated(number, text[:cut], text[cut:], room)
        swapped = self.coin(Stream.SWAP, number) and len(text) > 1
        return (second, first, True) if swapped else (first, second, False)

    def sentences(self, number: int, epoch: int, document: int, slot: int, room: int) -> tuple[list[int], bool]:
        start, stop = self.spans(epoch, document)[slot]
        text = run_together(self.documents[document])
        edges = [0, *itertools.accumulate(len(sentence) for sentence in self.documents[document])]
        begin = next((edge for edge in edges if start <= edge < stop), start)
        ends = [edge for edge in edges if begin < edge <= begin + room]
        return text[begin : max(ends, default=begin + room)], False

    def none(self, number: int, epoch: int, document: int, slot: int, room: int) -> tuple[list[int], bool]:
        start, stop = self.spans(epoch, document)[slot]
        return run_together(self.documents[document])[start:stop], False

    def truncated(self, row: int, first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
        heads = {stream: self.tosses(stream, row) for stream in (Stream.TRUNCATE_FIRST, Stream.TRUNCATE_SECOND)}
        fronts = dict.fromkeys(heads, 0)
        lost = dict.fromkeys(heads, 0)
        sizes = {Stream.TRUNCATE_FIRST: len(first), Stream.TRUNCATE_SECOND: len(second)}
        while sum(sizes.values()) > room:
            longer = sizes[Stream.TRUNCATE_FIRST] > sizes[Stream.TRUNCATE_SECOND]
            stream = Stream.TRUNCATE_FIRST if longer else Stream.TRUNCATE_SECOND
            sizes[stream] -= 1
            fronts[stream] += heads[stream][lost[stream]]
            lost[stream] += 1
        kept = [
            text[fronts[stream] : fronts[stream] + sizes[stream]]
            for stream, text in ((Stream.TRUNCATE_FIRST, first), (Stream.TRUNCATE_SECOND, second))
        ]
        return kept[0], kept[1]

    def tosses(self, stream: Stream, row: int) -> list[int]:
        """Bits from the most significant of each word on."""
        words = random_bits(random_bits(self.seed, stream, row), np.arange(40))
        return [int(word) >> (63 - k) & 1 for word in words.tolist() for k in range(64)]


def run_together(sentences: list[list[int]]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def spelled_out(documents: list[list[int]]) -> list[list[list[int]]]:
    """Documents of sentence lengths as documents of ids, numbered as in `MemorySplit`."""
    token = FIRST_TOKEN
    spelled = []
    for document in documents:
        spelled.append([])
        for length in document:
            spelled[-1].append(list(range(token, token + length)))
            token += length
    return spelled


CORPORA = {
    "ordinary": random_documents(0, 12, (1, 30), (1, 20)),
    "one-sentence documents": random_documents(1, 30, (1, 1), (1, 30)),
    "long documents over several records": random_documents(2, 3, (40, 60), (3, 40)),
    "long sentences": random_documents(3, 6, (1, 5), (50, 512)),
    "two documents": [[1], [3, 4, 5]],
}


RULES = {
    "next_sentence": PlainSampler.next_sentence,
    "sentence_order": PlainSampler.sentence_order,
    "full_sentences": PlainSampler.sentences,
    "document_sentences": PlainSampler.sentences,
    "none": PlainSampler.none,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pairing", RULES)
@pytest.mark.parametrize("length", [5, 8, 32, 128])
@pytest.mark.parametrize("name", CORPORA)
def test_examples_equal_the_rule_in_plain_python(name, length, pairing, packed):
    seed, short_probability = 7, 0.3
    documents = spelled_out(CORPORA[name])
    sampler = sampler_of(MemorySplit(CORPORA[name], max_record=512), length, short_probability, pairing, packed)
    if pairing == "full_sentences":  # one document, with a separator after each of its own
        documents = [[[*s, SEP] if s is d[-1] else s for d in documents for s in d]]
    slots = slots_of(sampler, seed, np.concatenate([np.arange(80), 10**9 + np.arange(20)]))
    if pairing != "none":  # as packing gives examples less room
        slots = slots._replace(room=np.where(np.arange(100) % 3, slots.room, np.maximum(2, slots.room // 2)))
    examples = sampler.sample(seed, slots)
    slides = pairing != "none" and not packed
    plain = PlainSampler(documents, sampler.layout.budget, seed, short_probability, slides)
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
    (text,) = parts(sampled(sampler_of(split, total + 2, pairing="full_sentences"), 0, np.arange(1)), 0)
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


@pytest.mark.parametrize("documents", [[[5, 5, 5]], []])
def test_fewer_than_two_documents_are_refused(documents):
    with pytest.raises(UserError, match="--documents blank-line"):
        sampler_of(MemorySplit(documents), 128)


def test_a_source_of_one_document_is_refused():
    with pytest.raises(UserError, match="two documents"):
        sampler_of(MemorySplit([[5], [5], [5]], sources=(2, 1)), 128)


# The original's rules (google-research/bert, create_pretraining_data.py), in order, on lengths alone.


def original_rows(documents: list[list[int]], length: int, short_probability: float, rng: random.Random):
    """Yields (document, target, first, second, is_random); the lengths are those after truncation."""
    budget = length - 3
    for number, document in enumerate(documents):
        target = rng.randint(2, budget) if rng.random() < short_probability else budget
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


# Coverage: how often a token is in a row, relative to the mean.


def coverage(split: MemorySplit, length: int, epochs: int, pairing: str) -> np.ndarray:
    """Times that each token is in a row, over the mean of all tokens; float64 [tokens]."""
    sampler = sampler_of(split, length, 0.1, pairing)
    seen = np.zeros(split.document_start[-1] + 1, np.int64)
    rows = epochs * sampler.layout.slots
    for some in np.array_split(np.arange(rows), -(-rows // 10_000)):
        examples = sampled(sampler, 0, some)
        start = leading_tokens(examples) - FIRST_TOKEN
        np.add.at(seen, start, 1)
        np.add.at(seen, start + examples.lengths, -1)
    times = np.cumsum(seen)[:-1]
    return times / times.mean()


ONE = random_documents(11, 200, (1, 1), (5, 40))
FEW = random_documents(12, 120, (2, 4), (5, 40))
MIDDLE = random_documents(13, 40, (5, 60), (5, 40))
LONG = random_documents(14, 25, (100, 250), (5, 40))


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize(
    "documents",
    [LONG, LONG + MIDDLE + FEW + ONE, LONG[:5] + 10 * ONE, LONG[:5] + 5 * FEW, MIDDLE + FEW + ONE, FEW + ONE],
    ids=["long", "all kinds", "long and one-sentence", "long and few-sentence", "no long", "short"],
)
@pytest.mark.parametrize("pairing", ["next_sentence", "sentence_order", "document_sentences"])
def test_every_kind_of_token_is_seen_about_equally_often(documents, length, pairing):
    split = MemorySplit(documents)
    sizes = np.diff(split.document_start)
    epochs = max(10, 3_000_000 // int(sizes.sum()))
    seen = coverage(split, length, epochs, pairing)
    document = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(document)) - split.document_start[document]
    size_class = np.digitize(sizes, [40, 80, 160, 640, 2560])
    size_class[[len(sentences) == 1 for sentences in documents]] = -1
    for kinds in (size_class[document], 10 * position // sizes[document]):
        for kind in np.unique(kinds):
            assert 0.8 < seen[kinds == kind].mean() < 1.25, kind


@pytest.mark.parametrize("pairing", ["full_sentences", "document_sentences", "none"])
def test_100_000_rows_of_single_texts_see_every_token_alike(pairing):
    """Text without sentences is seen exactly once an epoch; of whole sentences some that do not fit are left out."""
    split = MemorySplit(MIDDLE + FEW + ONE, sources=(40, 120, 200))
    sampler = sampler_of(split, 128, pairing=pairing)
    epochs = -(-100_000 // sampler.layout.slots)
    seen = np.zeros(split.vocab_size, np.int64)
    begun = np.zeros(split.vocab_size, np.int64)
    for epoch in range(epochs):
        examples = sampled(sampler, 5, np.arange(epoch * sampler.layout.slots, (epoch + 1) * sampler.layout.slots))
        for start, length in zip(examples.starts[:, 0].tolist(), examples.lengths[:, 0].tolist(), strict=True):
            text = examples.tokens[start : start + length]
            seen[text] += 1
            begun[text[0]] += 1
        assert examples.lengths.max() <= 126
    times = seen[FIRST_TOKEN:] / epochs
    if pairing == "none":
        assert (times == 1).all()
        return
    sizes = np.diff(split.document_start)
    document = np.repeat(np.arange(len(sizes)), sizes)
    tenth = 10 * (np.arange(len(document)) - split.document_start[document]) // sizes[document]
    for kind in range(10):
        assert 0.8 < times[tenth == kind].mean() / times.mean() < 1.25, kind
    assert times.mean() > 0.8
    # Rows begin where sentences do, but for those inside of a sentence that is longer than a row.
    places = np.cumsum([0, *(length for d in split.documents for length in d)])[:-1] + FIRST_TOKEN
    assert begun[places].sum() > 0.6 * begun.sum()


@pytest.mark.parametrize("pairing", ["full_sentences", "document_sentences"])
def test_no_token_of_a_long_document_is_left_out_for_ever(pairing):
    """With slots at two places in a budget alone, one token in a hundred lay at a bad place in every epoch."""
    split = MemorySplit(random_documents(9, 4, (1500, 2000), (3, 45)))
    sampler = sampler_of(split, 128, pairing=pairing)
    seen = np.zeros(split.vocab_size, np.int64)
    for epoch in range(40):
        rows = np.arange(epoch * sampler.layout.slots, (epoch + 1) * sampler.layout.slots)
        examples = sampled(sampler, 0, rows)
        for start, length in zip(examples.starts[:, 0].tolist(), examples.lengths[:, 0].tolist(), strict=True):
            seen[examples.tokens[start : start + length]] += 1
    assert (seen[FIRST_TOKEN:] == 0).mean() < 1e-3
