"""Rows -> batches: what a row looks like, that it depends on nothing but its number, and an orderly end."""

import contextlib
import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest
from memory_corpus import CLS, FIRST_TOKEN, PAD, SEP, MemorySplit, random_documents
from stored_corpus import store

from bert_jax.config import DataConfig
from bert_jax.data.corpus import open_corpus
from bert_jax.data.preparation.corpus_writer import token_dtype
from bert_jax.data.sequences.pipeline import Batch, Rows, batch_shapes, batches, make_rows
from bert_jax.errors import UserError

LENGTH = 64


@pytest.fixture(scope="module")
def split() -> MemorySplit:
    return MemorySplit(random_documents(0, 60, (1, 120), (1, 40)))


@pytest.fixture(scope="module")
def rows(split) -> Rows:
    return make_rows(split, split.symbols(), LENGTH, 0, DataConfig())


def joined(parts: list[Batch]) -> Batch:
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def same(one: Batch, other: Batch) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


def test_keys_shapes_and_dtypes(rows):
    batch = rows.batch(np.arange(16))
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
    shapes = batch_shapes(16, LENGTH, DataConfig())
    assert {key: (np.dtype(dtype).name, shape) for key, (shape, dtype) in shapes.items()} == found


def test_rows_are_well_formed_over_100_000(split, rows):
    for first in range(0, 100_000, 5000):
        batch = rows.batch(np.arange(first, first + 5000))
        ids = batch["input_ids"].copy()
        line, prediction = np.nonzero(batch["masked_weights"])
        ids[line, batch["masked_positions"][line, prediction]] = batch["masked_labels"][line, prediction]
        attended, second = batch["attention_mask"] == 1, batch["token_type_ids"] == 1
        size = attended.sum(axis=1)
        middle = LENGTH - 1 - np.argmax(((attended & ~second)[:, ::-1]), axis=1)
        everyone = np.arange(5000)
        # [CLS] a.. [SEP] b.. [SEP] padding, both parts with a token at least.
        assert np.array_equal(attended, np.arange(LENGTH) < size[:, None])
        assert np.array_equal(second, attended & (np.arange(LENGTH) > middle[:, None]))
        assert (middle >= 2).all()
        assert (size - middle >= 3).all()
        assert (ids[:, 0] == CLS).all()
        assert (ids[~attended] == PAD).all()
        assert (ids[everyone, middle] == SEP).all()
        assert (ids[everyone, size - 1] == SEP).all()
        text = ids >= FIRST_TOKEN
        assert np.array_equal(text.sum(axis=1), size - 3)
        # A token's id is its place in the corpus: each part is running text.
        together = text[:, 1:] & text[:, :-1]
        assert (np.diff(ids, axis=1)[together] == 1).all()
        first_part, second_part = ids[:, 1], ids[everyone, middle + 1]
        random = split.document_of(first_part) != split.document_of(second_part)
        assert np.array_equal(batch["next_sentence_labels"] == 1, random)
        # Only a truncated row lacks tokens between its parts, and only a full one is truncated.
        gap = second_part - ids[everyone, middle - 1] - 1
        assert (gap[~random] >= 0).all()
        assert not gap[~random & (size < LENGTH)].any()
        assert (batch["example_weights"] == 1).all()


