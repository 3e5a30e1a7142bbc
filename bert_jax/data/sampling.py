"""Row number -> sentence pair: a pure function of (content of the split, seed, length, row number).

The pairs follow google-research/bert, create_pretraining_data.py: whole sentences are gathered until a target is
reached, parted in two between sentences, and half of the second parts are replaced by text of another document. The
original walks through each document in order; here row r must be found without making the rows before it, so:

- A document of D tokens has ceil(D / budget) slots, `budget` being a row's length less [CLS], [SEP] and [SEP]. Slot m
  covers its tokens [m * budget - a, (m + 1) * budget - a), where the offset a differs every epoch, and the first and
  the last slot cover what is left at either end. So each token is in one slot an epoch, and slots begin everywhere.
- A row is a slot; each epoch is a pseudo-random permutation of all slots.
- A window is gathered from the first sentence that begins in the slot (or, where none does, the one it lies in) until
  the target is reached. Where a sentence extends more than `budget // 2` tokens beyond that, it is cut there, lest the
  middle of long sentences were all that ever remained after truncation.
- The original keeps the unused sentences of a random pair for the next row. Here a fair coin has the first part of a
  random pair gathered backward from the end of its slot, in mirror image, and the second part likewise.
- A random second part comes from the document's every slot but those of the row's own document, with a probability
  proportional to the slot's tokens and a constant (see `make_layout`).
"""

from typing import NamedTuple, Protocol

import numpy as np

from bert_jax.data.hashing import Stream, integers, permute, random_bits, uniform
from bert_jax.errors import UserError

SPECIAL_TOKENS_A_ROW = 3  # [CLS], [SEP], [SEP]
MIN_LENGTH = SPECIAL_TOKENS_A_ROW + 2


