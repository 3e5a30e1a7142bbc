"""Sequences and batches: their content, that a sequence depends on its number alone, and the end of iteration."""

import contextlib
import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest

from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import Batch, Sequences, batch_shapes, make_sequences
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import DataConfig
from bert_jax.corpus.build.corpus_writer import token_dtype
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from tests.helpers.memory_corpus import CLS, FIRST_TOKEN, PAD, SEP, MemorySplit, random_documents
from tests.helpers.stored_corpus import store

SEQ_LEN = 64


@pytest.fixture(scope="module")
def split() -> MemorySplit:
    return MemorySplit(random_documents(0, 60, (1, 120), (1, 40)))


@pytest.fixture(scope="module")
def sequences(split) -> Sequences:
    return make_sequences(split, split.symbols(), SEQ_LEN, 0, DataConfig())


def joined(parts: list[Batch]) -> Batch:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def same(one: Batch, other: Batch) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


def test_keys_shapes_and_dtypes(sequences):
    batch = sequences.batch(np.arange(16))
    found = {key: (value.dtype.name, value.shape) for key, value in batch.items()}
    assert found == {
        "input_ids": ("int32", (16, 64)),
        "token_type_ids": ("int32", (16, 64)),
        "attention_mask": ("int32", (16, 64)),
        "masked_positions": ("int32", (16, 10)),
        "masked_labels": ("int32", (16, 10)),
        "masked_weights": ("float32", (16, 10)),
        "next_sentence_labels": ("int32", (16,)),
        "example_weights": ("float32", (16,)),
    }
    assert all(value.flags.c_contiguous for value in batch.values())
    shapes = batch_shapes(16, SEQ_LEN, DataConfig())
    assert {key: (np.dtype(dtype).name, shape) for key, (shape, dtype) in shapes.items()} == found


def test_100_000_sequences_are_well_formed(split, sequences):
    for start in range(0, 100_000, 5000):
        batch = sequences.batch(np.arange(start, start + 5000))
        ids = unmasked(batch)
        attended, in_second = batch["attention_mask"] == 1, batch["token_type_ids"] == 1
        size = attended.sum(axis=1)
        middle = SEQ_LEN - 1 - np.argmax((attended & ~in_second)[:, ::-1], axis=1)
        rows = np.arange(5000)
        # [CLS] a.. [SEP] b.. [SEP] padding, both texts with at least one token.
        assert np.array_equal(attended, np.arange(SEQ_LEN) < size[:, None])
        assert np.array_equal(in_second, attended & (np.arange(SEQ_LEN) > middle[:, None]))
        assert (middle >= 2).all()
        assert (size - middle >= 3).all()
        assert (ids[:, 0] == CLS).all()
        assert (ids[~attended] == PAD).all()
        assert (ids[rows, middle] == SEP).all()
        assert (ids[rows, size - 1] == SEP).all()
        text = ids >= FIRST_TOKEN
        assert np.array_equal(text.sum(axis=1), size - 3)
        # A token's id is its position in the corpus: each text is continuous.
        together = text[:, 1:] & text[:, :-1]
        assert (np.diff(ids, axis=1)[together] == 1).all()
        first, second = ids[:, 1], ids[rows, middle + 1]
        random = split.document_of(first) != split.document_of(second)
        assert np.array_equal(batch["next_sentence_labels"] == 1, random)
        # Only a truncated sequence lacks tokens between its texts, and only a full one is truncated.
        gap = second - ids[rows, middle - 1] - 1
        assert (gap[~random] >= 0).all()
        assert not gap[~random & (size < SEQ_LEN)].any()
        assert (batch["example_weights"] == 1).all()


