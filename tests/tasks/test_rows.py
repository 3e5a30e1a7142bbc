"""Sequences laid end to end in rows: each token has one place, batches fit, and the cheaper layout is chosen."""

import itertools

import numpy as np
import pytest

from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.tasks.batching import (
    Feed,
    choose_packing_or_padding,
    collate_batches,
    describe_batch_rule,
    describe_batch_shapes,
    plan_training_epoch,
)
from bert_jax.tasks.features import Features
from bert_jax.tasks.rows import (
    RowLimits,
    RowShape,
    batches_of_similar_length,
    best_fit_rows_and_columns,
    map_tokens_to_rows,
    num_rows_needed,
)

PAD, TYPES = 0, 2


def features_of(lengths, choices=1):
    """Features whose token ids differ everywhere."""
    first = itertools.count(1)
    made = []
    for index, length in enumerate(lengths):
        ids = [np.fromiter(itertools.islice(first, length + n), np.int32) for n in range(choices)]
        starts = [len(x) // 2 for x in ids]
        one = (ids[0], starts[0]) if choices == 1 else (ids, starts)
        made.append(Features(*one, index, {"labels": np.int32(index)}))
    return made


@pytest.mark.parametrize("row_length", [10, 16, 33])
def test_sequences_do_not_overlap_and_take_few_rows(row_length):
    rng = np.random.default_rng(row_length)
    for _ in range(50):
        lengths = rng.integers(0, 11, 30)
        taken = set()
        rows, columns = best_fit_rows_and_columns(lengths, row_length)
        for length, row, column in zip(lengths, rows, columns, strict=True):
            places = {(row, column + n) for n in range(length)}
            assert not places & taken
            assert column + length <= row_length
            taken |= places
        # Best-fit decreasing takes at most 11/9 of the fewest rows, and 4 more (Johnson 1973).
        assert 9 * (rows[lengths > 0].max() + 1) <= 11 * -(-lengths.sum() // row_length) + 4 * 9 + 11


@pytest.mark.parametrize(("shards", "micro"), [(1, 1), (1, 2), (2, 2), (4, 2)])
def test_every_example_is_dealt_once_and_batches_have_similar_lengths(shards, micro):
    rng = np.random.default_rng(0)
    lengths, shape = rng.integers(4, 120, 1037), RowShape(128, 0, shards, shards, micro)
    epochs = [batches_of_similar_length(lengths, 32, shape, seed=1, epoch=epoch, shuffle=True) for epoch in (0, 1)]
    for batches in epochs:
        assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
        assert sorted(map(len, batches)) == [1037 % 32, *[32] * (1037 // 32)]
        sums = [lengths[batch].sum() for batch in batches if len(batch) == 32]
        assert np.ptp(sums) < 0.08 * np.mean(sums), "random batches differ by 40 %"
        parts = [lengths[batch].reshape(shards, -1, micro).sum(1) for batch in batches if len(batch) == 32]
        assert np.ptp(parts) < (0.08 if shape.num_parts == 1 else 0.3) * np.mean(parts)
    first, second = ({frozenset(batch.tolist()) for batch in batches} for batches in epochs)
    assert not first & second
    again = batches_of_similar_length(lengths, 32, shape, seed=1, epoch=1, shuffle=True)
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in epochs[1]]
    # A training may be resumed on other devices or with other micro-batches: they only divide the same batches.
    alone = batches_of_similar_length(lengths, 32, RowShape(128, 0), seed=1, epoch=1, shuffle=True)
    assert [sorted(batch) for batch in alone] == [sorted(batch) for batch in again]


def test_a_set_smaller_than_a_batch_is_one_batch_for_any_parts():
    for shape in (RowShape(128, 0), RowShape(128, 0, 2, 2, 4)):
        (batch,) = batches_of_similar_length(np.arange(1, 6), 32, shape, seed=0, epoch=0, shuffle=True)
        assert sorted(batch) == list(range(5))


def test_feeds_of_equal_rules_have_equal_batches():
    features = features_of(np.random.default_rng(0).integers(4, 60, 200))
    feeds = [
        Feed(buckets, 16, TYPES, PAD, rows)
        for buckets in ((60,), (64,), (16, 64), (16, 32, 64), (16, 32, 128))
        for rows in (None, RowShape(128, 8), RowShape(64, 20, 4, 2, 2))
    ]
    rule_of_batches: dict[str, str] = {}
    for feed in feeds:
        batches = str([sorted(batch.indices.tolist()) for batch in plan_training_epoch(feed, features, 0, 0)])
        assert rule_of_batches.setdefault(batches, describe_batch_rule(feed)) == describe_batch_rule(feed)
    assert len(rule_of_batches) == len({describe_batch_rule(feed) for feed in feeds}) == 4


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize(("devices", "shards", "micro"), [(1, 1, 1), (8, 1, 1), (2, 1, 2), (4, 2, 2)])
def test_each_token_is_in_the_rows_once_and_is_found_again(devices, shards, micro, choices):
    rng = np.random.default_rng(3)
    features, shape = features_of(rng.integers(2, 14, 21), choices), RowShape(24, 1, devices, shards, micro)
    feed = Feed((16,), 16, TYPES, PAD, shape)
    for batch in collate_batches(feed, features, plan_training_epoch(feed, features, 0, 0), BatchBlocks((0,), 1)):
        num_rows = len(batch["row_tokens"])
        assert num_rows % (shape.num_parts * devices // shards) == 0
        assert batch["token_places"].shape == batch["input_ids"].shape
        parts = [
            {name: x.reshape(shards, -1, micro, *x.shape[1:])[shard, :, part] for name, x in batch.items()}
            for shard, part in itertools.product(range(shards), range(micro))
        ]
        num_real = 0
        for part in parts:
            ids, tokens = part["input_ids"].ravel(), part["row_tokens"]
            places = part["token_places"].reshape(-1, 16)
            real = np.repeat(part["example_weights"] > 0, choices)
            present = (part["attention_mask"].reshape(-1, 16) != 0) & real[:, None]
            np.testing.assert_array_equal(places >= 0, present)
            np.testing.assert_array_equal(tokens.ravel()[places[present]], np.flatnonzero(present))
            assert (tokens >= 0).sum() == present.sum()
            # A sequence is in one row, and its tokens are neighbors.
            for row in tokens:
                sequence = row[row >= 0] // 16
                assert len(list(itertools.groupby(sequence))) == len(set(sequence))
            assert len(set(ids[tokens[tokens >= 0]])) == present.sum()
            num_real += int(real.sum()) // choices
        assert num_real == (batch["example_weights"] > 0).sum()


def test_a_batch_with_more_tokens_than_usual_has_more_rows():
    lengths, shape = np.full((8, 1), 20), RowShape(32, 2)
    assert num_rows_needed(lengths, shape) == 8
    assert len(map_tokens_to_rows(lengths, 20, shape)["row_tokens"]) == 8
    assert len(map_tokens_to_rows(lengths[:1], 20, shape)["row_tokens"]) == 2


def chosen(lengths, passes, pair_cost, buckets=(64, 128)):
    features = features_of(lengths)
    feed = Feed(buckets, 32, TYPES, PAD)
    return choose_packing_or_padding(
        feed, features, RowShape(0, 0), passes=passes, limits=RowLimits(512, pair_cost)
    ), features


def test_small_data_sets_get_rows_and_large_sets_with_costly_pairs_get_padding():
    rng = np.random.default_rng(0)
    lengths = np.append(rng.integers(16, 128, 639), 128)
    few, features = chosen(lengths, 3, 0.002, (128,))
    assert few.rows
    assert few.buckets == (128,)
    filled = lengths.sum() / (20 * few.rows.num_rows * few.rows.length)
    assert f"({100 * (1 - filled):.1f} % filler)" in describe_batch_shapes(few, features)
    buckets = tuple(range(16, 129, 8))
    assert chosen(lengths, 1e6, 0.05, buckets)[0].rows is None
    kernel_skips_pairs, features = chosen(lengths, 1e6, 0.0, (64, 96, 128))
    assert kernel_skips_pairs.rows
    assert kernel_skips_pairs.rows.length > 128


@pytest.mark.parametrize("seed", range(5))
def test_a_sequence_goes_to_the_row_where_it_leaves_the_fewest_tokens(seed: int) -> None:
    """As a search over all rows, from the longest sequence to the shortest."""
    lengths = np.random.default_rng(seed).integers(1, 33, 60)
    free: list[int] = []
    expected = np.zeros(len(lengths), int)
    for index in np.argsort(-lengths, kind="stable"):
        fitting = [row for row, space in enumerate(free) if space >= lengths[index]]
        if not fitting:
            fitting, free = [len(free)], [*free, 32]
        expected[index] = min(fitting, key=lambda row: (free[row], row))
        free[expected[index]] -= lengths[index]
    rows, _ = best_fit_rows_and_columns(lengths, 32)
    np.testing.assert_array_equal(rows, expected)
