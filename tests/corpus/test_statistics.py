"""Figures of a corpus against counts of the words it was made from, and copies of documents against their texts."""

import collections
import random
import re

import numpy as np
import pytest

from bert_jax.corpus import copies
from bert_jax.corpus.copies import count_duplicates
from bert_jax.corpus.statistics import QUANTILES, document_sizes, length_distribution, token_figures
from bert_jax.corpus.store import open_corpus
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.written_corpus import WORDS, sentence, text, write_corpus

UNKNOWN = "§"


@pytest.fixture(scope="module")
def texts():
    rng = random.Random(1)
    found = [text(rng, rng.randint(1, 20)) for _ in range(200)]
    found += found[:30] + found[:10]  # copies: two and three of each
    found += [" ".join(reversed(one.split(". "))) for one in found[40:60]]  # the same words in another order
    found += [f"{UNKNOWN} {sentence(rng, 3)}" for _ in range(5)]
    found += [f"Xyz {sentence(rng, 2)}" for _ in range(5)]  # a word in three pieces
    long = text(rng, 1000)  # several records; two of these differ in the last word alone
    found += [long, long, f"{long[:-5]}bedu.", *(one.replace("a", "á") for one in found[60:80])]
    return found


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return open_corpus(write_corpus(tmp_path_factory.mktemp("statistics"), texts, heldout_fraction=0.2))


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return load_tokenizer(corpus.tokenizer_directory)


def contents(split):
    """Return the ids of each document, read one at a time."""
    bounds = zip(split.first_record[:-1], split.first_record[1:], strict=True)
    return [tuple(split.read(np.arange(first, stop))[0].tolist()) for first, stop in bounds]


def spelled(texts):
    """Return the words, pieces and periods of each text, as the vocabulary has them."""
    return [re.findall(rf"[a-z]+|\.|{UNKNOWN}", one.lower().replace("á", "a")) for one in texts]


def test_distribution():
    rng = np.random.default_rng(0)
    for lengths in (rng.integers(1, 9, 7), rng.geometric(0.01, 1000), np.array([5]), np.array([0, 0, 1, 2, 3, 4])):
        found = length_distribution(lengths)
        assert found.quantiles == tuple(np.percentile(lengths, 100 * np.array(QUANTILES), method="inverted_cdf"))
        assert found.num_lengths == len(lengths)
        assert found.mean == pytest.approx(lengths.mean())
        bars = collections.Counter(max(0, int(length).bit_length() - 1) for length in lengths)
        assert list(found.doublings) == [bars[power] for power in range(max(bars) + 1)]
    assert length_distribution(np.zeros(0, np.int64)) == (0, 0.0, (0,) * len(QUANTILES), ())


def test_sizes_of_documents(corpus, texts):
    found = [document_sizes(corpus.split(name)) for name in ("train", "heldout")]
    tokens = sorted(np.concatenate([tokens for tokens, _ in found]).tolist())
    sentences = sorted(np.concatenate([sentences for _, sentences in found]).tolist())
    # A word of three tokens, and a period per sentence except in the texts that were reversed.
    assert tokens == sorted(len(words) + 2 * ("xyz" in words) for words in spelled(texts))
    assert sum(sentences) == sum(corpus.split(name).num_sentences for name in ("train", "heldout"))
    assert len(sentences) == len(texts)


def test_figures_of_tokens(tmp_path, texts):
    train = open_corpus(write_corpus(tmp_path, texts)).split("train")
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    found = token_figures(train, tokenizer, 8)
    words = collections.Counter(word for one in spelled(texts) for word in one)
    number = sum(words.values()) + 2 * words["xyz"]
    assert found.tokens == number == found.counts.sum()
    assert found.records == found.num_records == train.num_records > len(texts)
    for word in (*WORDS, "."):
        assert found.counts[tokenizer.tokens.index(word)] == words[word]
    for piece in ("x", "##y", "##z"):
        assert found.counts[tokenizer.tokens.index(piece)] == words["xyz"]
    assert found.unknown == words[UNKNOWN] / number
    assert found.tokens_per_word == number / sum(words.values())
    assert found.sentences == length_distribution(train.read(np.arange(train.num_records))[1])


def test_characters_of_words(tmp_path):
    # The period is a word; decoding joins it without a space.
    corpus = write_corpus(tmp_path, ["Badu badu bed.", "Bed."])
    found = token_figures(open_corpus(corpus).split("train"), load_tokenizer(tmp_path / "tokenizer"), 8)
    assert found.characters_per_word == (4 + 4 + 3 + 1 + 3 + 1) / 6
    assert found.tokens_per_word == (1 + 1 + 3 + 1 + 3 + 1) / 6
    assert found.sentences == length_distribution(np.array([6, 4]))


def test_a_sample_of_tokens_is_like_the_whole(corpus, tokenizer):
    split = corpus.split("train")
    whole, part = token_figures(split, tokenizer, 8), token_figures(split, tokenizer, 8, limit=split.num_tokens // 2)
    assert split.num_tokens / 4 < part.tokens <= split.num_tokens // 2
    assert part.records < part.num_records == split.num_records
    assert (part.counts <= whole.counts).all()
    assert np.corrcoef(part.counts, whole.counts)[0, 1] > 0.95
    assert (token_figures(split, tokenizer, 8, limit=split.num_tokens // 2).counts == part.counts).all()


def test_duplicates(corpus, texts):
    train, heldout = (corpus.split(name) for name in ("train", "heldout"))
    found = count_duplicates(train, heldout)
    known = set(contents(train))
    assert found.exact
    assert (found.train, found.heldout) == (train.num_documents, heldout.num_documents)
    assert found.repeated == train.num_documents - len(known) > 20
    # Texts that differ in accents alone, which the vocabulary lacks, are in both splits.
    assert found.leaked == sum(one in known for one in contents(heldout)) > 0


def test_duplicates_read_few_documents_at_a_time(corpus, monkeypatch):
    splits = [corpus.split(name) for name in ("train", "heldout")]
    expected = count_duplicates(*splits)
    monkeypatch.setattr(copies, "_RECORDS_AT_ONCE", 3)
    assert count_duplicates(*splits) == expected


def test_duplicates_of_a_sample(corpus):
    train, heldout = (corpus.split(name) for name in ("train", "heldout"))
    found = count_duplicates(train, heldout, limit=3000)
    assert not found.exact
    assert 0 < found.train < train.num_documents
    # All documents of some sizes or none: a document is read together with its copies.
    everything = count_duplicates(train, heldout)
    assert 0 < found.repeated < everything.repeated
    fractions = [each.repeated / each.train for each in (found, everything)]
    assert fractions[0] == pytest.approx(fractions[1], abs=0.1)


def test_duplicates_without_held_out_documents(tmp_path):
    corpus = open_corpus(write_corpus(tmp_path, ["Badu bedu.", "Bedu badu.", "Badu bedu.", "Badu."]))
    assert count_duplicates(corpus.split("train"), corpus.split("heldout")) == (True, 4, 1, 0, 0)
