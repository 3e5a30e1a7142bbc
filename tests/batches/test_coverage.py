"""Frequency of each token among the sequences, relative to the mean of all tokens."""

import numpy as np
import pytest
from sampled_examples import leading_tokens, sampled, sampler_of

from bert_jax.batches import statistics
from bert_jax.batches.pipeline import make_sequences
from bert_jax.config import DataConfig
from tests.helpers.memory_corpus import FIRST_TOKEN, MemorySplit, random_documents


def coverage(split: MemorySplit, seq_len: int, epochs: int, sentence_pairs: str) -> np.ndarray:
    """Return how many times each token is read, over the mean of all tokens; float64 [tokens]."""
    sampler = sampler_of(split, seq_len, 0.1, sentence_pairs)
    seen = np.zeros(split.document_start[-1] + 1, np.int64)
    number = epochs * sampler.layout.num_slots
    for part in np.array_split(np.arange(number), -(-number // 10_000)):
        examples = sampled(sampler, 0, part)
        start = leading_tokens(examples) - FIRST_TOKEN
        np.add.at(seen, start, 1)
        np.add.at(seen, start + examples.lengths, -1)
    times = np.cumsum(seen)[:-1]
    return times / times.mean()


ONE = random_documents(11, 200, (1, 1), (5, 40))
FEW = random_documents(12, 120, (2, 4), (5, 40))
MIDDLE = random_documents(13, 40, (5, 60), (5, 40))
LONG = random_documents(14, 25, (100, 250), (5, 40))
PREDICTIONS = ("positions", "labels", "weights")


@pytest.mark.parametrize("seq_len", [128, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "documents",
    [LONG, LONG + MIDDLE + FEW + ONE, LONG[:5] + 10 * ONE, LONG[:5] + 5 * FEW, MIDDLE + FEW + ONE, FEW + ONE],
    ids=["long", "all kinds", "long and one-sentence", "long and few-sentence", "no long", "short"],
)
@pytest.mark.parametrize("sentence_pairs", ["next_sentence", "sentence_order", "document_sentences"])
def test_every_kind_of_token_is_read_about_equally_often(documents, seq_len, sentence_pairs):
    split = MemorySplit(documents)
    sizes = np.diff(split.document_start)
    epochs = max(10, 3_000_000 // int(sizes.sum()))
    seen = coverage(split, seq_len, epochs, sentence_pairs)
    document = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(document)) - split.document_start[document]
    size_class = np.digitize(sizes, [40, 80, 160, 640, 2560])
    size_class[[len(sentences) == 1 for sentences in documents]] = -1
    for kinds in (size_class[document], 10 * position // sizes[document]):
        for kind in np.unique(kinds):
            assert 0.8 < seen[kinds == kind].mean() < 1.2, kind


@pytest.mark.parametrize("sentence_pairs", ["full_sentences", "document_sentences", "none"])
def test_100_000_sequences_of_single_texts_read_every_token_equally_often(sentence_pairs):
    """Slots are read exactly once per epoch; with whole sentences, some that do not fit are left out."""
    split = MemorySplit(MIDDLE + FEW + ONE, sources=(40, 120, 200))
    sampler = sampler_of(split, 128, sentence_pairs=sentence_pairs)
    epochs = -(-100_000 // sampler.layout.num_slots)
    seen = np.zeros(split.vocab_size, np.int64)
    begun = np.zeros(split.vocab_size, np.int64)
    for epoch in range(epochs):
        examples = sampled(
            sampler, 5, np.arange(epoch * sampler.layout.num_slots, (epoch + 1) * sampler.layout.num_slots)
        )
        for start, length in zip(examples.starts[:, 0].tolist(), examples.lengths[:, 0].tolist(), strict=True):
            text = examples.tokens[start : start + length]
            seen[text] += 1
            begun[text[0]] += 1
        assert examples.lengths.max() <= 126
    times = seen[FIRST_TOKEN:] / epochs
    if sentence_pairs == "none":
        assert (times == 1).all()
        return
    sizes = np.diff(split.document_start)
    document = np.repeat(np.arange(len(sizes)), sizes)
    tenth = 10 * (np.arange(len(document)) - split.document_start[document]) // sizes[document]
    for kind in range(10):
        assert 0.8 < times[tenth == kind].mean() / times.mean() < 1.25, kind
    assert times.mean() > 0.8
    # Texts begin where sentences do, except inside a sentence that is longer than a sequence.
    begins = np.cumsum([0, *(length for d in split.documents for length in d)])[:-1] + FIRST_TOKEN
    assert begun[begins].sum() > 0.6 * begun.sum()


@pytest.mark.parametrize("tokens", [1000, 1003, 1063, 1070, 1125, 1127])
def test_full_text_fills_its_sequences_and_begins_at_half_of_all_places(tokens):
    """The last cases have the least slack (1008 tokens are eight slots of 126)."""
    split = MemorySplit([[tokens // 2, tokens - tokens // 2 - 1]])  # and a separator
    sampler = sampler_of(split, 128, sentence_pairs="full_text")
    number, places = sampler.layout.num_slots, set()
    assert number <= -(-tokens // 126) + 1
    for epoch in range(400):
        examples = sampled(sampler, 0, epoch * number + np.arange(number))
        lengths = np.sort(examples.lengths[:, 0])
        assert lengths.sum() == tokens
        assert (lengths[2:] == 126).all()
        assert lengths[0] > 0
        places |= set((leading_tokens(examples)[:, 0] % 126).tolist())
    assert len(places) >= 63


def test_sources_without_weight_are_no_part_of_the_coverage():
    """Also where they have too few documents for a pair."""
    split, own = (MemorySplit(MIDDLE + more, sources=(40, *few)) for more, few in ((ONE[:1], (1,)), ([], ())))
    config = DataConfig(weights=(1.0, 0.0))
    assert statistics.covered_token_fractions(split, 1, 128, config) == statistics.covered_token_fractions(
        own, 1, 128, DataConfig()
    )


def test_an_epoch_that_repeats_the_first_covers_no_more():
    split = MemorySplit(MIDDLE)
    once, twice = statistics.covered_token_fractions(
        split, 1, 128, DataConfig(sentence_pairs="full_sentences", dupe_factor=1)
    )
    assert once == twice < 1


@pytest.mark.parametrize(
    ("sentence_pairs", "packing"), [("next_sentence", 1), ("full_sentences", 1), ("full_text", 1), ("none", 3)]
)
@pytest.mark.parametrize("limit", [10**6, 2000])
def test_the_coverage_that_inspect_shows(sentence_pairs, packing, limit):
    split = MemorySplit(MIDDLE + FEW + ONE, sources=(40, 120, 200), max_record=64)
    config = DataConfig(sentence_pairs=sentence_pairs, packing=packing, masking="whole_word")
    found = statistics.covered_token_fractions(split, 1, 128, config, limit)
    if sentence_pairs in ("full_text", "none"):
        assert found == (1, 1)
        return
    assert 0.6 < found[0] < found[1] < 1
    if limit < split.vocab_size:
        return
    sequences = make_sequences(split, split.symbols(), 128, 0, DataConfig(sentence_pairs=sentence_pairs))
    read: set[int] = set()
    for epoch in range(2):
        batch = sequences.batch(epoch * sequences.num_per_epoch + np.arange(sequences.num_per_epoch))
        for row in range(sequences.num_per_epoch):
            ids = batch["input_ids"][row]
            for at, label, real in zip(*(batch[f"masked_{one}"][row] for one in PREDICTIONS), strict=True):
                ids[at] = label if real else ids[at]
            read |= {token for token in ids.tolist() if token >= FIRST_TOKEN}
        assert len(read) / (split.vocab_size - FIRST_TOKEN) == found[epoch]


@pytest.mark.parametrize("sentence_pairs", ["full_sentences", "document_sentences"])
def test_no_token_of_a_long_document_is_left_out_in_every_epoch(sentence_pairs):
    """Without sliding slots, 1 token in 100 would lie at a bad position in every epoch."""
    split = MemorySplit(random_documents(9, 4, (1500, 2000), (3, 45)))
    sampler = sampler_of(split, 128, sentence_pairs=sentence_pairs)
    seen = np.zeros(split.vocab_size, np.int64)
    for epoch in range(40):
        numbers = np.arange(epoch * sampler.layout.num_slots, (epoch + 1) * sampler.layout.num_slots)
        examples = sampled(sampler, 0, numbers)
        for start, length in zip(examples.starts[:, 0].tolist(), examples.lengths[:, 0].tolist(), strict=True):
            seen[examples.tokens[start : start + length]] += 1
    assert (seen[FIRST_TOKEN:] == 0).mean() < 1e-3
