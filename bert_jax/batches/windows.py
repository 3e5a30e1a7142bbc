"""Slots -> windows: the range of text of each example, and the bounds of its sentences."""

import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.batches.layout import Layout, Slots, slot_span
from bert_jax.corpus.store import running_total


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of examples; a window is a range of text.

    Attributes:
        tokens: flat tokens, uint16 or uint32 [tokens].
        bounds: beginnings and ends of sentences in `tokens`, int64 [sentences + 1].
        begin, end: the window in `tokens`, int64 [examples].
        first_inner, num_inner: int64 [examples]; the bounds inside a window are
            bounds[first_inner:first_inner + num_inner].
        slot_tokens: number of tokens of each slot, int64 [examples].
    """

    tokens: np.ndarray
    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    first_inner: np.ndarray
    num_inner: np.ndarray
    slot_tokens: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Spans:
    """Flat `tokens`, and the positions in `tokens` where slots and documents start and stop, int64 [examples]."""

    tokens: np.ndarray
    bounds: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    document_start: np.ndarray
    document_stop: np.ndarray


def gather_windows(
    layout: Layout,
    seed: int,
    epoch: np.ndarray,
    document: np.ndarray,
    position: np.ndarray,
    wanted: np.ndarray,
    backward: np.ndarray,
    at_most: np.ndarray | int = 0,
) -> Windows:
    """Return windows of whole sentences with at least `wanted` tokens, or with all tokens of a shorter slot.

    Where `at_most` is above 0, the window instead has the whole sentences whose length is nearest to `wanted`. The
    length is at most `at_most`, except for a window of a single sentence. `at_most` must be at least `wanted`.

    A window begins with the first sentence that begins in the slot. If no sentence begins in the slot, the window
    begins with the sentence that contains the slot. A sentence that extends more than half a budget beyond the wanted
    tokens is cut half a budget beyond these tokens; without this cut, truncation would leave only the middle of long
    sentences. Where `backward` is True, the window is gathered from the end of the slot, in the reverse direction.

    The arrays are int64 [examples], and `backward` is bool [examples]. `position`, `document` and `epoch` identify a
    slot.
    """
    reach = layout.budget // 2
    start, stop = slot_span(layout, seed, epoch, document, position)
    wanted = np.minimum(wanted, stop - start)
    # A window begins at most `reach` tokens after the beginning of its slot.
    low = np.where(backward, stop - reach - wanted, start)
    high = np.where(backward, stop, start + reach + wanted)
    spans = _read_spans(layout, document, start, stop, low, high)
    bounds = spans.bounds
    begin, end = _bounds_of_whole_sentences(
        bounds, spans.start, spans.stop, spans.document_stop, wanted, reach, at_most
    )
    mirrored = _bounds_of_whole_sentences(
        -bounds[::-1], -spans.stop, -spans.start, -spans.document_start, wanted, reach, at_most
    )
    begin, end = np.where(backward, -mirrored[1], begin), np.where(backward, -mirrored[0], end)
    return _make_windows(spans, begin, end)


def sentence_windows(layout: Layout, seed: int, slots: Slots) -> Windows:
    """Return windows of the whole sentences that fit in the capacity, from the first sentence that begins in the slot.

    A sentence that is longer than the capacity is cut. If no sentence begins in the slot, the window begins with the
    slot, inside a sentence.
    """
    start, stop = slot_span(layout, seed, slots.epoch, slots.document, slots.position)
    spans = _read_spans(layout, slots.document, start, stop, start, stop + slots.capacity)
    bounds = spans.bounds
    first = bounds[np.minimum(np.searchsorted(bounds, spans.start, side="left"), len(bounds) - 1)]
    begin = np.where(first < spans.stop, first, spans.start)
    full = np.minimum(begin + slots.capacity, spans.document_stop)
    last = bounds[np.searchsorted(bounds, full, side="right") - 1]
    return _make_windows(spans, begin, np.where(last > begin, last, full))


def slot_windows(layout: Layout, seed: int, slots: Slots) -> Windows:
    """Return the slots themselves as windows; such windows may cut sentences."""
    start, stop = slot_span(layout, seed, slots.epoch, slots.document, slots.position)
    spans = _read_spans(layout, slots.document, start, stop, start, stop)
    return _make_windows(spans, spans.start, spans.stop)


def _read_spans(
    layout: Layout, document: np.ndarray, start: np.ndarray, stop: np.ndarray, low: np.ndarray, high: np.ndarray
) -> _Spans:
    """Read the records that contain the tokens [low, high) of each document; a record has whole sentences."""
    document_start, document_stop = layout.document_start[document], layout.document_start[document + 1]
    low, high = np.maximum(low, document_start), np.minimum(high, document_stop)
    first = np.searchsorted(layout.record_start, low, side="right") - 1
    last = np.searchsorted(layout.record_start, high, side="left")
    count = last - first
    request = np.cumsum(count) - count
    records = np.repeat(first - request, count) + np.arange(count.sum())
    tokens, sentence_lengths, _ = layout.split.read(records)
    shift = running_total(layout.split.tokens_per_record[records])[request] - layout.record_start[first]
    return _Spans(
        tokens=tokens,
        bounds=running_total(sentence_lengths),
        start=start + shift,
        stop=stop + shift,
        document_start=document_start + shift,
        document_stop=document_stop + shift,
    )


class _TokenBounds(NamedTuple):
    """The start and the end (exclusive) of each window, int64 [examples]."""

    begin: np.ndarray
    end: np.ndarray


def _bounds_of_whole_sentences(
    bounds: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    limit: np.ndarray,
    wanted: np.ndarray,
    reach: int,
    at_most: np.ndarray | int,
) -> _TokenBounds:
    """Return the start and the end of a range of whole sentences with about `wanted` tokens (see `gather_windows`).

    The range starts with a sentence that begins in the slot [start, stop), and ends at `limit` at the latest.
    """
    # `gather_windows` ignores the result of one direction, for which the bounds may be missing.
    bound = np.minimum(np.searchsorted(bounds, start, side="left"), len(bounds) - 1)
    inside = bounds[bound] < np.minimum(stop, start + reach + 1)
    begin = np.where(inside, bounds[bound], np.maximum(bounds[bound - 1], start - reach))
    full = np.minimum(begin + wanted, limit)
    bound = np.minimum(np.searchsorted(bounds, full, side="left"), len(bounds) - 1)
    end, shorter = bounds[bound], bounds[bound - 1]
    is_shorter_better = (end - full > full - shorter) | (end - begin > at_most)
    end = np.where((at_most > 0) & is_shorter_better & (shorter > begin), shorter, end)
    return _TokenBounds(begin, np.minimum(end, full + reach))


def _make_windows(spans: _Spans, begin: np.ndarray, end: np.ndarray) -> Windows:
    """Return the windows [begin, end) of tokens, with the sentence bounds inside each window."""
    first_inner = np.searchsorted(spans.bounds, begin, side="right")
    return Windows(
        tokens=spans.tokens,
        bounds=spans.bounds,
        begin=begin,
        end=end,
        first_inner=first_inner,
        num_inner=np.searchsorted(spans.bounds, end, side="left") - first_inner,
        slot_tokens=spans.stop - spans.start,
    )
