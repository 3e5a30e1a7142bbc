"""Batches of predictions: every input once, little filler, and shapes from short fixed lists."""

import numpy as np
import pytest

from bert_jax.tasks.batching import Feed, doubling_buckets
from bert_jax.tasks.features import Features
from bert_jax.tasks.prediction_batches import plan_prediction_batches
from bert_jax.tasks.rows import RowLimits, best_fit_rows_and_columns

LONGEST, BATCH = 512, 32
ALL_PAIRS, SKIPPED_PAIRS = 0.0012, 0.0  # cost of a pair: BERT-mini on a CPU, and a kernel that skips pairs


def features_of(lengths, choices=1):
    """Inputs of these lengths; with choices, each choice is a token shorter than the choice before."""
    made = []
    for index, length in enumerate(map(int, lengths)):
        ids = [np.ones(max(length - n, 1), np.int32) for n in range(choices)]
        one = (ids[0], length) if choices == 1 else (ids, [len(x) for x in ids])
        made.append(Features(*one, index))
    return made


def plan_of(lengths, limits, choices=1, batch_size=BATCH):
    feed = Feed(doubling_buckets(LONGEST), batch_size, 2, 0)
    return plan_prediction_batches(feed, features_of(lengths, choices), limits)


def random_lengths(rng):
    """Lengths of another size and spread each time, sometimes with a few long inputs."""
    count, middle, spread = rng.integers(1, 3_000), rng.uniform(2.0, 5.0), rng.uniform(0.0, 1.0)
    lengths = np.clip(rng.lognormal(middle, spread, count), 3, LONGEST).astype(int)
    lengths[: rng.integers(0, 4)] = LONGEST
    return lengths


def computed_tokens(plan):
    return sum(batch.rows.length * batch.rows.num_rows for batch in plan)


@pytest.mark.parametrize("pair_cost", [ALL_PAIRS, SKIPPED_PAIRS])
@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize("num_devices", [1, 6])
def test_every_input_is_in_one_batch_whose_rows_hold_it(pair_cost, choices, num_devices):
    rng = np.random.default_rng(0)
    for _ in range(4):
        lengths = random_lengths(rng)
        plan = plan_of(lengths, RowLimits(LONGEST, pair_cost, num_devices), choices)
        assert sorted(np.concatenate([batch.indices for batch in plan])) == list(range(len(lengths)))
        for batch in plan:
            assert lengths[batch.indices].max() <= batch.length <= batch.rows.length <= LONGEST
            assert len(batch.indices) <= batch.batch_size
            assert batch.batch_size % num_devices == batch.rows.num_rows % num_devices == 0
            sizes = np.concatenate([np.maximum(lengths[batch.indices] - n, 1) for n in range(choices)])
            assert best_fit_rows_and_columns(sizes, batch.rows.length)[0].max() < batch.rows.num_rows


def test_shapes_are_from_short_lists():
    """Any inputs share the shapes, so that the persistent cache has the programs of earlier inputs."""
    rng, shapes, per_plan = np.random.default_rng(1), set(), []
    for _ in range(25):
        plan = plan_of(random_lengths(rng), RowLimits(LONGEST, ALL_PAIRS))
        used = {(batch.length, batch.rows.length, batch.rows.num_rows, batch.batch_size) for batch in plan}
        shapes |= used
        per_plan.append(len(used))
    lengths, row_lengths, num_rows, batch_sizes = map(set, zip(*shapes, strict=True))
    assert lengths <= set(doubling_buckets(LONGEST))
    assert row_lengths <= set(doubling_buckets(LONGEST))
    assert num_rows <= {1 << n for n in range(6)}
    assert batch_sizes <= {1 << n for n in range(8)}
    assert np.mean(per_plan) < 2
    assert max(per_plan) <= 3


@pytest.mark.parametrize(
    ("pair_cost", "middle", "spread", "longest", "most"),
    [
        (ALL_PAIRS, 3.8, 0.45, 128, 0.03),
        (ALL_PAIRS, 2.7, 0.4, 60, 0.03),
        (ALL_PAIRS, 5.0, 0.4, 384, 0.11),  # shorter rows have more filler, and cost less
        (SKIPPED_PAIRS, 3.8, 0.45, 128, 0.03),
        (SKIPPED_PAIRS, 2.7, 0.4, 60, 0.03),
        (SKIPPED_PAIRS, 5.0, 0.4, 384, 0.05),
    ],
)
def test_little_filler_in_many_inputs_of_usual_lengths(pair_cost, middle, spread, longest, most):
    lengths = np.clip(np.random.default_rng(2).lognormal(middle, spread, 4_096), 5, longest).astype(int)
    plan = plan_of(lengths, RowLimits(LONGEST, pair_cost))
    assert 1 - lengths.sum() / computed_tokens(plan) < most
    padded = plan_of(lengths, None)
    assert 1 - lengths.sum() / sum(batch.length * batch.batch_size for batch in padded) > 0.2


def test_few_long_inputs_do_not_lengthen_the_rows_of_short_inputs():
    lengths = np.append(np.full(1_000, 40), [500] * 3)
    plan = plan_of(lengths, RowLimits(LONGEST, ALL_PAIRS))
    assert {batch.rows.length for batch in plan if batch.indices.min() < 1_000} <= {64, 128}
    assert sum(batch.rows.length * batch.rows.num_rows for batch in plan if batch.indices.max() >= 1_000) <= 4_096


def test_an_input_of_its_own_takes_a_short_row():
    (batch,) = plan_of([12], RowLimits(LONGEST, ALL_PAIRS), batch_size=1)
    assert (batch.length, batch.rows.length, batch.rows.num_rows) == (16, 16, 1)
    assert plan_of([], RowLimits(LONGEST, ALL_PAIRS)) == []


def test_inputs_of_dense_and_of_sparse_attention_share_no_batch():
    rng = np.random.default_rng(1)
    for dense in (1, 60, 64, 511, 700):
        lengths = random_lengths(rng)
        feed = Feed(doubling_buckets(LONGEST), BATCH, 2, 0)
        plan = plan_prediction_batches(feed, features_of(lengths), None, dense)
        assert sorted(np.concatenate([batch.indices for batch in plan])) == list(range(len(lengths)))
        for batch in plan:
            longest = lengths[batch.indices].max()
            assert longest <= batch.length
            assert (lengths[batch.indices] <= dense).all() == (batch.length <= dense) == (longest <= dense)