CONFIGS = {
    "next_sentence": DataConfig(),
    "sentence_order": DataConfig(sentence_pairs="sentence_order", masking="ngram"),
    "full_sentences": DataConfig(sentence_pairs="full_sentences", masking="span"),
    "full_text": DataConfig(sentence_pairs="full_text", masking="whole_word"),
    "document_sentences": DataConfig(sentence_pairs="document_sentences", masking="whole_word"),
    "none": DataConfig(sentence_pairs="none"),
    "packed": DataConfig(packing=4, masking="whole_word"),
    "packed order": DataConfig(sentence_pairs="sentence_order", packing=3),
    "packed none": DataConfig(sentence_pairs="none", packing=8, masking="span"),
    "static": DataConfig(dupe_factor=2),
    "mixed": DataConfig(weights=(1.0, 2.0, 0.5), packing=2),
    "smoothed": DataConfig(smoothing=0.5),
    "limited": DataConfig(smoothing=0.0, max_epochs=2),
    "rarity": DataConfig(rarity_power=0.5, masking="span", weights=(1.0, 2.0, 0.5)),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_sequences_do_not_depend_on_how_they_are_asked_for(kind):
    split = MemorySplit(random_documents(0, 60, (1, 120), (1, 40)), sources=(30, 20, 10))
    sequences = make_sequences(split, split.symbols(), SEQ_LEN, 0, CONFIGS[kind])
    expected = sequences.batch(np.arange(48, 144))
    # Hosts and threads know nothing of the kind, so two kinds try all of their numbers.
    all_numbers = kind in ("next_sentence", "packed")
    for batch_size in (1, 8, 24, 96) if all_numbers else (8, 96):
        for num_hosts in (1, 2, 4) if all_numbers else (1, 4):
            if batch_size % num_hosts:
                continue
            for num_threads, prefetch in ((0, 0), (1, 1), (4, 6)) if all_numbers else ((4, 6),):
                options = {"num_hosts": num_hosts, "num_threads": num_threads, "prefetch": prefetch}
                parts = []
                with contextlib.ExitStack() as stack:
                    streams = [
                        stack.enter_context(
                            contextlib.closing(batches(sequences, 48, batch_size, host=host, **options))
                        )
                        for host in range(num_hosts)
                    ]
                    for _ in range(96 // batch_size):
                        parts += [next(stream) for stream in streams]
                assert same(joined(parts), expected)
    for start in (0, 7, 10**6, 10**9):  # as a run that resumes there
        with contextlib.closing(batches(sequences, start, 4, num_threads=2)) as stream:
            found = joined([next(stream) for _ in range(3)])
        assert same(found, sequences.batch(start + np.arange(12)))
    numbers = np.array([5, 3, 10**9, 3, 0])
    shuffled = sequences.batch(numbers)
    for row in range(len(numbers)):
        assert same({key: value[row : row + 1] for key, value in shuffled.items()}, sequences.batch(numbers[[row]]))


@pytest.mark.parametrize("kind", CONFIGS)
def test_batch_shapes_equal_the_shapes_of_a_batch(kind):
    split = MemorySplit(random_documents(0, 60, (1, 120), (1, 40)), sources=(30, 20, 10))
    batch = make_sequences(split, split.symbols(), SEQ_LEN, 0, CONFIGS[kind]).batch(np.arange(16))
    shapes = batch_shapes(16, SEQ_LEN, CONFIGS[kind])
    assert list(shapes) == list(batch)
    assert {key: (array.shape, array.dtype) for key, array in batch.items()} == shapes
    assert all(array.flags.c_contiguous for array in batch.values())


def test_sequences_repeat_after_dupe_factor_epochs(split, sequences):
    static = make_sequences(split, split.symbols(), SEQ_LEN, 0, DataConfig(dupe_factor=3))
    numbers = np.arange(40)
    for epochs in (3, 6, 300):
        assert same(static.batch(numbers), static.batch(numbers + epochs * static.num_per_epoch))
    assert not same(static.batch(numbers), static.batch(numbers + static.num_per_epoch))
    assert same(static.batch(numbers), sequences.batch(numbers))


def test_one_token_type_and_two_separators(split):
    """As in RoBERTa: [CLS] a [SEP] [SEP] b [SEP], all of type 0."""
    sequences = make_sequences(split, split.symbols(separators=2), SEQ_LEN, 0, DataConfig(), num_token_types=1)
    batch = sequences.batch(np.arange(500))
    assert not batch["token_type_ids"].any()
    ids = unmasked(batch)
    assert (((ids[:, 1:] == SEP) & (ids[:, :-1] == SEP)).sum(axis=1) == 1).all()
    assert ((ids == SEP).sum(axis=1) == 3).all()


def unmasked(batch: Batch) -> np.ndarray:
    ids = batch["input_ids"].copy()
    row, prediction = np.nonzero(batch["masked_weights"])
    ids[row, batch["masked_positions"][row, prediction]] = batch["masked_labels"][row, prediction]
    return ids


@pytest.mark.parametrize("sentence_pairs", ["next_sentence", "sentence_order", "document_sentences", "none"])
def test_packed_sequences_are_examples_side_by_side(sentence_pairs):
    """The examples of an epoch of packed sequences have the text of every document and are made as without packing."""
    split = MemorySplit(random_documents(3, 200, (1, 12), (1, 25)))
    config = DataConfig(sentence_pairs=sentence_pairs, packing=5)
    if SENTENCE_PAIRS[sentence_pairs].num_texts == 2:
        config = dataclasses.replace(config, short_seq_probability=0.0)
    sequences = make_sequences(split, split.symbols(), SEQ_LEN, 0, config)
    batch = sequences.batch(np.arange(sequences.num_per_epoch))
    ids, segments = unmasked(batch), batch["segment_ids"]
    assert np.array_equal(segments > 0, batch["attention_mask"] == 1)
    assert (ids[segments == 0] == PAD).all()
    seen = np.zeros(split.vocab_size, np.int64)
    for row in range(sequences.num_per_epoch):
        count = int(segments[row].max())
        assert (np.diff(segments[row][segments[row] > 0]) >= 0).all()
        assert batch["example_weights"][row].tolist() == [1.0] * count + [0.0] * (5 - count)
        for entry in range(count):
            (columns,) = np.nonzero(segments[row] == entry + 1)
            example = ids[row, columns]
            assert batch["cls_positions"][row, entry] == columns[0]
            assert example[0] == CLS
            assert example[-1] == SEP
            inside = np.isin(batch["masked_positions"][row][batch["masked_weights"][row] > 0], columns)
            assert 1 <= inside.sum() <= max(1, round(0.15 * len(example)))
            texts = np.split(example[1:-1], np.flatnonzero(example[1:-1] == SEP))
            assert len(texts) == (2 if "next_sentence_labels" in batch else 1)
            texts = [text[text != SEP] for text in texts]
            for text in texts:
                assert (np.diff(text) == 1).all()
            np.add.at(seen, example, 1)
            if sentence_pairs == "next_sentence":
                one, other = (split.document_of(text[:1])[0] for text in texts)
                assert batch["next_sentence_labels"][row, entry] == (one != other)
            if sentence_pairs == "sentence_order" and len(texts[1]):
                assert batch["next_sentence_labels"][row, entry] == (texts[0][0] > texts[1][0])
    if sentence_pairs == "none":  # the slots themselves: every token once
        assert (seen[FIRST_TOKEN:] == 1).all()
    unpacked = make_sequences(split, split.symbols(), SEQ_LEN, 0, DataConfig(sentence_pairs=sentence_pairs))
    assert sequences.num_per_epoch < unpacked.num_per_epoch


def test_packed_sequences_have_nearly_twice_the_tokens():
    """Documents of 8 to 500 tokens, sequences of 512: 254 tokens per example with special tokens; goal 1.85 times."""
    split = MemorySplit(random_documents(4, 4000, (1, 25), (8, 30)))
    found = []
    for packing in (1, 8):
        config = DataConfig(sentence_pairs="document_sentences", packing=packing)
        sequences = make_sequences(split, split.symbols(), 512, 0, config)
        batch = sequences.batch(np.arange(min(sequences.num_per_epoch, 2000)))
        found.append(batch["attention_mask"].sum(axis=1).mean())
    assert abs(found[0] - 254) < 15
    assert found[1] >= 1.85 * found[0]


@pytest.mark.parametrize("packing", [1, 4])
def test_a_source_of_too_few_documents_is_refused_unless_its_weight_is_0(packing):
    config = DataConfig(packing=packing, random_token_fraction=0.0)
    alone = MemorySplit([[5, 5, 5]])
    with pytest.raises(UserError, match=r"needs 2 documents, and this split has fewer; .*--documents blank-line"):
        make_sequences(alone, alone.symbols(), 128, 0, config)
    split = MemorySplit([[5], [5], [5, 5]], sources=(2, 1))
    with pytest.raises(UserError, match="needs 2 documents, and corpus 2 of 2 has fewer"):
        make_sequences(split, split.symbols(), 128, 0, config)
    sequences = make_sequences(split, split.symbols(), 128, 0, dataclasses.replace(config, weights=(1.0, 0.0)))
    ids = sequences.batch(np.arange(100))["input_ids"]
    assert set(split.document_of(ids[ids >= FIRST_TOKEN]).tolist()) == {0, 1}


def test_weights_for_another_number_of_sources_are_refused(split):
    with pytest.raises(UserError, match="2 numbers for 1 corpora"):
        make_sequences(split, split.symbols(), SEQ_LEN, 0, DataConfig(weights=(1.0, 2.0)))


@pytest.mark.parametrize(("sentence_pairs", "shortest"), [("next_sentence", 5), ("none", 3)])
def test_a_length_without_room_is_refused(split, sentence_pairs, shortest):
    config = DataConfig(sentence_pairs=sentence_pairs)
    make_sequences(split, split.symbols(), shortest, 0, config).batch(np.arange(50))
    with pytest.raises(UserError, match=f"seq_len={shortest - 1} is too short: .* at least {shortest} tokens"):
        make_sequences(split, split.symbols(), shortest - 1, 0, config)


@pytest.mark.parametrize(("sentence_pairs", "most"), [("next_sentence", 12), ("none", 21)])
def test_more_examples_than_fit_into_a_sequence_are_refused(split, sentence_pairs, most):
    config = DataConfig(sentence_pairs=sentence_pairs, packing=most)
    make_sequences(split, split.symbols(), 64, 0, config).batch(np.arange(9))
    with pytest.raises(UserError, match=f"packing={most + 1}: lower it to {most}, the number of examples"):
        make_sequences(split, split.symbols(), 64, 0, dataclasses.replace(config, packing=most + 1))


def test_another_seed_makes_other_sequences(split, sequences):
    numbers = np.arange(8)
    again = make_sequences(split, split.symbols(), SEQ_LEN, 0, DataConfig())
    assert same(again.batch(numbers), sequences.batch(numbers))
    other = make_sequences(split, split.symbols(), SEQ_LEN, 1, DataConfig())
    assert not np.array_equal(other.batch(numbers)["input_ids"], sequences.batch(numbers)["input_ids"])


def test_sequences_of_the_store_equal_those_in_memory(tmp_path, split):
    dtype, bounds = token_dtype(split.vocab_size), itertools.pairwise(FIRST_TOKEN + split.document_start)
    ids = (np.arange(*bound, dtype=dtype) for bound in bounds)
    documents = list(zip(map(np.array, split.documents), ids, strict=True))
    store(tmp_path / "corpus", documents, vocab_size=split.vocab_size, documents_per_shard=25)
    stored = open_corpus(tmp_path / "corpus").split("train")
    numbers = np.arange(200)
    for seq_len in (16, 128, 512):
        for config in (DataConfig(), DataConfig(sentence_pairs="full_sentences", packing=2)):
            one, other = (make_sequences(each, split.symbols(), seq_len, 3, config) for each in (split, stored))
            assert same(one.batch(numbers), other.batch(numbers))


@pytest.mark.parametrize("num_hosts", [1, 2])
def test_the_last_batch_is_completed_with_fillers_of_no_weight(sequences, num_hosts):
    streams = [
        batches(sequences, 10, 8, host=host, num_hosts=num_hosts, stop=31, num_threads=0) for host in range(num_hosts)
    ]
    found = joined([part for parts in zip(*streams, strict=True) for part in parts])
    expected = sequences.batch(np.arange(10, 31))
    assert same({key: value[:21] for key, value in found.items()}, expected)
    assert found["example_weights"].tolist() == [1] * 21 + [0] * 3
    assert not found["masked_weights"][21:].any()


def test_no_sequences_no_batches(sequences):
    assert list(batches(sequences, 5, 8, stop=5)) == []


@pytest.mark.parametrize(("batch_size", "num_hosts"), [(6, 4), (0, 1)])
def test_a_batch_size_that_hosts_cannot_divide_is_refused_at_once(sequences, batch_size, num_hosts):
    with pytest.raises(UserError, match=f"batch_size {batch_size} cannot be split evenly over {num_hosts} hosts"):
        batches(sequences, 0, batch_size, num_hosts=num_hosts)


def sequences_of(batch):
    one = np.array([1])
    return Sequences(batch=batch, num_per_epoch=1, num_per_source=one, source_of=np.zeros_like, num_items=one)


def test_an_error_in_a_thread_is_raised_and_closing_leaves_no_thread():
    def broken(numbers: np.ndarray) -> Batch:
        if numbers[0] >= 8:
            raise UserError("damaged shard")
        return {"input_ids": numbers}

    before = set(threading.enumerate())
    stream = batches(sequences_of(broken), 0, 4, num_threads=3, prefetch=3)
    assert next(stream)["input_ids"].tolist() == [0, 1, 2, 3]
    next(stream)
    with pytest.raises(UserError, match="damaged shard"):
        next(stream)
    for _ in range(3):
        endless = sequences_of(lambda numbers: {"input_ids": numbers})
        unfinished = batches(endless, 0, 4, num_threads=4, prefetch=8)
        next(unfinished)
        unfinished.close()
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before
