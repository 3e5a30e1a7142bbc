"""Slots: the ranges of document tokens that become examples (see the picture in `__init__.py`).

A document of D tokens has ceil(D / budget) slots. One short slot has the remainder, and all other slots have `budget`
tokens. The position of the short slot is random in every epoch. So each token is in exactly one slot per epoch. Every
epoch has the same number of slots of each length. Any slot of a document can be computed without the other slots.

If only the position of the short slot were random, each slot could begin at only two positions, and some tokens of a
long document would be near the border of a slot in every epoch. The slots of a document with at least
`MIN_SLIDING_SLOTS` slots therefore slide, except if sequences need constant lengths. Sliding slots begin at a random
offset within a budget, and the first and the last slot have from 1 token to 3/2 budgets. If an example is the slot
itself, no slot may exceed the budget: the offset is drawn from a range of at least half a budget, and a document whose
slots have less slack gets one more slot.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits, uniform_integers
from bert_jax.corpus.store import ReadableSplit, running_total

MIN_SLIDING_SLOTS = 8  # in a shorter document, the longer sliding slots would lose too much text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """The slots of a split for a given budget. Tokens and slots are numbered through the whole split.

    Attributes:
        split: the split.
        budget: text tokens of a full slot.
        record_start: int64 [records + 1], running total of tokens.
        document_start: int64 [documents + 1], running total of tokens.
        first_slot: int64 [documents + 1], running total of slots.
        source_documents: int64 [sources + 1]; source k has the documents source_documents[k]:source_documents[k + 1].
        slides: True if the slots of long documents slide.
        bounded: True if no slot has more than `budget` tokens, even a sliding slot.
    """

    split: ReadableSplit
    budget: int
    record_start: np.ndarray
    document_start: np.ndarray
    first_slot: np.ndarray
    source_documents: np.ndarray
    slides: bool
    bounded: bool = False

    @property
    def num_slots(self) -> int:
        """The number of slots of the whole split."""
        return int(self.first_slot[-1])


class Slots(NamedTuple):
    """The slots of some examples; all fields are int64 [examples].

    `example_id` is the seed of the example's random bits, unique among all slots of all epochs with this budget.
    `epoch` is the epoch of the example's source. `position` is the position of the slot in its document, from 0.
    `capacity` is the maximum number of text tokens in the example.
    """

    example_id: np.ndarray
    epoch: np.ndarray
    document: np.ndarray
    position: np.ndarray
    capacity: np.ndarray


def make_layout(split: ReadableSplit, budget: int, slides: bool, bounded: bool = False) -> Layout:
    """Return the layout of a split in slots of `budget` tokens."""
    record_start = running_total(split.tokens_per_record)
    document_start = record_start[split.first_record]
    tokens = np.diff(document_start)
    slots = -(-tokens // budget)
    if slides and bounded:
        slots += (slots >= MIN_SLIDING_SLOTS) & (2 * (slots * budget - tokens) < budget)
    first_slot = running_total(slots)
    return Layout(
        split=split,
        budget=budget,
        record_start=record_start,
        document_start=document_start,
        first_slot=first_slot,
        source_documents=split.source_documents,
        slides=slides,
        bounded=bounded,
    )


def make_slots(layout: Layout, seed: int, epoch: np.ndarray, slot: np.ndarray, capacity: np.ndarray) -> Slots:
    """Return `Slots` with the document and the position of each slot number in its epoch; arrays are int64 [examples].

    The last slot number of a document always means the short slot, wherever the short slot lies in the epoch.
    """
    document = np.searchsorted(layout.first_slot, slot, side="right") - 1
    short, _ = _positions_and_shifts_of_short_slots(layout, seed, epoch, document)
    among_full = slot - layout.first_slot[document]
    is_short = slot + 1 == layout.first_slot[document + 1]
    position = np.where(is_short, short, among_full + (among_full >= short))
    return Slots(epoch * layout.num_slots + slot, epoch, document, position, capacity)


def slot_lengths(layout: Layout) -> np.ndarray:
    """Return the number of tokens of each slot, int64 [slots]; if slots do not slide, all epochs have these numbers."""
    tokens = np.diff(layout.document_start)
    lengths = np.full(layout.num_slots, layout.budget, np.int64)
    not_empty = tokens > 0
    slots = np.diff(layout.first_slot)
    lengths[layout.first_slot[1:][not_empty] - 1] = (tokens - (slots - 1) * layout.budget)[not_empty]
    return lengths


class SlotSpans(NamedTuple):
    """The start and the end (exclusive) of each slot, as token numbers of the whole split, int64 [examples]."""

    start: np.ndarray
    stop: np.ndarray


def slot_span(layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, position: np.ndarray) -> SlotSpans:
    """Return the token numbers at which the slot at `position` of each document starts and stops in an epoch."""
    short, shift = _positions_and_shifts_of_short_slots(layout, seed, epoch, document)
    first, stop = layout.document_start[document], layout.document_start[document + 1]
    begin, end = (first + at * layout.budget - np.where(at > short, shift, 0) for at in (position, position + 1))
    is_last = position + 1 == layout.first_slot[document + 1] - layout.first_slot[document]
    return SlotSpans(begin, np.where(is_last, stop, end))


def slot_of_token(layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, token: np.ndarray) -> np.ndarray:
    """Return the position of the slot that holds the given token of each document, int64 [examples]."""
    short, shift = _positions_and_shifts_of_short_slots(layout, seed, epoch, document)
    after = token >= (short + 1) * layout.budget - shift
    last = layout.first_slot[document + 1] - layout.first_slot[document] - 1
    before = np.minimum(token // layout.budget, short)  # the slots up to the short slot; one of these may be long
    return np.minimum(np.where(after, (token + shift) // layout.budget, before), last)


class _ShortSlots(NamedTuple):
    """The position of each document's short slot, and the number of tokens by which it shifts later slots."""

    position: np.ndarray
    shift: np.ndarray


def _positions_and_shifts_of_short_slots(
    layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray
) -> _ShortSlots:
    """Return the position of each document's short slot, and the number of tokens by which it shifts later slots."""
    slots = layout.first_slot[document + 1] - layout.first_slot[document]
    slack = slots * layout.budget - (layout.document_start[document + 1] - layout.document_start[document])
    bits = random_bits(seed, Stream.OFFSET, epoch, document)
    short = uniform_integers(bits, slots)
    if not layout.slides:
        return _ShortSlots(short, slack)
    if layout.bounded:
        lowest, highest = np.maximum(0, slack - layout.budget + 1), np.minimum(slack, layout.budget - 1)
    else:
        stretch = (layout.budget - 1 - slack) // 2
        lowest, highest = -stretch, slack + stretch
    offset = lowest + uniform_integers(bits, highest - lowest + 1)
    few = slots < MIN_SLIDING_SLOTS
    return _ShortSlots(np.where(few, short, 0), np.where(few, slack, offset))
