"""Near copies across the split against a comparison of all pairs of documents, as sets of tuples."""

import random

import numpy as np
import pytest

from bert_jax.corpus import copies
from bert_jax.corpus.copies import count_leaked_near_copies
from bert_jax.corpus.store import open_corpus
from tests.helpers.written_corpus import text, write_corpus


def variant(rng, one, words):
    """The text with some words left out."""
    parts = one.split()
    left_out = {rng.randrange(1, len(parts)) for _ in range(words)}
    return " ".join(part for place, part in enumerate(parts) if place not in left_out)


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    rng = random.Random(3)
    texts = [text(rng, rng.randint(1, 25)) for _ in range(150)]
    texts += [variant(rng, one, rng.randint(1, 8)) for one in texts[:100]]
    long = text(rng, 2000)  # many records
    texts += [long, variant(rng, long, 3), variant(rng, long, 2000), "Badu.", "Badu badu."]
    texts += [f"{text(rng, 4)} {texts[0]}" for _ in range(12)]  # a boilerplate
    corpus = open_corpus(write_corpus(tmp_path_factory.mktemp("leaks"), texts, heldout_fraction=0.4))
    return corpus.split("train"), corpus.split("heldout")


def shingles(split, document):
    ids = split.read(np.arange(*split.first_record[document : document + 2]))[0].tolist()
    return {tuple(ids[start : start + 5]) for start in range(len(ids) - 4)}


def literal(train, heldout):
    known = [shingles(train, number) for number in range(train.num_documents)]
    own = [shingles(heldout, number) for number in range(heldout.num_documents)]
    return sum(bool(one) and any(len(one & other) >= 0.8 * len(one | other) for other in known) for one in own)


@pytest.mark.parametrize("at_once", [4096, 3])
def test_leaks_equal_a_comparison_of_all_pairs(splits, monkeypatch, at_once):
    monkeypatch.setattr(copies, "_RECORDS_AT_ONCE", at_once)
    train, heldout = splits
    expected = literal(train, heldout)
    assert count_leaked_near_copies(train, heldout) == (True, train.num_documents, heldout.num_documents, expected)
    assert 10 < expected < heldout.num_documents - 10


def test_a_sample_of_both_splits(splits):
    train, heldout = splits
    found = count_leaked_near_copies(train, heldout, limit=train.num_tokens // 2)
    assert not found.exact
    assert 0 < found.train < train.num_documents
    assert 0 < found.heldout < heldout.num_documents
    assert found.near <= count_leaked_near_copies(train, heldout).near


def test_nothing_held_out(tmp_path):
    corpus = open_corpus(write_corpus(tmp_path, ["Badu bedu.", "Bedu badu.", "Badu."]))
    assert count_leaked_near_copies(corpus.split("train"), corpus.split("heldout")) == (True, 3, 0, 0)
