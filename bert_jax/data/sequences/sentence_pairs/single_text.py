"""One text per example: as many whole sentences as fit (Liu et al. 2019, RoBERTa), or the slot itself."""

import functools
from collections.abc import Callable

import numpy as np

from bert_jax.data.sequences.layout import Layout, Slots
from bert_jax.data.sequences.sentence_pairs.rule import Examples, Sampler
from bert_jax.data.sequences.sentence_pairs.windows import Windows, sentence_windows, slot_windows


def sentences(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of whole sentences; `short_seq_probability` concerns pairs and is not used."""
    return Sampler(layout, functools.partial(_sample, layout, sentence_windows))


def whole_slots(layout: Layout, short_seq_probability: float) -> Sampler:
    """Return the sampler of the slots themselves; `short_seq_probability` concerns pairs and is not used."""
    return Sampler(layout, functools.partial(_sample, layout, slot_windows))


def _sample(layout: Layout, windows_of: Callable[[Layout, int, Slots], Windows], seed: int, slots: Slots) -> Examples:
    windows = windows_of(layout, seed, slots)
    starts, lengths = windows.begin[:, None], (windows.end - windows.begin)[:, None]
    return Examples(windows.tokens, starts, lengths, np.zeros(len(starts), np.int64))
