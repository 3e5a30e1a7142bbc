"""Slots -> the texts of examples, one rule a pairing: pure functions of (content of the split, seed, epoch, slot).

next_sentence       Two parts; half of the second ones come from another document (Devlin et al. 2019). After
                    google-research/bert, create_pretraining_data.py: whole sentences are gathered until a target is
                    reached and parted in two between sentences; the random second parts replace half of the others.
                    The original keeps the unused sentences of a random pair for the next row. Here a fair coin has
                    the first part of a random pair gathered backward from the end of its slot, in mirror image, and
                    the second part likewise. Where a window is one sentence, the pair is always a random one.
sentence_order      Two parts of one window; half of them change places (Lan et al. 2020, ALBERT). Where a window is one
                    sentence, it is parted inside.
full_sentences      One part: whole sentences of documents in their order, a separator after each document (Liu et al.
                    2019, RoBERTa's FULL-SENTENCES).
document_sentences  One part: whole sentences, of one document (RoBERTa's DOC-SENTENCES).
none                One part: the slot as it is, for text that has no sentences.

A random second part comes from every document of the same source but the row's own, and from its every slot, with a
probability proportional to the slot's tokens and a constant (see `other_weights`). It has as many tokens as the row's
own slot has left: where it filled the row, as in the original, its length would tell the label of short documents.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.hashing import Stream, integers, random_bits, uniform
from bert_jax.data.sequences.layout import Layout, Slots, Split, make_layout, place_of, running_total
from bert_jax.data.sequences.windows import Windows, gathered_windows, sentence_windows, slot_windows


class Examples(NamedTuple):
    """Texts of some examples: where their parts lie in `tokens`.

    `tokens` uint16 or uint32 [any]; `starts` and `lengths` int64 [examples, parts]; `labels` int64 [examples], of the
    pairs, 1 where the second part is a random one or comes before the first; else 0.
    """

    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray


class Sampler(NamedTuple):
    """A pairing over a split: `sample(seed, slots)` gives the `Examples` of slots of `layout`."""

    layout: Layout
    sample: Callable[[int, Slots], Examples]


class Pairing(NamedTuple):
    """A rule: how many texts an example has, how many documents it draws from at least, whether documents run together
    and slots may slide, and its sampler."""

    parts: int
    documents: int
    stream: bool
    slides: bool
    sampler: Callable[[Layout, float], Sampler]


def make_sampler(
    split: Split, pairing: str, budget: int, separator: int, short_seq_probability: float, packed: bool
) -> Sampler:
    """The sampler of a row of `SENTENCE_PAIRS`.

    Args:
        split: `corpus.Split`.
        pairing: its name.
        budget: tokens of text in a row.
        separator: id that stands after each document where they run together.
        short_seq_probability: share of pairs whose target is uniform in [2, room] instead of their room.
        packed: examples share rows, so that there have to be as many slots of each length in every epoch.

    Of a source with fewer documents than the rule draws from no example can be made.
    """
    rule = SENTENCE_PAIRS[pairing]
    text = ConcatenatedDocuments(split, separator) if rule.stream else split
    return rule.sampler(make_layout(text, budget, rule.slides and not packed), short_seq_probability)


class ConcatenatedDocuments:
    """A split as one document a source, with a separator, counted as a part of the last sentence, after each."""

    def __init__(self, split: Split, separator: int):
        self.split, self.separator = split, separator
        self._ends = np.zeros(len(split.tokens_per_record), np.int64)
        self._ends[split.first_record[1:] - 1] = 1
        self.tokens_per_record = split.tokens_per_record + self._ends
        self.sentences_per_record = split.sentences_per_record
        self.first_record = split.first_record[split.source_documents]
        self.source_documents = np.arange(len(split.source_documents))

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `Split.read`."""
        tokens, lengths, sentences = self.split.read(records)
        ends = np.flatnonzero(self._ends[records])
        if not ends.size:
            return tokens, lengths, sentences
        tokens = np.insert(tokens, running_total(self.split.tokens_per_record[records])[1:][ends], self.separator)
        lengths = lengths.copy()
        lengths[np.cumsum(sentences)[ends] - 1] += 1
        return tokens, lengths, sentences


