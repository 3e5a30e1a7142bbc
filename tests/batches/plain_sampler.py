"""The rules of SENTENCE_PAIRS in plain Python, one example at a time; only the hash is shared."""

import itertools
import math

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats, uniform_integers
from bert_jax.batches.layout import MIN_SLIDING_SLOTS
from tests.helpers.memory_corpus import FIRST_TOKEN


class PlainSampler:
    def __init__(
        self,
        documents: list[list[list[int]]],
        budget: int,
        seed: int,
        short_seq_probability: float,
        slides: bool,
        bounded: bool = False,
    ):
        self.slides, self.bounded = slides, slides and bounded
        self.documents, self.seed, self.short_seq_probability = documents, seed, short_seq_probability
        self.budget = budget
        self.sizes = [sum(len(sentence) for sentence in document) for document in documents]
        self.slots = [(d, m) for d, size in enumerate(self.sizes) for m in range(self.num_slots(size))]
        self.slot_weight = max(1, int(sum(self.sizes) / len(self.slots) / 4))
        alone = sum(size for size, document in zip(self.sizes, documents, strict=True) if len(document) == 1)
        alone = max(1, alone) / sum(self.sizes)
        self.factors = [alone / (alone + 0.25) if len(document) == 1 else 1 for document in documents]

    def num_slots(self, size: int) -> int:
        slots = math.ceil(size / self.budget)
        one_more = self.bounded and slots >= MIN_SLIDING_SLOTS and slots * self.budget - size < self.budget / 2
        return slots + one_more

    def draw(self, high: int, *counters: int) -> int:
        return int(uniform_integers(random_bits(self.seed, *counters), high)[0])

    def coin(self, *counters: int) -> bool:
        return self.draw(2, *counters) == 1

    def spans(self, epoch: int, document: int) -> list[tuple[int, int]]:
        """Return the slots of a document as (start, stop): all full except one, or sliding in long documents."""
        slots = sum(1 for d, _ in self.slots if d == document)
        if self.slides and slots >= MIN_SLIDING_SLOTS:
            slack = slots * self.budget - self.sizes[document]
            allowed = range(-((self.budget - 1 - slack) // 2), slack + (self.budget - 1 - slack) // 2 + 1)
            if self.bounded:  # the first and the last slot have 1 token to a budget
                allowed = [m for m in range(self.budget) if 1 <= self.budget - (slack - m) <= self.budget]
                assert len(allowed) >= self.budget / 2
            offset = allowed[self.draw(len(allowed), Stream.OFFSET, epoch, document)]
            edges = [0] + [m * self.budget - offset for m in range(1, slots)] + [self.sizes[document]]
            return list(itertools.pairwise(edges))
        sizes = [self.budget] * slots
        sizes[self.draw(slots, Stream.OFFSET, epoch, document)] -= slots * self.budget - self.sizes[document]
        return list(itertools.pairwise([0, *itertools.accumulate(sizes)]))

    def window(
        self, epoch: int, document: int, slot: int, wanted: int, backward: bool, at_most: int = 0
    ) -> list[list[int]]:
        """Return the sentences of a window, cut where one reaches too far; backward, the text is reversed first.

        With `at_most`, the end is the border of sentences nearest to the wanted end, of those that are not too far.
        """
        reach = self.budget // 2
        sentences = self.documents[document]
        slot_start, slot_stop = self.spans(epoch, document)[slot]
        if backward:
            sentences = [sentence[::-1] for sentence in sentences[::-1]]
            slot_start, slot_stop = self.sizes[document] - slot_stop, self.sizes[document] - slot_start
        text = concatenated(sentences)
        begins = [sum(len(sentence) for sentence in sentences[:k]) for k in range(len(sentences) + 1)]
        wanted = min(wanted, slot_stop - slot_start)
        following = [b for b in begins if slot_start <= b < slot_stop and b - slot_start <= reach]
        before = max(b for b in begins if b <= slot_start)
        begin = following[0] if following else max(before, slot_start - reach)
        full = min(begin + wanted, len(text))
        later = [b for b in begins if b > begin]
        end = next(b for b in later if b >= full)
        if at_most:
            near = [b for b in later if b <= end and b - begin <= at_most] or later[:1]
            end = min(near, key=lambda b: (abs(b - full), -b))
        end = min(end, full + reach)
        edges = [begin] + [b for b in begins if begin < b < end] + [end]
        window = [text[a:b] for a, b in itertools.pairwise(edges)]
        return [sentence[::-1] for sentence in window[::-1]] if backward else window

    def other_slot(self, epoch: int, document: int, number: int) -> tuple[int, int]:
        weights, full = {}, {}
        for d, size in enumerate(self.sizes):
            if d != document:
                full[d] = size + self.slot_weight * sum(1 for e, _ in self.slots if e == d)
                weights[d] = math.ceil(full[d] * self.factors[d])
        left = self.draw(sum(weights.values()), Stream.OTHER, number)
        d = min(weights)
        while left >= weights[d]:
            left -= weights.pop(d)
            d = min(weights)
        left = left * full[d] // weights[d]
        if left >= self.sizes[d]:
            return d, (left - self.sizes[d]) // self.slot_weight
        return d, next(m for m, (start, stop) in enumerate(self.spans(epoch, d)) if start <= left < stop)

    def target(self, number: int, capacity: int) -> int:
        if uniform_floats(random_bits(self.seed, Stream.SHORT, number))[0] < self.short_seq_probability:
            return 2 + self.draw(capacity - 1, Stream.TARGET, number)
        return capacity

    def next_sentence(
        self, number: int, epoch: int, document: int, slot: int, capacity: int
    ) -> tuple[list[int], list[int], bool]:
        target = self.target(number, capacity)
        wants_random = self.coin(Stream.RANDOM_NEXT, number)
        backward = wants_random and self.coin(Stream.SIDE, number)
        sentences = self.window(epoch, document, slot, target, backward)
        inner = len(sentences) - 1
        cut = 1 + self.draw(inner, Stream.CUT, number) if inner else 1
        first, second = concatenated(sentences[:cut]), concatenated(sentences[cut:])
        is_random = wants_random or not inner
        if is_random:
            if inner and backward:
                first = second
            other = self.other_slot(epoch, document, number)
            start, stop = self.spans(epoch, document)[slot]
            wanted = max(1, min(target, stop - start) - len(first))
            is_short_document = len(self.spans(epoch, document)) == 1 and len(concatenated(sentences)) <= target
            at_most = capacity - len(first) if is_short_document else 0
            second = concatenated(self.window(epoch, *other, wanted, self.coin(Stream.OTHER_SIDE, number), at_most))
        return *self.truncated(number, first, second, capacity), is_random

    def sentence_order(
        self, number: int, epoch: int, document: int, slot: int, capacity: int
    ) -> tuple[list[int], list[int], bool]:
        sentences = self.window(epoch, document, slot, self.target(number, capacity), False)
        text = concatenated(sentences)
        if len(sentences) > 1:
            cut = len(concatenated(sentences[: 1 + self.draw(len(sentences) - 1, Stream.CUT, number)]))
        else:
            cut = 1 if len(text) == 1 else 1 + self.draw(len(text) - 1, Stream.CUT, number)
        swapped = self.coin(Stream.SWAP, number) and len(text) > 1
        first, second = (text[cut:], text[:cut]) if swapped else (text[:cut], text[cut:])
        return *self.truncated(number, first, second, capacity), swapped

    def sentences(self, number: int, epoch: int, document: int, slot: int, capacity: int) -> tuple[list[int], bool]:
        start, stop = self.spans(epoch, document)[slot]
        text = concatenated(self.documents[document])
        edges = [0, *itertools.accumulate(len(sentence) for sentence in self.documents[document])]
        begin = next((edge for edge in edges if start <= edge < stop), start)
        ends = [edge for edge in edges if begin < edge <= begin + capacity]
        return text[begin : max(ends, default=begin + capacity)], False

    def none(self, number: int, epoch: int, document: int, slot: int, capacity: int) -> tuple[list[int], bool]:
        start, stop = self.spans(epoch, document)[slot]
        return concatenated(self.documents[document])[start:stop], False

    def truncated(self, number: int, first: list[int], second: list[int], capacity: int) -> tuple[list[int], list[int]]:
        heads = {stream: self.tosses(stream, number) for stream in (Stream.TRUNCATE_FIRST, Stream.TRUNCATE_SECOND)}
        fronts = dict.fromkeys(heads, 0)
        lost = dict.fromkeys(heads, 0)
        sizes = {Stream.TRUNCATE_FIRST: len(first), Stream.TRUNCATE_SECOND: len(second)}
        while sum(sizes.values()) > capacity:
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

    def tosses(self, stream: Stream, number: int) -> list[int]:
        """Return random bits, those of each word from the most significant."""
        words = random_bits(random_bits(self.seed, stream, number), np.arange(40))
        return [int(word) >> (63 - k) & 1 for word in words.tolist() for k in range(64)]


def concatenated(sentences: list[list[int]]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def spelled_out(documents: list[list[int]]) -> list[list[list[int]]]:
    """Return documents of sentence lengths as documents of ids, numbered as in `MemorySplit`."""
    token = FIRST_TOKEN
    spelled = []
    for document in documents:
        spelled.append([])
        for length in document:
            spelled[-1].append(list(range(token, token + length)))
            token += length
    return spelled


RULES = {
    "next_sentence": PlainSampler.next_sentence,
    "sentence_order": PlainSampler.sentence_order,
    "full_sentences": PlainSampler.sentences,
    "full_text": PlainSampler.none,
    "document_sentences": PlainSampler.sentences,
    "none": PlainSampler.none,
}
