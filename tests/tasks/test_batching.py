"""Buckets and batches: nothing is lost, and little is padded."""

import gzip
import itertools
import json

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.tasks.batching import MAX_BUCKETS, choose_buckets, plan_feature_batches
from bert_jax.tokenizer import load_tokenizer


def padded(lengths, buckets):
    return sum(min(bucket for bucket in buckets if bucket >= length) for length in lengths.tolist())


@pytest.fixture(scope="module")
def tokenizer(samples):
    return load_tokenizer(samples / "vocab" / "bert-base-uncased")


def qnli_lengths(real_data, tokenizer):
    text = gzip.decompress((real_data / "glue/QNLI/dev.tsv.gz").read_bytes()).decode()
    columns = [line.split("\t") for line in text.splitlines()[1:]]
    first, second = (tokenizer.encode_sentences([row[column] for row in columns]) for column in (1, 2))
    return np.array([min(128, len(a) + len(b) + 3) for a, b in zip(first, second, strict=True)])


def squad_lengths(real_data, tokenizer):
    data = json.loads(gzip.decompress((real_data / "squad/dev-v1.1.recon.json.gz").read_bytes()))["data"]
    paragraphs = [paragraph for article in data for paragraph in article["paragraphs"]]
    contexts = tokenizer.encode_sentences([paragraph["context"] for paragraph in paragraphs])
    pairs = [
        (context, question["question"])
        for context, paragraph in zip(contexts, paragraphs, strict=True)
        for question in paragraph["qas"]
    ]
    questions = tokenizer.encode_sentences([question for _, question in pairs])
    return np.array([min(384, len(c) + len(q) + 3) for (c, _), q in zip(pairs, questions, strict=True)])


@pytest.mark.parametrize(("lengths_of", "max_seq_len"), [(qnli_lengths, 128), (squad_lengths, 384)])
def test_little_is_padded_on_real_lengths(real_data, tokenizer, lengths_of, max_seq_len):
    lengths = lengths_of(real_data, tokenizer)
    lengths = np.resize(lengths, max(10_000, len(lengths)))  # the samples are repeated: many batches to choose from
    buckets = choose_buckets(lengths, max_seq_len, program_tokens=0)
    assert len(buckets) <= MAX_BUCKETS
    for shuffle in (True, False):
        batches = plan_feature_batches(lengths, buckets, 32, seed=1, epoch=0, shuffle=shuffle)
        assert sum(32 * batch.length for batch in batches) < 1.15 * lengths.sum()
        assert len({batch.length for batch in batches}) <= MAX_BUCKETS


@pytest.mark.parametrize("seed", range(5))
def test_chosen_buckets_are_the_best_of_all(seed):
    lengths = np.random.default_rng(seed).integers(1, 77, size=40)
    candidates = list(range(8, 77, 8))
    best = min(
        padded(lengths, (*choice, 77))
        for count in range(MAX_BUCKETS)
        for choice in itertools.combinations(candidates, count)
    )
    buckets = choose_buckets(lengths, 77, program_tokens=0)
    assert buckets == tuple(sorted(set(buckets)))
    assert buckets[-1] == 77
    assert padded(lengths, buckets) == best


@pytest.mark.parametrize("lengths", [[], [3], [12], [5, 5, 5]])
def test_little_data_or_a_short_maximum_needs_few_buckets(lengths):
    found = choose_buckets(np.array(lengths, np.int64), 12, program_tokens=0)
    assert found[-1] == 12
    assert set(found) <= {8, 12}
    assert choose_buckets(np.array([4], np.int64), 5, program_tokens=0) == (5,)


@pytest.mark.parametrize("passes", [0.5, 3.0])
@pytest.mark.parametrize("program_tokens", [1, 100, 400, 1_000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_no_choice_of_buckets_costs_less_padding_and_compiling(seed, program_tokens, passes):
    lengths = np.random.default_rng(seed).integers(1, 77, size=40)

    def cost(buckets):
        return passes * padded(lengths, buckets) + program_tokens * len(buckets)

    best = min(
        cost((*choice, 77)) for count in range(MAX_BUCKETS) for choice in itertools.combinations(range(8, 77, 8), count)
    )
    assert cost(choose_buckets(lengths, 77, passes, program_tokens)) == best


@pytest.mark.parametrize(
    ("examples", "most", "least"), [(200, 1, 1), (3_700, 2, 1), (67_000, 6, 3), (393_000, 6, 5), (3_000_000, 6, 6)]
)
def test_small_data_gets_few_programs_and_large_data_many(examples, most, least):
    """Sizes from a few hundred examples over MRPC, SST-2 and MNLI to millions, three epochs, lengths as in GLUE."""
    lengths = np.clip(np.random.default_rng(0).lognormal(3.5, 0.5, examples), 4, 128).astype(np.int64)
    assert least <= len(choose_buckets(lengths, 128, passes=3)) <= most


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 1001])
def test_each_index_occurs_once_in_the_smallest_bucket_that_holds_its_batch(count, shuffle):
    lengths = np.random.default_rng(count).integers(2, 65, size=count)
    buckets = (16, 24, 40, 64)
    batches = plan_feature_batches(lengths, buckets, 8, seed=3, epoch=2, shuffle=shuffle)
    assert sorted(itertools.chain(*(batch.indices.tolist() for batch in batches))) == list(range(count))
    assert sum(len(batch.indices) < 8 for batch in batches) <= 1
    for batch in batches:
        assert batch.indices.dtype == np.int64
        longest = lengths[batch.indices].max()
        assert batch.length == min(bucket for bucket in buckets if bucket >= longest)


def test_the_order_is_a_function_of_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(2, 65, size=300)

    def order(seed, epoch, shuffle=True):
        return [batch.indices.tolist() for batch in plan_feature_batches(lengths, (32, 64), 8, seed, epoch, shuffle)]

    assert order(1, 0) == order(1, 0)
    orders = [order(1, 0), order(1, 1), order(2, 0), order(0, 0, shuffle=False)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    # Batches have another order and other members.
    assert {tuple(sorted(batch)) for batch in orders[0]} != {tuple(sorted(batch)) for batch in orders[1]}
    assert order(0, 0, shuffle=False) == order(5, 7, shuffle=False)


def test_batches_of_all_lengths_are_shuffled():
    lengths = np.repeat([10, 20, 30, 40], 100)
    found = [
        batch.length for batch in plan_feature_batches(lengths, (16, 24, 32, 48), 4, seed=0, epoch=0, shuffle=True)
    ]
    assert found != sorted(found)
    assert set(found[:25]) == {16, 24, 32, 48}


def test_a_sequence_longer_than_every_bucket_is_refused():
    with pytest.raises(UserError, match="hold no sequence of 65 tokens"):
        plan_feature_batches(np.array([3, 65]), (32, 64), 8, seed=0, epoch=0, shuffle=False)
