"""Slot -> the text of an example: a text, or a pair of texts with a label.

To add a rule, write a function that makes its sampler, and add a row to SENTENCE_PAIRS, whose keys are the values of
`config.data.sentence_pairs`. A rule depends only on (text of the split, seed, slots).

Next-sentence prediction (Devlin et al. 2019; google-research/bert, create_pretraining_data.py). An example has two
texts, and half of the second texts come from another document. Whole sentences are gathered until a target length is
reached, and are divided into two parts between two sentences. In half of the examples, a random second text replaces
the second part. The original BERT code keeps the unused sentences of a random pair for its next example. In bert_jax, a
fair coin decides whether the first text of a random pair is gathered from the beginning of its slot or, backward, from
the end. Another coin decides the direction of the second text. A window of a single sentence always gives a random
pair. A random second text may come from any slot of any other document of the source, with a probability proportional
to the slot's tokens plus a constant (see `random_document_weights`). A random second text is about as long as the rest
of the example's window. If a random second text filled the sequence, as in the original BERT code, its length would
reveal the label in short documents.

Sentence-order prediction (Lan et al. 2020, ALBERT). An example has the two parts of a window, which are swapped in half
of the examples. A window of a single sentence is split inside the sentence.

Single texts. An example has as many whole sentences as fit (Liu et al. 2019, RoBERTa), or is the slot itself.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits, uniform_floats, uniform_integers
from bert_jax.batches.layout import Layout, Slots, make_layout, slot_of_token
from bert_jax.batches.windows import Windows, gather_windows, sentence_windows, slot_windows
from bert_jax.corpus.store import ReadableSplit, RecordArrays, running_total


class Examples(NamedTuple):
    """The texts of examples, as ranges of `tokens`.

    `tokens` are uint16 or uint32 [any]. `starts` and `lengths` are int64 [examples, texts]. `labels`, int64 [examples],
    are 1 if the second text of a pair is random or precedes the first text, else 0.
    """

    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray


class Sampler(NamedTuple):
    """A rule applied to a split; `sample(seed, slots)` returns the `Examples` made from slots of `layout`."""

    layout: Layout
    sample: Callable[[int, Slots], Examples]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SentencePairRule:
    """A row of SENTENCE_PAIRS.

    Attributes:
        num_texts: texts per example, 1 or 2.
        min_documents: minimum number of documents of a source.
        concatenates: True if an example may continue from a document into the next document.
        slides: True if the slots of long documents may slide.
        make_sampler: (layout, short_seq_probability) -> `Sampler`.
        label_meanings: meanings of the labels 0 and 1 of a pair of texts A and B.
        reads_slots: True if an example is the slot itself, which then has at most `budget` tokens.
    """

    num_texts: int
    min_documents: int
    concatenates: bool
    slides: bool
    make_sampler: Callable[[Layout, float], Sampler]
    label_meanings: tuple[str, str] | None = None
    reads_slots: bool = False

    @property
    def has_pairs(self) -> bool:
        """True if an example is a pair of texts."""
        return self.num_texts == 2


def make_sampler(
    rule: SentencePairRule,
    split: ReadableSplit,
    budget: int,
    separator: int,
    short_seq_probability: float,
    packed: bool,
) -> Sampler:
    """Return the sampler of a rule for a split, whose sources all have at least `rule.min_documents` documents.

    Args:
        rule: row of `SENTENCE_PAIRS`.
        split: `corpus.Split`.
        budget: text tokens of a full slot.
        separator: token id that follows each document if the rule concatenates documents.
        short_seq_probability: probability that the target length of a pair is drawn uniformly from [2, capacity];
        otherwise, the target length is the capacity.
        packed: True if sequences are packed, which needs equal numbers of slots of each length in every epoch.
    """
    text = ConcatenatedDocuments(split, separator) if rule.concatenates else split
    layout = make_layout(text, budget, rule.slides and not packed, rule.reads_slots)
    return rule.make_sampler(layout, short_seq_probability)


class ConcatenatedDocuments:
    """A split in which each source is one document: the documents of the source, each followed by a separator.

    A separator counts as a token of the last sentence of its document.
    """

    def __init__(self, split: ReadableSplit, separator: int):
        self.split, self.separator = split, separator
        self._separators = np.zeros(len(split.tokens_per_record), np.int64)
        self._separators[split.first_record[1:] - 1] = 1
        self.tokens_per_record = split.tokens_per_record + self._separators
        self.sentences_per_record = split.sentences_per_record
        self.first_record = split.first_record[split.source_documents]
        self.source_documents = np.arange(len(split.source_documents))

    def read(self, record_indices: np.ndarray) -> RecordArrays:
        """Return the given records with a separator after each document; see `Split.read`."""
        tokens, lengths, sentences = self.split.read(record_indices)
        ends = np.flatnonzero(self._separators[record_indices])
        if not ends.size:
            return RecordArrays(tokens, lengths, sentences)
        token_ends = running_total(self.split.tokens_per_record[record_indices])[1:]
        tokens = np.insert(tokens, token_ends[ends], self.separator)
        lengths = lengths.copy()
        lengths[np.cumsum(sentences)[ends] - 1] += 1
        return RecordArrays(tokens, lengths, sentences)


def random_bits_by_stream(seed: int, slots: Slots) -> np.ndarray:
    """Return the random bits of each stream and example, uint64 [streams, examples]."""
    return random_bits(seed, np.arange(len(Stream))[:, None], slots.example_id)


def target_lengths(bits: np.ndarray, capacity: np.ndarray, short_seq_probability: float) -> np.ndarray:
    """Return the target number of text tokens of each pair: the capacity, or a random number in [2, capacity]."""
    short = uniform_floats(bits[Stream.SHORT]) < short_seq_probability
    return np.where(short, 2 + uniform_integers(bits[Stream.TARGET], capacity - 1), capacity)


class TruncatedPairs(NamedTuple):
    """The first token and the length of each text of a pair, int64 [examples, 2]."""

    starts: np.ndarray
    lengths: np.ndarray


def truncate_pairs(seed: int, slots: Slots, starts: np.ndarray, lengths: np.ndarray) -> TruncatedPairs:
    """Return starts and lengths of pairs of texts, truncated to the capacities of their slots, int64 [examples, 2].

    A fair coin decides for each removed token whether it is removed from the front or the back of its text. The array
    `starts` is changed in place.
    """
    new_lengths = np.stack(truncate_pair_lengths(lengths[:, 0], lengths[:, 1], slots.capacity), axis=1)
    for text, stream in enumerate((Stream.TRUNCATE_FIRST, Stream.TRUNCATE_SECOND)):
        starts[:, text] += _num_heads_in_tosses(
            random_bits(seed, stream, slots.example_id), (lengths - new_lengths)[:, text]
        )
    return TruncatedPairs(starts, new_lengths)


class PairLengths(NamedTuple):
    """The lengths of the first and of the second texts, int64 [examples]."""

    first: np.ndarray
    second: np.ndarray


def truncate_pair_lengths(first: np.ndarray, second: np.ndarray, capacity: np.ndarray) -> PairLengths:
    """Truncate pairs to `capacity` tokens per pair; return the lengths of first and second texts, int64 [examples].

    Tokens are removed one by one from the longer text, or from the second text if both are equally long.
    """
    second_length = np.minimum(second, np.maximum(capacity - first, capacity // 2))
    return PairLengths(np.minimum(first, capacity - second_length), second_length)


def coin_tosses(bits: np.ndarray) -> np.ndarray:
    """Return tosses of a fair coin as bool, from uint64 random bits."""
    return bits >> np.uint64(63) == 1


def _num_heads_in_tosses(seeds: np.ndarray, tosses: np.ndarray) -> np.ndarray:
    """Return the number of heads in `tosses` (int64 [examples]) of a fair coin, from `seeds` (uint64 [examples])."""
    words = np.arange(-(-int(tosses.max(initial=0)) // 64))
    used = np.clip(tosses[:, None] - 64 * words, 0, 64).astype(np.uint64)
    # A shift by 64 is undefined: a full word is shifted by 0, and an unused word is replaced by 0.
    bits = np.where(used > 0, random_bits(seeds[:, None], words) >> (np.uint64(64) - used) % np.uint64(64), 0)
    return np.bitwise_count(bits).sum(axis=1, dtype=np.int64)


class DocumentWeights(NamedTuple):
    """Sampling weights of documents for random second texts.

    `start`, int64 [documents + 1], is the running total of the weights of documents. Within a document, the weight of a
    slot is the number of its tokens plus `slot[k]`, where k is the source; `slot` is int64 [sources].
    """

    start: np.ndarray
    slot: np.ndarray


def next_sentence_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of next-sentence prediction: pairs of consecutive or random texts."""
    return Sampler(
        layout, functools.partial(_sample_next_sentence, layout, random_document_weights(layout), short_seq_probability)
    )