class Split(Protocol):
    """What the sampler needs of `corpus.Split`."""

    tokens_per_record: np.ndarray
    first_record: np.ndarray

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Flat tokens, flat sentence lengths and sentences per record of the records asked for, in order."""


class Layout(NamedTuple):
    """What is computed once for a split and a length. Tokens are numbered through the whole split.

    `record_start` int64 [records + 1], `document_start`, `first_slot` and `weight_start` int64 [documents + 1] are
    running totals of tokens, tokens, slots and the weights of documents as random second parts.
    """

    split: Split
    budget: int
    record_start: np.ndarray
    document_start: np.ndarray
    first_slot: np.ndarray
    weight_start: np.ndarray
    slot_weight: int

    @property
    def slots(self) -> int:
        """Rows in an epoch."""
        return int(self.first_slot[-1])


class Pairs(NamedTuple):
    """Sentence pairs of `rows` rows: where the parts lie in what was read for them.

    `tokens` and `other_tokens` uint16 or uint32 [any]: the latter holds the second parts that are random, the former
    all other parts; `starts` and `lengths` int64 [rows, 2] of the first and second part; `is_random` bool [rows].
    """

    tokens: np.ndarray
    other_tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    is_random: np.ndarray


class _Windows(NamedTuple):
    """Whole sentences read for some rows: `begin` and `end` int64 [rows] in the flat `tokens`, and the places
    `bounds` int64 [sentences + 1] where a sentence begins or ends; those inside a window are
    bounds[first_inner:first_inner + inner]."""

    tokens: np.ndarray
    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    first_inner: np.ndarray
    inner: np.ndarray


def make_layout(split: Split, length: int) -> Layout:
    """The layout of rows of `length` tokens over a split.

    Raises:
        UserError: fewer than two documents, or a length that has no room for a pair.
    """
    if length < MIN_LENGTH:
        raise UserError(f"length {length}: a row needs at least {MIN_LENGTH} tokens ([CLS] a [SEP] b [SEP])")
    budget = length - SPECIAL_TOKENS_A_ROW
    record_start = _running_total(split.tokens_per_record)
    document_start = record_start[split.first_record]
    tokens = np.diff(document_start)
    if np.count_nonzero(tokens) < 2:
        raise UserError(
            "next-sentence prediction needs two documents, and this split has fewer; "
            "run `prepare` with `--documents blank-line` or `--documents line`, or on more files"
        )
    slots = -(-tokens // budget)
    # Every token is a first or an in-order second part equally often, except that short documents of several
    # sentences lose half of a random pair's window as long ones do, and documents of one sentence lose nothing. How
    # often a slot must be a random second part to make up for it depends on how full the slots are: this constant
    # levels full slots with nearly empty ones (tests/data/test_sampling.py measures how well).
    total_slots, total_tokens = int(slots.sum()), int(tokens.sum())
    slot_weight = max(1, budget * budget * total_slots // total_tokens - 3 * budget // 4)
    weight_start = _running_total(tokens + slots * slot_weight)
    return Layout(split, budget, record_start, document_start, _running_total(slots), weight_start, slot_weight)


def sample_pairs(layout: Layout, seed: int, rows: np.ndarray, short_probability: float) -> Pairs:
    """The sentence pairs of the given rows.

    Args:
        layout: of a split and a length.
        seed: of the run.
        rows: int64 [rows], not negative; rows [e * slots, (e + 1) * slots) are epoch e.
        short_probability: share of rows whose target is uniform in [2, budget] instead of budget.
    """
    budget = layout.budget
    streams = np.arange(len(Stream))[:, None]
    bits = random_bits(seed, streams, rows)
    epoch, place = np.divmod(rows, layout.slots)
    slot = permute(place, layout.slots, random_bits(seed, Stream.ORDER, epoch))
    document = np.searchsorted(layout.first_slot, slot, side="right") - 1
    short = uniform(bits[Stream.SHORT]) < short_probability
    target = np.where(short, 2 + integers(bits[Stream.TARGET], budget - 1), budget)
    wants_random = _coin(bits[Stream.RANDOM_NEXT])
    backward = wants_random & _coin(bits[Stream.SIDE])

    windows = _read_windows(layout, seed, epoch, document, slot - layout.first_slot[document], target, backward)
    begin, end, inner = windows.begin, windows.end, windows.inner
    is_random = wants_random | (inner == 0)
    cut = windows.bounds[windows.first_inner + integers(bits[Stream.CUT], np.maximum(inner, 1))]
    first_begin = np.where((inner > 0) & backward, cut, begin)
    first_end = np.where((inner == 0) | backward, end, cut)

    # Second parts: what follows in the window, or a window in another document, read after the others.
    random = np.flatnonzero(is_random)
    other = _other_slot(layout, seed, epoch[random], document[random], bits[Stream.OTHER, random])
    wanted = np.maximum(1, target[random] - (first_end - first_begin)[random])
    others = _read_windows(layout, seed, epoch[random], *other, wanted, _coin(bits[Stream.OTHER_SIDE, random]))
    second_begin, second_end = first_end.copy(), end.copy()
    second_begin[random], second_end[random] = others.begin, others.end

    first, second = first_end - first_begin, second_end - second_begin
    first_left, second_left = truncated(first, second, budget)
    first_begin += _heads(random_bits(seed, Stream.TRUNCATE_FIRST, rows), first - first_left)
    second_begin += _heads(random_bits(seed, Stream.TRUNCATE_SECOND, rows), second - second_left)
    return Pairs(
        windows.tokens,
        others.tokens,
        np.stack([first_begin, second_begin], axis=1),
        np.stack([first_left, second_left], axis=1),
        is_random,
    )


def truncated(first: np.ndarray, second: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of two parts after tokens were taken, one by one, from the longer (the second, if they are equal)
    until `budget` are left; int64 [rows] each."""
    second_left = np.minimum(second, np.maximum(budget - first, budget // 2))
    return np.minimum(first, budget - second_left), second_left


def slot_span(
    layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, slot: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [start, stop) of slot `slot` of a document in an epoch; int64 [rows] all."""
    offset = _offset(layout, seed, epoch, document)
    first, last = layout.document_start[document], layout.document_start[document + 1]
    is_last = slot + 1 == layout.first_slot[document + 1] - layout.first_slot[document]
    start = first + slot * layout.budget - offset
    return np.where(slot == 0, first, start), np.where(is_last, last, start + layout.budget)


def _offset(layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray) -> np.ndarray:
    """Uniform over a whole budget, so that every place is a boundary equally often; the first and the last slot come
    out between 1 and 3/2 budget long, and equally distributed."""
    slots = layout.first_slot[document + 1] - layout.first_slot[document]
    slack = slots * layout.budget - (layout.document_start[document + 1] - layout.document_start[document])
    stretch = (layout.budget - 1 - slack) // 2
    return integers(random_bits(seed, Stream.OFFSET, epoch, document), slack + 2 * stretch + 1) - stretch


def _other_slot(
    layout: Layout, seed: int, epoch: np.ndarray, document: np.ndarray, bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A random document other than `document`, and a slot of it; exact, without a second try."""
    weight_start = layout.weight_start
    own = weight_start[document + 1] - weight_start[document]
    draw = integers(bits, weight_start[-1] - own)
    draw += np.where(draw >= weight_start[document], own, 0)
    other = np.searchsorted(weight_start, draw, side="right") - 1
    draw -= weight_start[other]
    tokens = layout.document_start[other + 1] - layout.document_start[other]
    last = layout.first_slot[other + 1] - layout.first_slot[other] - 1
    of_token = np.clip((draw + _offset(layout, seed, epoch, other)) // layout.budget, 0, last)
    return other, np.where(draw < tokens, of_token, (draw - tokens) // layout.slot_weight)


def _read_windows(
    layout: Layout,
    seed: int,
    epoch: np.ndarray,
    document: np.ndarray,
    slot: np.ndarray,
    wanted: np.ndarray,
    backward: np.ndarray,
) -> _Windows:
    """Whole sentences of slots, until `wanted` tokens (or the slot's, if fewer), from the beginning or `backward`."""
    reach = layout.budget // 2
    start, stop = slot_span(layout, seed, epoch, document, slot)
    document_start, document_stop = layout.document_start[document], layout.document_start[document + 1]
    wanted = np.minimum(wanted, stop - start)  # a slot may also be longer than any row

    # A record holds whole sentences, and no window begins further than `reach` inside its slot.
    low = np.where(backward, np.maximum(stop - reach - wanted, document_start), start)
    high = np.where(backward, stop, np.minimum(start + reach + wanted, document_stop))
    first = np.searchsorted(layout.record_start, low, side="right") - 1
    last = np.searchsorted(layout.record_start, high, side="left")
    count = last - first
    request = np.cumsum(count) - count
    records = np.repeat(first - request, count) + np.arange(count.sum())
    tokens, sentence_lengths, _ = layout.split.read(records)
    shift = _running_total(layout.split.tokens_per_record[records])[request] - layout.record_start[first]

    bounds = _running_total(sentence_lengths)
    start, stop, document_start, document_stop = (
        place + shift for place in (start, stop, document_start, document_stop)
    )
    begin, end = _gather(bounds, start, stop, document_stop, wanted, reach)
    mirrored_begin, mirrored_end = _gather(-bounds[::-1], -stop, -start, -document_start, wanted, reach)
    begin, end = np.where(backward, -mirrored_end, begin), np.where(backward, -mirrored_begin, end)
    first_inner = np.searchsorted(bounds, begin, side="right")
    inner = np.searchsorted(bounds, end, side="left") - first_inner
    return _Windows(tokens, bounds, begin, end, first_inner, inner)


def _gather(
    bounds: np.ndarray, start: np.ndarray, stop: np.ndarray, limit: np.ndarray, wanted: np.ndarray, reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of `wanted` tokens in whole sentences from slot [start, stop) on; the document ends at `limit`."""
    # In the direction that is not asked for, the bounds may not have been read; any place will do there.
    bound = np.minimum(np.searchsorted(bounds, start, side="left"), len(bounds) - 1)
    inside = bounds[bound] < np.minimum(stop, start + reach + 1)
    begin = np.where(inside, bounds[bound], np.maximum(bounds[bound - 1], start - reach))
    full = np.minimum(begin + wanted, limit)
    bound = np.minimum(np.searchsorted(bounds, full, side="left"), len(bounds) - 1)
    return begin, np.minimum(bounds[bound], full + reach)


def _heads(seeds: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Heads in `tosses` int64 [rows] tosses of a fair coin, the bits of which follow from `seeds` uint64 [rows]."""
    words = np.arange(-(-int(tosses.max(initial=0)) // 64))
    used = np.clip(tosses[:, None] - 64 * words, 0, 64).astype(np.uint64)
    # Shifting by 64 is undefined, so a full word is shifted by 0 and an unused one is masked out.
    kept = np.where(used > 0, random_bits(seeds[:, None], words) >> (np.uint64(64) - used) % np.uint64(64), 0)
    return np.bitwise_count(kept).sum(axis=1, dtype=np.int64)


def _coin(bits: np.ndarray) -> np.ndarray:
    return bits >> np.uint64(63) == 1


def _running_total(counts: np.ndarray) -> np.ndarray:
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total
