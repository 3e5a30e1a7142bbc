"""Examples over splits in memory, by sequence number."""

import numpy as np

from bert_jax.batches.layout import Slots, make_slots
from bert_jax.batches.order import epochs_and_items_of_sequences, plan_sequences_per_source
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS, Examples, Sampler, make_sampler
from tests.helpers.memory_corpus import SEP


def sampler_of(
    split, seq_len: int, short_seq_probability: float = 0.0, sentence_pairs: str = "next_sentence", packed: bool = False
) -> Sampler:
    special = 3 if sentence_pairs in ("next_sentence", "sentence_order") else 2
    return make_sampler(SENTENCE_PAIRS[sentence_pairs], split, seq_len - special, SEP, short_seq_probability, packed)


def slots_of(sampler: Sampler, seed: int, numbers: np.ndarray) -> Slots:
    """Return the slots of unpacked sequences."""
    layout = sampler.layout
    order = plan_sequences_per_source(np.diff(layout.first_slot[layout.source_documents]))
    return make_slots(
        layout, seed, *epochs_and_items_of_sequences(order, seed, numbers), np.full(len(numbers), layout.budget)
    )


def sampled(sampler: Sampler, seed: int, numbers: np.ndarray) -> Examples:
    return sampler.sample(seed, slots_of(sampler, seed, numbers))


def texts_of(examples: Examples, example: int) -> list[list[int]]:
    return [
        examples.tokens[start : start + length].tolist()
        for start, length in zip(examples.starts[example], examples.lengths[example], strict=True)
    ]


def leading_tokens(examples: Examples) -> np.ndarray:
    """Return the first token of each text, int64 [examples, texts]."""
    return examples.tokens[examples.starts].astype(np.int64)