def _sample_next_sentence(
    layout: Layout, weights: DocumentWeights, short_seq_probability: float, seed: int, slots: Slots
) -> Examples:
    """Return a pair of texts for each slot: two texts of a window, or a text and a random text of another document."""
    bits = random_bits_by_stream(seed, slots)
    target = target_lengths(bits, slots.capacity, short_seq_probability)
    wants_random = coin_tosses(bits[Stream.RANDOM_NEXT])
    backward = wants_random & coin_tosses(bits[Stream.SIDE])
    windows = gather_windows(layout, seed, slots.epoch, slots.document, slots.position, target, backward)
    begin, end, inner = windows.begin, windows.end, windows.num_inner
    is_random = wants_random | (inner == 0)
    cut = windows.bounds[windows.first_inner + uniform_integers(bits[Stream.CUT], np.maximum(inner, 1))]
    first_begin = np.where((inner > 0) & backward, cut, begin)
    first_end = np.where((inner == 0) | backward, end, cut)

    # Second texts: the rest of the window, or a window in another document, appended to the tokens.
    random = np.flatnonzero(is_random)
    epoch = slots.epoch[random]
    second_slot = _random_slots_of_other_documents(
        layout, weights, seed, epoch, slots.document[random], bits[:, random]
    )
    # A second text has at most the tokens that remain in the slot; otherwise, the lengths would reveal the label. If
    # the slot is a whole document that is shorter than the target, a true pair ends with a sentence, and so does the
    # random second text.
    first_length = first_end - first_begin
    rest = np.minimum(target, windows.slot_tokens) - first_length
    is_short_document = np.diff(layout.first_slot)[slots.document] == 1
    at_most = np.where(is_short_document & (end - begin <= target), slots.capacity - first_length, 0)
    backward = coin_tosses(bits[Stream.OTHER_SIDE, random])
    second = gather_windows(layout, seed, epoch, *second_slot, np.maximum(1, rest[random]), backward, at_most[random])
    second_begin, second_end = first_end.copy(), end.copy()
    second_begin[random] = second.begin + len(windows.tokens)
    second_end[random] = second.end + len(windows.tokens)
    starts = np.stack([first_begin, second_begin], axis=1)
    lengths = np.stack([first_end - first_begin, second_end - second_begin], axis=1)
    tokens = np.concatenate([windows.tokens, second.tokens])
    return Examples(tokens, *truncate_pairs(seed, slots, starts, lengths), is_random.astype(np.int64))