def _next_sentence(layout: Layout, short_seq_probability: float) -> Sampler:
    weights = other_weights(layout)

    def sample(seed: int, slots: Slots) -> Examples:
        bits = _bits(seed, slots)
        target = _target(bits, slots.room, short_seq_probability)
        wants_random = _coin(bits[Stream.RANDOM_NEXT])
        backward = wants_random & _coin(bits[Stream.SIDE])
        windows = _gathered(layout, seed, slots, target, backward)
        begin, end, inner = windows.begin, windows.end, windows.inner
        is_random = wants_random | (inner == 0)
        cut = windows.bounds[windows.first_inner + integers(bits[Stream.CUT], np.maximum(inner, 1))]
        first_begin = np.where((inner > 0) & backward, cut, begin)
        first_end = np.where((inner == 0) | backward, end, cut)

        # Second parts: what follows in the window, or a window in another document, read after the others.
        random = np.flatnonzero(is_random)
        epoch = slots.epoch[random]
        other = _other_slot(layout, weights, seed, epoch, slots.document[random], bits[:, random])
        # No more than the slot would have given, or the lengths of the parts would tell the label.
        wanted = np.maximum(1, (np.minimum(target, windows.slot) - (first_end - first_begin))[random])
        coins = _coin(bits[Stream.OTHER_SIDE, random])
        others = gathered_windows(layout, seed, epoch, *other, wanted, coins)
        second_begin, second_end = first_end.copy(), end.copy()
        second_begin[random], second_end[random] = (place + len(windows.tokens) for place in (others.begin, others.end))
        starts = np.stack([first_begin, second_begin], axis=1)
        sizes = np.stack([first_end - first_begin, second_end - second_begin], axis=1)
        tokens = np.concatenate([windows.tokens, others.tokens])
        return Examples(tokens, *_truncated(seed, slots, starts, sizes), is_random.astype(np.int64))

    return Sampler(layout, sample)


def _sentence_order(layout: Layout, short_seq_probability: float) -> Sampler:
    def sample(seed: int, slots: Slots) -> Examples:
        bits, forward = _bits(seed, slots), np.zeros(len(slots.number), bool)
        windows = _gathered(layout, seed, slots, _target(bits, slots.room, short_seq_probability), forward)
        begin, end, inner = windows.begin, windows.end, windows.inner
        between = windows.bounds[windows.first_inner + integers(bits[Stream.CUT], np.maximum(inner, 1))]
        inside = begin + np.minimum(1 + integers(bits[Stream.CUT], np.maximum(end - begin - 1, 1)), end - begin)
        cut = np.where(inner > 0, between, inside)
        starts = np.stack([begin, cut], axis=1)
        starts, sizes = _truncated(seed, slots, starts, np.stack([cut - begin, end - cut], axis=1))
        # A window of one token has no second part, and so no order.
        swapped = _coin(bits[Stream.SWAP]) & (end - begin > 1)
        starts[swapped], sizes[swapped] = starts[swapped, ::-1], sizes[swapped, ::-1]
        return Examples(windows.tokens, starts, sizes, swapped.astype(np.int64))

    return Sampler(layout, sample)


def _sentences(layout: Layout, short_seq_probability: float) -> Sampler:
    del short_seq_probability  # of pairs

    def sample(seed: int, slots: Slots) -> Examples:
        return _single(sentence_windows(layout, seed, slots.epoch, slots.document, slots.place, slots.room))

    return Sampler(layout, sample)


def _as_it_is(layout: Layout, short_seq_probability: float) -> Sampler:
    del short_seq_probability  # of pairs

    def sample(seed: int, slots: Slots) -> Examples:
        return _single(slot_windows(layout, seed, slots.epoch, slots.document, slots.place))

    return Sampler(layout, sample)


SENTENCE_PAIRS = {
    "next_sentence": Pairing(2, 2, False, True, _next_sentence),
    "sentence_order": Pairing(2, 1, False, True, _sentence_order),
    "full_sentences": Pairing(1, 1, True, True, _sentences),
    "document_sentences": Pairing(1, 1, False, True, _sentences),
    "none": Pairing(1, 1, False, False, _as_it_is),
}


