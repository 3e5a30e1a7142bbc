"""Next sentence prediction: two texts; half of the second texts come from another document (Devlin et al. 2019).

After google-research/bert, create_pretraining_data.py: whole sentences are gathered until a target length is reached,
and split in two between sentences. Random second texts replace half of the others. The original keeps the unused
sentences of a random pair for its next example. Here a fair coin decides whether the first text of a random pair is
gathered backward from the end of its slot, in mirror image, and likewise for the second text. A window of one sentence
always gives a random pair.

A random second text comes from all documents of the same source except the example's own, and from all of their slots,
with a probability proportional to the slot's tokens plus a constant (see `other_weights`). It has as many tokens as the
example's own slot has left. If it filled the sequence, as in the original, its length would reveal the label of short
documents.
"""

import functools
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.hashing import Stream, integers
from bert_jax.data.sequences.layout import Layout, Slots, running_total, slot_of_token
from bert_jax.data.sequences.sentence_pairs.rule import (
    Examples,
    Sampler,
    coin,
    random_streams,
    target_lengths,
    truncate_pairs,
)
from bert_jax.data.sequences.sentence_pairs.windows import gather_windows


class OtherWeights(NamedTuple):
    """Sampling weights of documents as random second texts.

    `start` int64 [documents + 1]: running total of the weights of documents. Within a document, a slot weighs
    `slot` int64 [sources] plus its tokens.
    """

    start: np.ndarray
    slot: np.ndarray


def make_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of pairs of consecutive or random texts."""
    return Sampler(layout, functools.partial(_sample, layout, other_weights(layout), short_seq_probability))


def _sample(layout: Layout, weights: OtherWeights, short_seq_probability: float, seed: int, slots: Slots) -> Examples:
    bits = random_streams(seed, slots)
    target = target_lengths(bits, slots.room, short_seq_probability)
    wants_random = coin(bits[Stream.RANDOM_NEXT])
    backward = wants_random & coin(bits[Stream.SIDE])
    windows = gather_windows(layout, seed, slots.epoch, slots.document, slots.position, target, backward)
    begin, end, inner = windows.begin, windows.end, windows.inner
    is_random = wants_random | (inner == 0)
    cut = windows.bounds[windows.first_inner + integers(bits[Stream.CUT], np.maximum(inner, 1))]
    first_begin = np.where((inner > 0) & backward, cut, begin)
    first_end = np.where((inner == 0) | backward, end, cut)

    # Second texts: the rest of the window, or a window in another document, read after the others.
    random = np.flatnonzero(is_random)
    epoch = slots.epoch[random]
    other = _other_slot(layout, weights, seed, epoch, slots.document[random], bits[:, random])
    # No more than the slot would have given, or the lengths of the texts would reveal the label.
    wanted = np.maximum(1, (np.minimum(target, windows.slot) - (first_end - first_begin))[random])
    others = gather_windows(layout, seed, epoch, *other, wanted, coin(bits[Stream.OTHER_SIDE, random]))
    second_begin, second_end = first_end.copy(), end.copy()
    second_begin[random] = others.begin + len(windows.tokens)
    second_end[random] = others.end + len(windows.tokens)
    starts = np.stack([first_begin, second_begin], axis=1)
    lengths = np.stack([first_end - first_begin, second_end - second_begin], axis=1)
    tokens = np.concatenate([windows.tokens, others.tokens])
    return Examples(tokens, *truncate_pairs(seed, slots, starts, lengths), is_random.astype(np.int64))


def other_weights(layout: Layout) -> OtherWeights:
    """Return weights by which all tokens are read about equally often (tests/data/test_coverage.py measures it).

    From its own slot, a token of a document of several sentences is read 3/4 times per epoch, since half of the
    examples are random pairs and leave half of the slot unread; a token of a document of one sentence is read once. The
    random second texts bring the rest. The constant per slot compensates for short slots, which cannot give all the
    tokens asked of them. If a fraction q of a source's tokens is in documents of one sentence, whose examples all read
    another document too, each token is to be read 1 + q times.
    """
    slots, tokens = np.diff(layout.first_slot), np.diff(layout.document_start)
    sentences = np.diff(running_total(layout.split.sentences_per_record)[layout.split.first_record])
    sources = len(layout.source_documents) - 1
    source = np.repeat(np.arange(sources), np.diff(layout.source_documents))
    sums = (np.bincount(source, counts, sources) for counts in (slots, tokens, tokens * (sentences == 1)))
    all_slots, all_tokens, alone = (np.maximum(1, each) for each in sums)
    slot = np.maximum(1, all_tokens / all_slots / 4).astype(np.int64)
    q = (alone / all_tokens)[source]
    factor = np.where(sentences == 1, q / (q + 1 / 4), 1)
    return OtherWeights(running_total(np.ceil((tokens + slots * slot[source]) * factor).astype(np.int64)), slot)


def _other_slot(
    layout: Layout, weights: OtherWeights, seed: int, epoch: np.ndarray, document: np.ndarray, bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A random other document of the same source, and the position of a slot in it; exact, without retries."""
    source = np.searchsorted(layout.source_documents, document, side="right") - 1
    low, high = (weights.start[layout.source_documents[source + side]] for side in (0, 1))
    own = weights.start[document + 1] - weights.start[document]
    draw = low + integers(bits[Stream.OTHER], high - low - own)
    draw += np.where(draw >= weights.start[document], own, 0)
    other = np.searchsorted(weights.start, draw, side="right") - 1
    tokens = layout.document_start[other + 1] - layout.document_start[other]
    full = tokens + (layout.first_slot[other + 1] - layout.first_slot[other]) * weights.slot[source]
    draw = (draw - weights.start[other]) * full // (weights.start[other + 1] - weights.start[other])
    of_token = slot_of_token(layout, seed, epoch, other, np.minimum(draw, tokens - 1))
    return other, np.where(draw < tokens, of_token, (draw - tokens) // weights.slot[source])