def random_document_weights(layout: Layout) -> DocumentWeights:
    """Return weights with which all tokens are read about equally often (tests/batches/test_coverage.py measures this).

    A token of a document with several sentences is read 3/4 times per epoch on average by the examples of its document:
    half of these examples are random pairs, which leave half of their slot unread. A token of a document with a single
    sentence is read once per epoch by the examples of its document. Random second texts must add the missing 1/4 in
    documents of several sentences. The constant for each slot compensates for short slots, which give a random second
    text fewer tokens than wanted. Each example from a document with a single sentence also reads a second document. If
    a fraction q of a source's tokens is in documents with a single sentence, the goal is therefore to read each token
    of the source 1 + q times.
    """
    slots, tokens = np.diff(layout.first_slot), np.diff(layout.document_start)
    sentences = np.diff(running_total(layout.split.sentences_per_record)[layout.split.first_record])
    sources = len(layout.source_documents) - 1
    source = np.repeat(np.arange(sources), np.diff(layout.source_documents))
    sums = (np.bincount(source, counts, sources) for counts in (slots, tokens, tokens * (sentences == 1)))
    all_slots, all_tokens, alone = (np.maximum(1, total) for total in sums)
    slot = np.maximum(1, all_tokens / all_slots / 4).astype(np.int64)
    q = (alone / all_tokens)[source]
    factor = np.where(sentences == 1, q / (q + 1 / 4), 1)
    return DocumentWeights(running_total(np.ceil((tokens + slots * slot[source]) * factor).astype(np.int64)), slot)


class _DocumentSlots(NamedTuple):
    """A document for each example, and the position of a slot in this document; int64 [examples]."""

    document: np.ndarray
    position: np.ndarray