def truncated(first: np.ndarray, second: np.ndarray, room: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of two parts after tokens were taken, one by one, from the longer (the second, if they are equal)
    until `room` are left; int64 [examples] each."""
    second_left = np.minimum(second, np.maximum(room - first, room // 2))
    return np.minimum(first, room - second_left), second_left


class OtherWeights(NamedTuple):
    """What documents weigh as random second parts: `start` int64 [documents + 1], the running total; in a document a
    slot weighs `slot` int64 [sources] and as much as it has tokens."""

    start: np.ndarray
    slot: np.ndarray


def other_weights(layout: Layout) -> OtherWeights:
    """Weights by which all tokens are in rows about equally often (tests/data/test_coverage.py measures it).

    In its own rows a token of several sentences is seen 3/4 times an epoch, since half of the rows are random ones and
    leave half of the slot to another document; that of one sentence is seen once. What the random parts bring, the
    constant a slot spreads a little towards short ones, which cannot give all that is asked of them; and if q of a
    source's tokens are in documents of one sentence, whose rows read one sentence more, each is to be seen 1 + q times.
    """
    slots, tokens = np.diff(layout.first_slot), np.diff(layout.document_start)
    sentences = np.diff(running_total(layout.split.sentences_per_record)[layout.split.first_record])
    sources = len(layout.source_documents) - 1
    source = np.repeat(np.arange(sources), np.diff(layout.source_documents))
    sums = (np.bincount(source, counts, sources) for counts in (slots, tokens, tokens * (sentences == 1)))
    all_slots, all_tokens, alone = (np.maximum(1, each) for each in sums)
    slot = np.maximum(1, all_tokens / all_slots / 4).astype(np.int64)
    q = (alone / all_tokens)[source]
    share = np.where(sentences == 1, q / (q + 1 / 4), 1)
    return OtherWeights(running_total(np.ceil((tokens + slots * slot[source]) * share).astype(np.int64)), slot)


def _other_slot(
    layout: Layout, weights: OtherWeights, seed: int, epoch: np.ndarray, document: np.ndarray, bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A random document of the source other than `document`, and the place of a slot of it; exact, without a retry."""
    source = np.searchsorted(layout.source_documents, document, side="right") - 1
    low, high = (weights.start[layout.source_documents[source + side]] for side in (0, 1))
    own = weights.start[document + 1] - weights.start[document]
    draw = low + integers(bits[Stream.OTHER], high - low - own)
    draw += np.where(draw >= weights.start[document], own, 0)
    other = np.searchsorted(weights.start, draw, side="right") - 1
    tokens = layout.document_start[other + 1] - layout.document_start[other]
    full = tokens + (layout.first_slot[other + 1] - layout.first_slot[other]) * weights.slot[source]
    draw = (draw - weights.start[other]) * full // (weights.start[other + 1] - weights.start[other])
    of_token = place_of(layout, seed, epoch, other, np.minimum(draw, tokens - 1))
    return other, np.where(draw < tokens, of_token, (draw - tokens) // weights.slot[source])


def _gathered(layout: Layout, seed: int, slots: Slots, target: np.ndarray, backward: np.ndarray) -> Windows:
    return gathered_windows(layout, seed, slots.epoch, slots.document, slots.place, target, backward)


def _target(bits: np.ndarray, room: np.ndarray, short_seq_probability: float) -> np.ndarray:
    short = uniform(bits[Stream.SHORT]) < short_seq_probability
    return np.where(short, 2 + integers(bits[Stream.TARGET], room - 1), room)


def _truncated(seed: int, slots: Slots, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parts cut to their room, each token lost at the front or the back by the toss of a coin."""
    left = np.stack(truncated(sizes[:, 0], sizes[:, 1], slots.room), axis=1)
    for part, stream in enumerate((Stream.TRUNCATE_FIRST, Stream.TRUNCATE_SECOND)):
        starts[:, part] += _heads(random_bits(seed, stream, slots.number), (sizes - left)[:, part])
    return starts, left


def _single(windows: Windows) -> Examples:
    starts, lengths = windows.begin[:, None], (windows.end - windows.begin)[:, None]
    return Examples(windows.tokens, starts, lengths, np.zeros(len(starts), np.int64))


def _bits(seed: int, slots: Slots) -> np.ndarray:
    """Random bits of each stream for each example: uint64 [streams, examples]."""
    return random_bits(seed, np.arange(len(Stream))[:, None], slots.number)


def _heads(seeds: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Heads in `tosses` int64 [rows] tosses of a fair coin, the bits of which follow from `seeds` uint64 [rows]."""
    words = np.arange(-(-int(tosses.max(initial=0)) // 64))
    used = np.clip(tosses[:, None] - 64 * words, 0, 64).astype(np.uint64)
    # Shifting by 64 is undefined, so a full word is shifted by 0 and an unused one is masked out.
    kept = np.where(used > 0, random_bits(seeds[:, None], words) >> (np.uint64(64) - used) % np.uint64(64), 0)
    return np.bitwise_count(kept).sum(axis=1, dtype=np.int64)


def _coin(bits: np.ndarray) -> np.ndarray:
    return bits >> np.uint64(63) == 1
