"""Sentence order prediction: two texts of one window; half of them are swapped (Lan et al. 2020, ALBERT).

A window of one sentence is cut inside the sentence.
"""

import functools

import numpy as np

from bert_jax.data.sequences.hashing import Stream, integers
from bert_jax.data.sequences.layout import Layout, Slots
from bert_jax.data.sequences.sentence_pairs.rule import (
    Examples,
    Sampler,
    coin,
    random_streams,
    target_lengths,
    truncate_pairs,
)
from bert_jax.data.sequences.sentence_pairs.windows import gather_windows


def make_sampler(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of pairs of consecutive texts in either order."""
    return Sampler(layout, functools.partial(_sample, layout, short_seq_probability))


def _sample(layout: Layout, short_seq_probability: float, seed: int, slots: Slots) -> Examples:
    bits, forward = random_streams(seed, slots), np.zeros(len(slots.number), bool)
    target = target_lengths(bits, slots.room, short_seq_probability)
    windows = gather_windows(layout, seed, slots.epoch, slots.document, slots.position, target, forward)
    begin, end, inner = windows.begin, windows.end, windows.inner
    between = windows.bounds[windows.first_inner + integers(bits[Stream.CUT], np.maximum(inner, 1))]
    inside = begin + np.minimum(1 + integers(bits[Stream.CUT], np.maximum(end - begin - 1, 1)), end - begin)
    cut = np.where(inner > 0, between, inside)
    starts = np.stack([begin, cut], axis=1)
    starts, lengths = truncate_pairs(seed, slots, starts, np.stack([cut - begin, end - cut], axis=1))
    # A window of one token has no second text, and so no order.
    swapped = coin(bits[Stream.SWAP]) & (end - begin > 1)
    starts[swapped], lengths[swapped] = starts[swapped, ::-1], lengths[swapped, ::-1]
    return Examples(windows.tokens, starts, lengths, swapped.astype(np.int64))
