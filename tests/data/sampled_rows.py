"""Examples of rows over splits in memory, by number."""

import numpy as np
from memory_corpus import SEP

from bert_jax.data.sequences.layout import Slots, make_slots
from bert_jax.data.sequences.order import locate, make_order
from bert_jax.data.sequences.sampling import Examples, Sampler, make_sampler


def sampler_of(
    split, length: int, short_seq_probability: float = 0.0, pairing: str = "next_sentence", packed: bool = False
) -> Sampler:
    special = 3 if pairing in ("next_sentence", "sentence_order") else 2
    return make_sampler(split, pairing, length - special, SEP, short_seq_probability, packed)


def slots_of(sampler: Sampler, seed: int, rows: np.ndarray) -> Slots:
    """Those of unpacked rows."""
    layout = sampler.layout
    order = make_order(np.diff(layout.first_slot[layout.source_documents]))
    return make_slots(layout, seed, *locate(order, seed, rows), np.full(len(rows), layout.budget))


def sampled(sampler: Sampler, seed: int, rows: np.ndarray) -> Examples:
    return sampler.sample(seed, slots_of(sampler, seed, rows))


def parts(examples: Examples, row: int) -> list[list[int]]:
    return [
        examples.tokens[start : start + length].tolist()
        for start, length in zip(examples.starts[row], examples.lengths[row], strict=True)
    ]


def leading_tokens(examples: Examples) -> np.ndarray:
    """The first token of each part; int64 [rows, parts]."""
    return examples.tokens[examples.starts].astype(np.int64)