KINDS = {
    "next_sentence": DataConfig(),
    "sentence_order": DataConfig(sentence_pairs="sentence_order", masking="ngram"),
    "full_sentences": DataConfig(sentence_pairs="full_sentences", masking="span"),
    "document_sentences": DataConfig(sentence_pairs="document_sentences", masking="whole_word"),
    "none": DataConfig(sentence_pairs="none"),
    "packed": DataConfig(packing=4, masking="whole_word"),
    "packed order": DataConfig(sentence_pairs="sentence_order", packing=3),
    "packed none": DataConfig(sentence_pairs="none", packing=8, masking="span"),
    "static": DataConfig(duplicates=2),
    "mixed": DataConfig(weights=(1.0, 2.0, 0.5), packing=2),
    "smoothed": DataConfig(smoothing=0.5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_how_they_are_asked_for(kind):
    split = MemorySplit(random_documents(0, 60, (1, 120), (1, 40)), sources=(30, 20, 10))
    rows = make_rows(split, split.symbols(), LENGTH, 0, KINDS[kind])
    expected = rows.batch(np.arange(48, 144))
    for batch_size in (1, 8, 24, 96):
        for hosts in (1, 2, 4):
            if batch_size % hosts:
                continue
            for threads, prefetch in ((0, 0), (1, 1), (4, 6)):
                parts = []
                with contextlib.ExitStack() as stack:
                    streams = [
                        stack.enter_context(
                            contextlib.closing(
                                batches(
                                    rows, 48, batch_size, host=host, hosts=hosts, threads=threads, prefetch=prefetch
                                )
                            )
                        )
                        for host in range(hosts)
                    ]
                    for _ in range(96 // batch_size):
                        parts += [next(stream) for stream in streams]
                assert same(joined(parts), expected)
    for first in (0, 7, 10**6, 10**9):  # as a run that goes on there
        with contextlib.closing(batches(rows, first, 4, threads=2)) as stream:
            found = joined([next(stream) for _ in range(3)])
        assert same(found, rows.batch(first + np.arange(12)))
    numbers = np.array([5, 3, 10**9, 3, 0])
    shuffled = rows.batch(numbers)
    for place, number in enumerate(numbers):
        assert same({key: value[place : place + 1] for key, value in shuffled.items()}, rows.batch(numbers[[place]]))
        assert number >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_batch_shapes_tells_the_shapes(kind):
    split = MemorySplit(random_documents(0, 60, (1, 120), (1, 40)), sources=(30, 20, 10))
    batch = make_rows(split, split.symbols(), LENGTH, 0, KINDS[kind]).batch(np.arange(16))
    shapes = batch_shapes(16, LENGTH, KINDS[kind])
    assert list(shapes) == list(batch)
    assert {key: (array.shape, array.dtype) for key, array in batch.items()} == shapes
    assert all(array.flags.c_contiguous for array in batch.values())


def test_static_rows_return_after_as_many_epochs(split):
    rows = make_rows(split, split.symbols(), LENGTH, 0, DataConfig(duplicates=3))
    numbers = np.arange(40)
    for epochs in (3, 6, 300):
        assert same(rows.batch(numbers), rows.batch(numbers + epochs * rows.per_epoch))
    assert not same(rows.batch(numbers), rows.batch(numbers + rows.per_epoch))
    assert same(rows.batch(numbers), make_rows(split, split.symbols(), LENGTH, 0, DataConfig()).batch(numbers))


def test_one_token_type_and_two_separators(split):
    """As RoBERTa has them: [CLS] a [SEP] [SEP] b [SEP], all of type 0."""
    rows = make_rows(split, split.symbols(separators=2), LENGTH, 0, DataConfig(), num_token_types=1)
    batch = rows.batch(np.arange(500))
    assert not batch["token_type_ids"].any()
    ids = unmasked(batch)
    assert (((ids[:, 1:] == SEP) & (ids[:, :-1] == SEP)).sum(axis=1) == 1).all()
    assert ((ids == SEP).sum(axis=1) == 3).all()


def unmasked(batch: Batch) -> np.ndarray:
    ids = batch["input_ids"].copy()
    line, prediction = np.nonzero(batch["masked_weights"])
    ids[line, batch["masked_positions"][line, prediction]] = batch["masked_labels"][line, prediction]
    return ids


@pytest.mark.parametrize("sentence_pairs", ["next_sentence", "sentence_order", "document_sentences", "none"])
def test_packed_rows_are_examples_side_by_side(pairing):
    """Taken apart, an epoch of packed rows has every document's text and is made as unpacked rows are."""
    split = MemorySplit(random_documents(3, 200, (1, 12), (1, 25)))
    config = DataConfig(sentence_pairs=pairing, packing=5, short_seq_probability=0.0)
    rows = make_rows(split, split.symbols(), LENGTH, 0, config)
    batch = rows.batch(np.arange(rows.per_epoch))
    ids, segments = unmasked(batch), batch["segment_ids"]
    assert np.array_equal(segments > 0, batch["attention_mask"] == 1)
    assert (ids[segments == 0] == PAD).all()
    seen = np.zeros(split.vocab_size, np.int64)
    for row in range(rows.per_epoch):
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
            parts = np.split(example[1:-1], np.flatnonzero(example[1:-1] == SEP))
            assert len(parts) == (2 if "next_sentence_labels" in batch else 1)
            parts = [part[part != SEP] for part in parts]
            for part in parts:
                assert (np.diff(part) == 1).all()
            np.add.at(seen, example, 1)
            if pairing == "next_sentence":
                one, other = (split.document_of(part[:1])[0] for part in parts)
                assert batch["next_sentence_labels"][row, entry] == (one != other)
            if pairing == "sentence_order" and len(parts[1]):
                assert batch["next_sentence_labels"][row, entry] == (parts[0][0] > parts[1][0])
    if pairing == "none":  # the slots as they are: every token once
        assert (seen[FIRST_TOKEN:] == 1).all()
    plain = make_rows(split, split.symbols(), LENGTH, 0, DataConfig(sentence_pairs=pairing))
    assert rows.per_epoch < plain.per_epoch


def test_packed_rows_hold_nearly_twice_the_tokens():
    """Documents of 8 to 500 tokens, rows of 512: 254 tokens an example with its special ones; goal 1.85 times."""
    split = MemorySplit(random_documents(4, 4000, (1, 25), (8, 30)))
    found = []
    for packing in (1, 8):
        rows = make_rows(
            split, split.symbols(), 512, 0, DataConfig(sentence_pairs="document_sentences", packing=packing)
        )
        found.append(rows.batch(np.arange(min(rows.per_epoch, 2000)))["attention_mask"].sum(axis=1).mean())
    assert abs(found[0] - 254) < 15
    assert found[1] >= 1.85 * found[0]


@pytest.mark.parametrize("packing", [1, 4])
def test_a_source_of_too_few_documents_is_refused_unless_it_has_no_rows(packing):
    config = DataConfig(packing=packing, random_token_fraction=0.0)
    alone = MemorySplit([[5, 5, 5]])
    with pytest.raises(UserError, match=r"needs 2 documents, and this split has fewer; .*--documents blank-line"):
        make_rows(alone, alone.symbols(), 128, 0, config)
    split = MemorySplit([[5], [5], [5, 5]], sources=(2, 1))
    with pytest.raises(UserError, match="needs 2 documents, and corpus 2 of 2 has fewer"):
        make_rows(split, split.symbols(), 128, 0, config)
    rows = make_rows(split, split.symbols(), 128, 0, dataclasses.replace(config, weights=(1.0, 0.0)))
    ids = rows.batch(np.arange(100))["input_ids"]
    assert set(split.document_of(ids[ids >= FIRST_TOKEN]).tolist()) == {0, 1}


def test_weights_for_another_number_of_sources_are_refused(split):
    with pytest.raises(UserError, match="2 numbers for 1 corpora"):
        make_rows(split, split.symbols(), LENGTH, 0, DataConfig(weights=(1.0, 2.0)))


@pytest.mark.parametrize(("sentence_pairs", "least"), [("next_sentence", 5), ("none", 3)])
def test_a_length_without_room_is_refused(split, pairing, least):
    config = DataConfig(sentence_pairs=pairing)
    make_rows(split, split.symbols(), least, 0, config).batch(np.arange(50))
    with pytest.raises(UserError, match=f"length {least - 1}"):
        make_rows(split, split.symbols(), least - 1, 0, config)


def test_more_examples_than_a_row_has_room_for_are_refused(split):
    for pairing, most in (("next_sentence", 12), ("none", 21)):
        make_rows(split, split.symbols(), 64, 0, DataConfig(sentence_pairs=pairing, packing=most)).batch(np.arange(9))
        with pytest.raises(UserError, match=f"a row of 64 tokens has room for {most} examples"):
            make_rows(split, split.symbols(), 64, 0, DataConfig(sentence_pairs=pairing, packing=most + 1))


def test_seed_and_length_make_other_rows(split, rows):
    numbers = np.arange(8)
    again = make_rows(split, split.symbols(), LENGTH, 0, DataConfig())
    assert same(again.batch(numbers), rows.batch(numbers))
    other = make_rows(split, split.symbols(), LENGTH, 1, DataConfig())
    assert not np.array_equal(other.batch(numbers)["input_ids"], rows.batch(numbers)["input_ids"])


def test_rows_of_the_store_equal_those_in_memory(tmp_path, split):
    dtype, bounds = token_dtype(split.vocab_size), itertools.pairwise(FIRST_TOKEN + split.document_start)
    ids = (np.arange(*bound, dtype=dtype) for bound in bounds)
    documents = list(zip(map(np.array, split.documents), ids, strict=True))
    store(tmp_path / "corpus", documents, vocab_size=split.vocab_size, documents_per_shard=25)
    stored = open_corpus(tmp_path / "corpus").split("train")
    numbers = np.arange(200)
    for length in (16, 128, 512):
        for config in (DataConfig(), DataConfig(sentence_pairs="full_sentences", packing=2)):
            one, other = (make_rows(s, split.symbols(), length, 3, config) for s in (split, stored))
            assert same(one.batch(numbers), other.batch(numbers))


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_last_batch_is_completed_with_fillers_of_no_weight(rows, hosts):
    streams = [batches(rows, 10, 8, host=host, hosts=hosts, stop_row=31, threads=0) for host in range(hosts)]
    found = joined([part for parts in zip(*streams, strict=True) for part in parts])
    expected = rows.batch(np.arange(10, 31))
    assert same({key: value[:21] for key, value in found.items()}, expected)
    assert found["example_weights"].tolist() == [1] * 21 + [0] * 3
    assert not found["masked_weights"][21:].any()


def test_no_rows_no_batches(rows):
    assert list(batches(rows, 5, 8, stop_row=5)) == []


@pytest.mark.parametrize(("batch_size", "hosts"), [(6, 4), (0, 1)])
def test_a_batch_that_hosts_cannot_share_is_refused_at_once(rows, batch_size, hosts):
    with pytest.raises(UserError, match=f"batch_size {batch_size} over {hosts} hosts"):
        batches(rows, 0, batch_size, hosts=hosts)


def test_an_error_in_a_thread_is_raised_and_closing_leaves_no_thread():
    def broken(numbers: np.ndarray) -> Batch:
        if numbers[0] >= 8:
            raise UserError("damaged shard")
        return {"input_ids": numbers}

    before = set(threading.enumerate())
    stream = batches(Rows(broken, 1, np.array([1])), 0, 4, threads=3, prefetch=3)
    assert next(stream)["input_ids"].tolist() == [0, 1, 2, 3]
    next(stream)
    with pytest.raises(UserError, match="damaged shard"):
        next(stream)
    for _ in range(3):
        unfinished = batches(
            Rows(lambda numbers: {"input_ids": numbers}, 1, np.array([1])), 0, 4, threads=4, prefetch=8
        )
        next(unfinished)
        unfinished.close()
    deadline = time.monotonic() + 30
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before
