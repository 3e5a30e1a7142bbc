"""Where rows begin: every document is cut into slots of a budget of tokens; a row, or an example of one, is a slot.

A document of D tokens has ceil(D / budget) slots, of `budget` tokens each but one, which has the rest; which one that
is, is drawn anew every epoch. So each token is in exactly one slot an epoch, how many slots there are of each length
never changes, and slot m of a document is found without looking at any other.

But then slots begin at two places in each budget alone, and in long documents some tokens would lie at a bad place for
ever. So where rows need no constant lengths the slots of documents of `LONG` and more of them slide: they begin at an
offset drawn from a whole budget, and the first and the last have what is left, from 1 token to 3/2 budgets.
"""

from typing import NamedTuple, Protocol

import numpy as np

from bert_jax.data.sequences.hashing import Stream, integers, random_bits

LONG = 8  # slots; in shorter documents too much would be left out of the longer slots


class Split(Protocol):
    """What rows need of `corpus.Split`."""

    tokens_per_record: np.ndarray
    sentences_per_record: np.ndarray
    first_record: np.ndarray
    source_documents: np.ndarray

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Flat tokens, flat sentence lengths and sentences per record of the records asked for, in order."""


class Layout(NamedTuple):
    """What is computed once for a split and a budget. Tokens and slots are numbered through the whole split.

    `record_start` int64 [records + 1], `document_start` and `first_slot` int64 [documents + 1] are running totals of
    tokens, tokens and slots; `source_documents` int64 [sources + 1]: the documents of source k are [k]:[k + 1];
    `slides`: whether the slots of long documents do.
    """

    split: Split
    budget: int
    record_start: np.ndarray
    document_start: np.ndarray
    first_slot: np.ndarray
    source_documents: np.ndarray
    slides: bool

    @property
    def slots(self) -> int:
        """Slots of the whole split."""
        return int(self.first_slot[-1])


class Slots(NamedTuple):
    """A slot an example: int64 [examples] all.

    `number` is what its random bits are drawn by, no two at one budget are alike; `epoch` of its source; `place` of the
    slot in its document, from 0; `room` for so many tokens of text.
    """

    number: np.ndarray
    epoch: np.ndarray
    document: np.ndarray
    place: np.ndarray
    room: np.ndarray


def make_layout(split: Split, budget: int, slides: bool) -> Layout:
    """The layout of slots of `budget` tokens over a split."""
    record_start = running_total(split.tokens_per_record)
    document_start = record_start[split.first_record]
    slots = -(-np.diff(document_start) // budget)
    return Layout(split, budget, record_start, document_start, running_total(slots), split.source_documents, slides)


def make_slots(layout: Layout, seed: int, epoch: np.ndarray, slot: np.ndarray, room: np.ndarray) -> Slots:
    """The `Slots` of epochs, rooms and slots, numbered so that the last of each document is always its short one."""
    document = np.searchsorted(layout.first_slot, slot, side="right") - 1
    short, _ = _cut(layout, seed, epoch, document)
    index = slot - layout.first_slot[document]
    is_short = slot + 1 == layout.first_slot[document + 1]
    place = np.where(is_short, short, index + (index >= short))
    return Slots(epoch * layout.slots + slot, epoch, document, place, room)


def slot_lengths(layout: Layout) -> np.ndarray:
    """Tokens of the slots of any epoch where none slide, int64 [slots], numbered as for `make_slots`."""
    tokens = np.diff(layout.document_start)
    lengths = np.full(layout.slots, layout.budget, np.int64)
    full = tokens > 0
    slots = np.diff(layout.first_slot)
    lengths[layout.first_slot[1:][full] - 1] = (tokens - (slots - 1) * layout.budget)[full]
    return lengths


def slot_span(
    layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [start, stop) of the slot at `place` 0, 1, ... of a document in an epoch; int64 [examples] all."""
    short, cut = _cut(layout, seed, epoch, document)
    first, stop = layout.document_start[document], layout.document_start[document + 1]
    begin, end = (first + at * layout.budget - np.where(at > short, cut, 0) for at in (place, place + 1))
    is_last = place + 1 == layout.first_slot[document + 1] - layout.first_slot[document]
    return begin, np.where(is_last, stop, end)


def place_of(layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, token: np.ndarray) -> np.ndarray:
    """The place of the slot that holds a document's token 0, 1, ...; int64 [examples] all."""
    short, cut = _cut(layout, seed, epoch, document)
    after = token >= (short + 1) * layout.budget - cut
    last = layout.first_slot[document + 1] - layout.first_slot[document] - 1
    return np.minimum((token + np.where(after, cut, 0)) // layout.budget, last)


def _cut(layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The place after which all slots begin earlier than a full one each would have them, and by how many tokens."""
    slots = layout.first_slot[document + 1] - layout.first_slot[document]
    slack = slots * layout.budget - (layout.document_start[document + 1] - layout.document_start[document])
    bits = random_bits(seed, Stream.OFFSET, epoch, document)
    short = integers(bits, slots)
    if not layout.slides:
        return short, slack
    stretch = (layout.budget - 1 - slack) // 2
    offset = integers(bits, slack + 2 * stretch + 1) - stretch
    return np.where(slots < LONG, short, 0), np.where(slots < LONG, slack, offset)


def running_total(counts: np.ndarray) -> np.ndarray:
    """0 and the sums of the first 1, 2, ... counts; int64 [counts + 1]."""
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total