def _random_slots_of_other_documents(
    layout: Layout, weights: DocumentWeights, seed: int, epoch: np.ndarray, document: np.ndarray, bits: np.ndarray
) -> _DocumentSlots:
    """Draw a random slot of a random other document of the source; return the document and the slot's position."""
    source = np.searchsorted(layout.source_documents, document, side="right") - 1
    low, high = (weights.start[layout.source_documents[source + side]] for side in (0, 1))
    excluded = weights.start[document + 1] - weights.start[document]
    draw = low + uniform_integers(bits[Stream.OTHER], high - low - excluded)
    draw += np.where(draw >= weights.start[document], excluded, 0)
    chosen = np.searchsorted(weights.start, draw, side="right") - 1
    tokens = layout.document_start[chosen + 1] - layout.document_start[chosen]
    full = tokens + (layout.first_slot[chosen + 1] - layout.first_slot[chosen]) * weights.slot[source]
    draw = (draw - weights.start[chosen]) * full // (weights.start[chosen + 1] - weights.start[chosen])
    of_token = slot_of_token(layout, seed, epoch, chosen, np.minimum(draw, tokens - 1))
    return _DocumentSlots(chosen, np.where(draw < tokens, of_token, (draw - tokens) // weights.slot[source]))


def sentence_order_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of sentence-order prediction: pairs of consecutive texts in either order."""
    return Sampler(layout, functools.partial(_sample_sentence_order, layout, short_seq_probability))


def _sample_sentence_order(layout: Layout, short_seq_probability: float, seed: int, slots: Slots) -> Examples:
    """Return a pair of texts for each slot: the two parts of a window, in order or swapped."""
    bits, forward = random_bits_by_stream(seed, slots), np.zeros(len(slots.example_id), bool)
    target = target_lengths(bits, slots.capacity, short_seq_probability)
    windows = gather_windows(layout, seed, slots.epoch, slots.document, slots.position, target, forward)
    begin, end, inner = windows.begin, windows.end, windows.num_inner
    between = windows.bounds[windows.first_inner + uniform_integers(bits[Stream.CUT], np.maximum(inner, 1))]
    inside = begin + np.minimum(1 + uniform_integers(bits[Stream.CUT], np.maximum(end - begin - 1, 1)), end - begin)
    cut = np.where(inner > 0, between, inside)
    starts, lengths = np.stack([begin, cut], axis=1), np.stack([cut - begin, end - cut], axis=1)
    # A window of one token has no second text and no order.
    swapped = coin_tosses(bits[Stream.SWAP]) & (end - begin > 1)
    starts[swapped], lengths[swapped] = starts[swapped, ::-1], lengths[swapped, ::-1]
    # As in ALBERT, truncation follows the swap, because truncation removes a token from the second of two equally long
    # texts.
    return Examples(windows.tokens, *truncate_pairs(seed, slots, starts, lengths), swapped.astype(np.int64))


def whole_sentence_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of whole sentences, without pairs; `short_seq_probability` is not used."""
    return Sampler(layout, functools.partial(_sample_single_text, layout, sentence_windows))


def slot_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler whose examples are the slots, unchanged; `short_seq_probability` is not used."""
    return Sampler(layout, functools.partial(_sample_single_text, layout, slot_windows))


def _sample_single_text(
    layout: Layout, windows_of: Callable[[Layout, int, Slots], Windows], seed: int, slots: Slots
) -> Examples:
    """Return the texts of the windows of slots, a text for each example."""
    windows = windows_of(layout, seed, slots)
    starts, lengths = windows.begin[:, None], (windows.end - windows.begin)[:, None]
    return Examples(windows.tokens, starts, lengths, np.zeros(len(starts), np.int64))


SENTENCE_PAIRS: dict[str, SentencePairRule] = {
    # Devlin et al. 2019
    "next_sentence": SentencePairRule(
        num_texts=2,
        min_documents=2,
        concatenates=False,
        slides=True,
        make_sampler=next_sentence_sampler,
        label_meanings=("B follows A in the same document", "B comes from another document"),
    ),
    # Lan et al. 2020, ALBERT
    "sentence_order": SentencePairRule(
        num_texts=2,
        min_documents=1,
        concatenates=False,
        slides=True,
        make_sampler=sentence_order_sampler,
        label_meanings=("A and B are in their order", "A and B are swapped"),
    ),
    # Liu et al. 2019, RoBERTa: FULL-SENTENCES and DOC-SENTENCES
    "full_sentences": SentencePairRule(
        num_texts=1, min_documents=1, concatenates=True, slides=True, make_sampler=whole_sentence_sampler
    ),
    "document_sentences": SentencePairRule(
        num_texts=1, min_documents=1, concatenates=False, slides=True, make_sampler=whole_sentence_sampler
    ),
    # Radford et al. 2019, GPT-2: every token is read, and padding is needed only at the end of a source
    "full_text": SentencePairRule(
        num_texts=1, min_documents=1, concatenates=True, slides=True, make_sampler=slot_sampler, reads_slots=True
    ),
    # For text without sentences
    "none": SentencePairRule(
        num_texts=1, min_documents=1, concatenates=False, slides=False, make_sampler=slot_sampler, reads_slots=True
    ),
}
